// The measurements for advice: short runs of a job's pipeline alone, and of its model on batches in
// memory.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "gpu/kernel.h"
#include "study/advise.h"
#include "train/job.h"

namespace etr::study {

struct AdviseOptions {
  double seconds = 3;  // of each measurement, from its first result on
  // Upper bound on one measurement, including start-up.
  double longest() const { return 20 * seconds + start_up; }
  // Is told what is being done. If it returns false, throws Error(cancelled). May be empty.
  std::function<bool(const std::string& what)> progress;
  double start_up = 60;  // seconds that the bound allows for it

  void report(const std::string& what) const;
};

// Writes no metrics and no lists of bad records, but fills caches on disk as a run would. Leaves
// out the job's echo nodes and shortens its shuffle buffers, so that seconds are enough.
// Error(unsupported) names the key if the job has ranks or a parameter server, or no batches that
// advise supports; Error(state) if no batch comes in time.
Measured measure(std::shared_ptr<gpu::Kernels> kernels, const train::Job& job,
                 const AdviseOptions& options);

// Runs both in turns for a few seconds each, with short queues and buffers, so that a steady state
// shows. `changed` nullptr: runs only the job. Returns {"baseline": {"examples_per_s",
// "steps_per_s", "fresh_per_s", "device_wait_share"}, "changed": {...}}.
Json compare(const std::shared_ptr<gpu::Kernels>& kernels, const train::Job& job,
             const train::Job* changed, const AdviseOptions& options);

}  // namespace etr::study

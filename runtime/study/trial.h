// Trains one trial of a study and records the result.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "core/error.h"
#include "study/records.h"
#include "study/study.h"
#include "study/trial_job.h"
#include "train/team.h"

namespace etr::study {

// Returns the record of a trial that could not begin.
Record failed_record(const Study& study, const Place& place, const Error& error);

class TrialRun {
 public:
  // Decides at an evaluation whether the trial ends, and with which status; `best` is its best
  // metric so far.
  using Verdict = std::function<std::optional<Status>(const CurvePoint& at, double best)>;

  // `study` must outlive this object.
  TrialRun(const Study& study, TrialSpec spec);

  // Trains until the target, the end of the budget, or until `verdict` ends it. An error goes into
  // the record with the status failed, except Error(device_lost), which is thrown. Returns none if
  // stopped. The result does not depend on time, unless the budget or the echo node does. `open`
  // opens the devices of further ranks.
  std::optional<Record> run(std::shared_ptr<gpu::Kernels> kernels, const train::Team::Open& open,
                            const Verdict& verdict);

  void stop();  // any thread
  const TrialSpec& spec() const { return spec_; }
  // Device memory that each rank took; valid once the trial has ended.
  uint64_t device_bytes() const { return device_bytes_; }
  std::optional<Code> error() const { return error_; }  // the reason if the trial has failed

 private:
  class Attached;
  void train(train::Team& trainer, const Verdict& verdict, Record& record);
  std::optional<Status> status_at(const CurvePoint& at, double first_loss, const Verdict& verdict,
                                  Record& record) const;
  bool stopped();

  const Study& study_;
  const TrialSpec spec_;
  const Workload& workload_;
  std::mutex mutex_;
  train::Team* trainer_ = nullptr;  // while it trains
  bool stopped_ = false;
  uint64_t device_bytes_ = 0;
  std::optional<Code> error_;
};

}  // namespace etr::study

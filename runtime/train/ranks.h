// Trainers that train one model together, each in its process or thread: what they decide, and what they tell each other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/store.h"
#include "exchange/group.h"
#include "exchange/world.h"
#include "parallel/sharing.h"
#include "train/batch_fields.h"
#include "train/job.h"
#include "train/learner.h"

namespace etr::train {

// One rank's end. All ranks make the same calls in the same order; where one does not come, the others' calls throw RankLost.
// Used by one thread, but for abort().
class Ranks {
 public:
  explicit Ranks(exchange::Group group) : group_(std::move(group)) {}

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }
  bool leads() const { return rank() == 0; }  // writes the run's folder

  // For a learner on this device, as the job's section 'parallel' says where there is one. A call of all ranks.
  std::unique_ptr<parallel::Sharing> sharing(const gpu::DevicePtr& device, const Options* options);

  // What a rank has to say before a step, and what all of them say together: whether any does.
  struct Outlook {
    bool stops = false;    // was asked to end the run
    bool is_over = false;  // its time is
    bool waits = false;    // has no batch yet
    bool yields = false;   // has another call to make first
  };
  Outlook agree(const Outlook& mine);

  // What a rank brings to a step, and what all of them bring together.
  struct Share {
    bool ends_epoch = false;  // it has no further batch in this epoch; of all: one has none
    SampleCounts counts;
  };
  Share agree(const Share& mine);

  // Of parts of the data, as of all of it. Where one rank's was stopped, Error(cancelled) on all: `evaluate` may throw it.
  EvalMetrics evaluate(const std::function<EvalMetrics()>& evaluate);

  // Another rank may take all the time of the world before a step, as the caller of its trainer does: only abort() ends the wait
  // for what it decides. Exchanges keep the group's time-out.
  void be_patient();

  std::vector<std::string> gather(const std::string& text);  // of all ranks, in their order

  // What the first rank's `load` gives, on all of them.
  checkpoint::Loaded share(const std::function<checkpoint::Loaded()>& load);

  // This rank cannot go on: the others' calls throw, and say why.
  void abort(const std::string& reason) { group_.abort(reason); }

 private:
  uint64_t share(uint64_t number);
  std::string share(std::string text);

  exchange::Group group_;
};

// Whether the job's section 'parallel', or else the launcher, says which of several processes this one is.
bool has_processes(const Job& job);

// Where this process meets others, as the section 'parallel' and the launcher say; without a rank (-1) and a size (0) where neither
// says them.
exchange::World world_of(const Options& parallel);

// Joins the ranks of those processes; nullptr where the job has none, or names devices of this process alone, or has servers. Where each process
// has so many ranks, one for each of its `devices`, this is that of the one with the number `device`.
std::unique_ptr<Ranks> join_ranks(const Job& job, int device = 0, int devices = 1);

}  // namespace etr::train

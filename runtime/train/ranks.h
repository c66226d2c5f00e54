// Trainers that train one model together, each in its own process or thread: their decisions and
// messages.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/store.h"
#include "exchange/failure.h"
#include "exchange/group.h"
#include "exchange/succession.h"
#include "exchange/world.h"
#include "parallel/mesh.h"
#include "parallel/model_stage.h"
#include "parallel/sharing.h"
#include "train/batch_fields.h"
#include "train/job.h"
#include "train/learner.h"

namespace etr::train {

// One rank's end. All ranks make the same calls in the same order. If one does not come, the
// others' calls throw RankLost. Used by one thread, except abort().
class Ranks {
 public:
  explicit Ranks(exchange::Group group)
      : group_(std::move(group)), mesh_({}, group_->rank(), group_->size()) {}

  // Applies the job's parallel.mesh. Error(invalid_argument) if it is for another number of ranks.
  void lay_out(const parallel::MeshShape& shape);

  // An elastic run: its group survives the loss of ranks and admits new ones.
  struct Elastic {
    exchange::World world;
    int min_ranks = 1;
    bool joins = false;  // joins a run in progress
    double join_timeout_s = 0;
  };
  explicit Ranks(const Elastic& elastic);
  ~Ranks();

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  bool leads() const { return rank() == 0; }  // writes the run's folder

  uint64_t bytes() const;  // contributed to exchanges by this rank

  const parallel::Mesh& mesh() const { return mesh_; }

  // Ranks that share a model read the same samples. part() is the part of the data that this one
  // reads, out of parts(); sharers() is how many ranks read it, and counts() whether this one is
  // the first of them, whose samples count.
  int part() const { return mesh_.place(parallel::Axis::data); }
  int parts() const { return mesh_.length(parallel::Axis::data); }
  int sharers() const { return size() / parts(); }
  bool counts() const { return rank() % sharers() == 0; }
  // Returns whether this rank has the results for that part, as the last stage of the model does.
  bool has_results() const {
    return mesh_.place(parallel::Axis::tensor) == 0 &&
           mesh_.place(parallel::Axis::pipeline) + 1 == mesh_.length(parallel::Axis::pipeline);
  }

  // For a learner on this device, according to the job's section 'parallel', if there is one.
  // Collective.
  std::unique_ptr<parallel::Sharing> sharing(const gpu::DevicePtr& device, const Options* options);
  std::unique_ptr<parallel::ModelStage> model_stage(const gpu::DevicePtr& device,
                                                    const parallel::ModelStageOptions& options);

  // What a rank reports before a step. agree() returns, for each field, whether any rank reports
  // it.
  struct Outlook {
    bool stops = false;    // it was asked to end the run
    bool is_over = false;  // its time is over
    bool waits = false;    // it has no batch yet
    bool yields = false;   // it has to make another call first
  };
  Outlook agree(const Outlook& mine);

  void sum(std::span<int64_t> numbers);  // sums over all ranks, in place

  // What a rank contributes to a step, and what all contribute together.
  struct Share {
    bool ends_epoch = false;  // it has no further batch in this epoch; all: one has none
    SampleCounts counts;
    // Its batch needs another plan than the previous step; all: one batch does.
    bool changes_plan = false;
  };
  Share agree(const Share& mine);

  // Throws on all ranks if those with the same part of the data have different batches.
  void check_alike(int64_t fingerprint);

  // Combines the ranks' metrics of their parts of the data, which may be empty, into those of all
  // data. If `evaluate` throws on one rank, throws on all, and the group remains: Error(cancelled),
  // by which it was stopped, or that rank's own error there and its reason elsewhere. Only an
  // elastic run loses a rank whose evaluation failed.
  EvalMetrics evaluate(const std::function<EvalMetrics()>& evaluate);

  // Calls `work` and returns when all ranks have done theirs, whose durations may differ by more
  // than the group's time-out: each rank answers the others meanwhile, on a thread of its own. What
  // `work` throws is thrown then, on this rank. It must not use this object. Collective.
  void work_apart(const std::function<void()>& work);

  // From now on waits for other ranks before a step however long they take, since their trainers'
  // callers may take any time. Only abort() ends this wait. Exchanges keep the group's time-out.
  void be_patient();

  bool first_says(bool own);  // returns the first rank's value on all ranks

  std::vector<std::string> gather(const std::string& text);  // of all ranks, in rank order

  // Error(invalid_argument) on all ranks if they do not all pass the same text.
  void check_said_by_all(const std::string& what);

  // Returns the result of the first rank's `load` on all ranks.
  checkpoint::Loaded share(const std::function<checkpoint::Loaded()>& load);

  // Called if this rank cannot continue: the others' calls throw with this reason.
  void abort(const std::string& reason) {
    if (group_) group_->abort(reason);
  }

  bool is_elastic() const { return succession_ != nullptr; }
  bool is_newcomer() const { return elastic_.joins; }  // joins a run that others have begun

  // Returns the missing ranks of the group that this failure has ended.
  std::vector<int> missing(const Error& lost);
  // Call it once nothing uses the group any more: the remaining ranks form a new one, with new
  // numbers. RankLost if this rank is not among them, or if they are too few.
  void regroup(std::vector<int> missing);
  bool has_group() const { return group_.has_value(); }
  // At the end of an epoch: returns how many processes wait to join. Collective.
  int newcomers();
  // Admits them, under the same conditions as regroup().
  void admit();
  // Marks the run as over, at its orderly end.
  void end();

 private:
  void enter(const exchange::Succession::Place& place);
  void leave_group();
  void form(const exchange::World& world);

  uint64_t share(uint64_t number);
  std::string share(std::string text);

  std::optional<exchange::Group> group_;
  uint64_t before_ = 0;  // of earlier groups
  parallel::Mesh mesh_{{}, 0, 1};
  Elastic elastic_;
  std::unique_ptr<exchange::Succession> succession_;  // of an elastic run
  std::vector<std::string> waiting_;                  // first rank: the processes to be admitted
};

// Returns whether the job's section 'parallel', or else the launcher, says which of several
// processes this is.
bool has_processes(const Job& job);

// Returns where this process meets others, according to the section 'parallel' and the launcher.
// The rank is -1 and the size 0 if neither gives them.
exchange::World world_of(const Options& parallel);

// Joins the ranks of those processes. Returns nullptr if the job has none, names only devices of
// this process, or has servers. If each process has several ranks, one for each of its `devices`,
// this is the one of the device with the number `device`.
std::unique_ptr<Ranks> join_ranks(const Job& job, int device = 0, int devices = 1);

}  // namespace etr::train

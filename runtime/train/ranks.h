// Trainers that train one model together, each in its process or thread: what they decide, and what they tell each other.
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

// One rank's end. All ranks make the same calls in the same order; where one does not come, the others' calls throw RankLost.
// Used by one thread, but for abort().
class Ranks {
 public:
  explicit Ranks(exchange::Group group)
      : group_(std::move(group)), mesh_({}, group_->rank(), group_->size()) {}

  // As the job's parallel.mesh says. Error(invalid_argument) where that is for another number of ranks.
  void lay_out(const parallel::MeshShape& shape);

  // Of an elastic run: a group that outlives ranks, and takes up new ones.
  struct Elastic {
    exchange::World world;
    int min_ranks = 1;
    bool joins = false;  // a run that goes on
    double join_timeout_s = 0;
  };
  explicit Ranks(const Elastic& elastic);
  ~Ranks();

  int rank() const { return group_->rank(); }
  int size() const { return group_->size(); }
  bool leads() const { return rank() == 0; }  // writes the run's folder

  uint64_t bytes() const;  // that this rank has brought to exchanges

  const parallel::Mesh& mesh() const { return mesh_; }

  // Ranks that share a model read the same samples: which of `parts()` parts of the data this one reads, how many ranks read it,
  // and whether this one is the first of them, whose samples count.
  int part() const { return mesh_.place(parallel::Axis::data); }
  int parts() const { return mesh_.length(parallel::Axis::data); }
  int sharers() const { return size() / parts(); }
  bool counts() const { return rank() % sharers() == 0; }
  // Whether this one has the results of those: the last stage of the model.
  bool has_results() const {
    return mesh_.place(parallel::Axis::tensor) == 0 &&
           mesh_.place(parallel::Axis::pipeline) + 1 == mesh_.length(parallel::Axis::pipeline);
  }

  // For a learner on this device, as the job's section 'parallel' says where there is one. A call of all ranks.
  std::unique_ptr<parallel::Sharing> sharing(const gpu::DevicePtr& device, const Options* options);
  std::unique_ptr<parallel::ModelStage> model_stage(const gpu::DevicePtr& device,
                                                    const parallel::ModelStageOptions& options);

  // What a rank has to say before a step, and what all of them say together: whether any does.
  struct Outlook {
    bool stops = false;    // was asked to end the run
    bool is_over = false;  // its time is
    bool waits = false;    // has no batch yet
    bool yields = false;   // has another call to make first
  };
  Outlook agree(const Outlook& mine);

  void sum(std::span<int64_t> numbers);  // of all ranks, in place

  // What a rank brings to a step, and what all of them bring together.
  struct Share {
    bool ends_epoch = false;  // it has no further batch in this epoch; of all: one has none
    SampleCounts counts;
    bool changes_plan =
        false;  // its batch is not for the plan of the step before; of all: one's is not
  };
  Share agree(const Share& mine);

  // Throws on all ranks where those that have the same part of the data say different things of a batch.
  void check_alike(int64_t fingerprint);

  // Joins the ranks' metrics of their parts of the data, which may be empty, into those of all of it. If one rank's evaluation was
  // stopped, Error(cancelled) on all: `evaluate` may throw it.
  EvalMetrics evaluate(const std::function<EvalMetrics()>& evaluate);

  // Another rank may take any time before a step, as the caller of its trainer may: only abort() ends the wait
  // for what it decides. Exchanges keep the group's time-out.
  void be_patient();

  bool first_says(bool own);  // what the first rank gives here, on all of them

  std::vector<std::string> gather(const std::string& text);  // of all ranks, in their order

  // Error(invalid_argument) on all where they set different things.
  void check_said_by_all(const std::string& what);

  // What the first rank's `load` gives, on all of them.
  checkpoint::Loaded share(const std::function<checkpoint::Loaded()>& load);

  // This rank cannot go on: the others' calls throw, and say why.
  void abort(const std::string& reason) {
    if (group_) group_->abort(reason);
  }

  bool is_elastic() const { return succession_ != nullptr; }
  bool is_newcomer() const { return elastic_.joins; }  // to a run that the others have begun

  // Of the group that this failure has ended.
  std::vector<int> missing(const Error& lost);
  // Nothing uses the group any more: the ranks that are left form a new one, with numbers of their own. Throws RankLost where this
  // rank is not among them, or they are too few.
  void regroup(std::vector<int> missing);
  bool has_group() const { return group_.has_value(); }
  // At the end of an epoch; a call of all ranks. How many wait to join.
  int newcomers();
  // They join, under the same conditions as in regroup().
  void admit();
  // The run is over, in order.
  void end();

 private:
  void enter(const exchange::Succession::Place& place);
  void leave_group();
  void form(const exchange::World& world);

  uint64_t share(uint64_t number);
  std::string share(std::string text);

  std::optional<exchange::Group> group_;
  uint64_t before_ = 0;  // of groups that this one has outlived
  parallel::Mesh mesh_{{}, 0, 1};
  Elastic elastic_;
  std::unique_ptr<exchange::Succession> succession_;  // of an elastic run
  std::vector<std::string> waiting_;                  // the first rank's: who is to be admitted
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

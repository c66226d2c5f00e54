// A run's supply of batches: its pipeline, in step with those of the other ranks.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "checkpoint/store.h"
#include "pipeline/pipeline.h"
#include "train/batches_ahead.h"
#include "train/ranks.h"
#include "train/steps.h"

namespace etr::train {

// Returns whether the stage's output depends on how long other stages and the consumer take.
bool is_by_clock(const Json& stage);

// Limits the pipeline to this rank's part of the data; `ranks` may be nullptr.
Json part_of_ranks(Json pipeline, const Ranks* ranks);

class Supply {
 public:
  // `ranks`: nullptr if the run has only this rank; must outlive the supply. `ahead`: if the
  // pipeline has a stage 'bucket', the batches that each rank reads ahead so that all take batches
  // of the same bucket; 0: each takes them as they come.
  Supply(const Json& pipeline, Ranks* ranks, size_t ahead = 0);

  pipeline::Pipeline& pipeline() { return pipeline_; }
  const pipeline::Pipeline& pipeline() const { return pipeline_; }

  // Waits for at most `seconds` per batch that it needs. Returns whether next() need not wait for
  // this rank's data.
  bool wait(double seconds);

  // Returns false at the end of the epoch; with ranks, that is when the first of them has no
  // further batch. `field` is one by which the batch's rows are counted. `changes_plan`: whether a
  // batch needs another plan than the previous step; see Plans::changes().
  bool next(pipeline::Item& batch, const std::string& field,
            const std::function<bool(const pipeline::Item&)>& changes_plan = {});
  // Returns whether that was so on any rank for the latest batch of next().
  bool plan_changes() const { return plan_changes_; }

  // The samples of all ranks' latest batches; none if the run has only this rank.
  const std::optional<SampleCounts>& counts() const { return counts_; }

  // Returns the positions of all ranks' pipelines as a checkpoint keeps them, one for ranks that
  // read the same data. Collective, like restore().
  checkpoint::Files positions();
  // Each rank continues with its own part of the data. `saved_by`: the number of parts when it was
  // saved. If it differs now, the rest of the epoch is divided anew. `origin` names the checkpoint
  // in errors.
  void restore(const checkpoint::Files& files, int saved_by, const std::string& origin);
  // Restores the first worker of a parameter server, which has saved its own position only. If the
  // data is now divided into another number of `parts`, it restarts the epoch, like the others.
  void restore_worker(const checkpoint::Files& files, int parts, const std::string& origin);

 private:
  bool next_of_own(pipeline::Item& batch);
  void restore_own(const Json& position);

  Ranks* const ranks_;
  pipeline::Pipeline pipeline_;
  std::optional<BatchesAhead> ahead_;
  bool plan_changes_ = false;
  std::optional<SampleCounts> counts_;
};

}  // namespace etr::train

// Where a run's batches come from: its pipeline, which keeps pace with those of the other ranks.
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

// For what only looks: no log of decisions, no list of bad records, no quarantine.
Json without_side_files(Json pipeline);

// This rank's part of the data; `ranks` may be nullptr.
Json part_of_ranks(Json pipeline, const Ranks* ranks);

class Supply {
 public:
  // `ranks`: nullptr where the run is alone. Outlives the supply. `ahead`: batches that each of them reads ahead where the pipeline
  // has a stage 'bucket', so that all take batches of the same bucket; 0: each takes them as they come.
  Supply(const Json& pipeline, Ranks* ranks, size_t ahead = 0);

  pipeline::Pipeline& pipeline() { return pipeline_; }
  const pipeline::Pipeline& pipeline() const { return pipeline_; }

  // Whether next() need not wait for this rank's data, after at most so long for each batch that it takes.
  bool wait(double seconds);

  // False at the end of the epoch, which with ranks is where the first of them has no further batch. `field`: one that the
  // batch's rows are counted by.
  // `changes_plan`: whether a batch is not for the plan of the step before; see Plans::changes().
  bool next(pipeline::Item& batch, const std::string& field,
            const std::function<bool(const pipeline::Item&)>& changes_plan = {});
  // Of the batch that next() gave last: whether that is so on any rank.
  bool plan_changes() const { return plan_changes_; }

  // And the samples of all ranks' batches; none where the run is alone.
  const std::optional<SampleCounts>& counts() const { return counts_; }

  // The positions of all ranks' pipelines, as a checkpoint keeps them: one where ranks read the same. A call of all ranks, as
  // restore() is.
  checkpoint::Files positions();
  // Each rank goes on with its own part of the data. `saved_by`: so many parts of the data; where there is another number of them now, they
  // share out what is left of the epoch. `origin` names the checkpoint in errors.
  void restore(const checkpoint::Files& files, int saved_by, const std::string& origin);

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

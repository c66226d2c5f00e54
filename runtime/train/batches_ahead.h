// Batches that a rank has read ahead, so that all ranks can take batches of the same length bucket in a step: otherwise
// the one with the longest batch sets the pace of the others.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "pipeline/pipeline.h"

namespace etr::train {

// The stage 'bucket' of a pipeline: by what a batch's length is told.
struct LengthBuckets {
  std::string field;
  std::vector<int64_t> boundaries;

  size_t count() const { return boundaries.size() + 1; }
  size_t of(const pipeline::Item& batch) const;  // 0 for one that has no such field

  static std::optional<LengthBuckets> of_pipeline(const Json& pipeline);
};

// Which batch comes next depends on what all ranks hold, and that on their data alone: each reads until it holds `most`, or its
// epoch has ended. So the order of batches is the same in each run with as many ranks.
class BatchesAhead {
 public:
  BatchesAhead(pipeline::Pipeline& pipeline, LengthBuckets buckets, size_t most);

  // Sums over all ranks, in place.
  using Sum = std::function<void(std::span<int64_t>)>;

  // Whether next() need not wait for the pipeline, after at most `seconds` for each batch that is to be read ahead.
  bool wait(double seconds);

  // Of the bucket that most ranks have, and of those the one of which they hold most batches; a rank without one takes its nearest.
  // False where this rank has no batch left in the epoch. A call of all ranks.
  bool next(pipeline::Item& batch, const Sum& sum);

  // The epoch is over for all: batches that are left are left out.
  void end_epoch();

  // The pipeline's position at the oldest batch that is held, and under "taken" which of those after it were taken.
  Json position() const;
  void restore(Json position);
  // Whether some of the batches behind a position were taken.
  static bool has_taken(const Json& position);

 private:
  struct Held {
    pipeline::Item batch;
    size_t bucket;
    uint64_t number;  // in the epoch, from where the pipeline was restored
  };

  bool is_full() const { return ended_ || held_.size() >= most_; }
  void read_one();

  pipeline::Pipeline& pipeline_;
  const LengthBuckets buckets_;
  const size_t most_;
  std::deque<Held> held_;     // in their order
  bool ended_ = false;        // the pipeline's epoch has
  uint64_t read_ = 0;         // batches, from where the pipeline was restored
  std::set<uint64_t> taken_;  // before that, by their numbers: not read yet
  std::shared_ptr<const Json>
      before_;  // the pipeline's position before the latest read but the first
};

}  // namespace etr::train

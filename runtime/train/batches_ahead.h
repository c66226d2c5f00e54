// Batches that a rank has read ahead, so that all ranks can take batches of the same length bucket
// in a step. Otherwise the rank with the longest batch would hold up the others.
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

// The stage 'bucket' of a pipeline: how a batch's bucket follows from its length.
struct LengthBuckets {
  std::string field;
  std::vector<int64_t> boundaries;

  size_t count() const { return boundaries.size() + 1; }
  size_t of(const pipeline::Item& batch) const;  // 0 if the batch has no such field

  static std::optional<LengthBuckets> of_pipeline(const Json& pipeline);
};

// The next batch depends only on what all ranks hold, and that only on their data: each reads until
// it holds `most` batches or its epoch has ended. So the order of batches is the same in every run
// with the same number of ranks.
class BatchesAhead {
 public:
  BatchesAhead(pipeline::Pipeline& pipeline, LengthBuckets buckets, size_t most);

  // Sums over all ranks, in place.
  using Sum = std::function<void(std::span<int64_t>)>;

  // Waits for at most `seconds` per batch to read ahead. Returns whether next() need not wait for
  // the pipeline.
  bool wait(double seconds);

  // Takes a batch from the bucket that most ranks have and, among such buckets, the one of which
  // they hold most batches. A rank without that bucket takes its nearest. Returns false if this
  // rank has no batch left in the epoch. Collective.
  bool next(pipeline::Item& batch, const Sum& sum);

  // The epoch is over for all ranks: drops the remaining batches.
  void end_epoch();

  // Returns the pipeline's position at the oldest held batch, with the later batches that were
  // taken listed under "taken".
  Json position() const;
  void restore(Json position);
  // Returns whether some of the batches after a position were taken.
  static bool has_taken(const Json& position);

 private:
  struct Held {
    pipeline::Item batch;
    size_t bucket;
    uint64_t number;  // in the epoch, counted from the restored position
  };

  bool is_full() const { return ended_ || held_.size() >= most_; }
  void read_one();

  pipeline::Pipeline& pipeline_;
  const LengthBuckets buckets_;
  const size_t most_;
  std::deque<Held> held_;     // in pipeline order
  bool ended_ = false;        // whether the pipeline's epoch has ended
  uint64_t read_ = 0;         // batches since the restored position
  std::set<uint64_t> taken_;  // numbers of batches that the restored run took, not read here yet
  // The pipeline's position before the latest read; none before the first.
  std::shared_ptr<const Json> before_;
};

}  // namespace etr::train

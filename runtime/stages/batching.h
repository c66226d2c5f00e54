// What stages that make batches have in common.
#pragma once

#include <vector>

#include "pipeline/stage.h"

namespace etr::stages {

// Gathers items, and emits them as one when there are `size`. Has the options "size" and
// "drop_remainder"; a stage derives and says how fields are joined.
class Batching : public pipeline::SerialStage {
 public:
  explicit Batching(const Options& options);

  void start_epoch(uint64_t epoch) final;
  void process(pipeline::Item&& item, pipeline::Emitter& out) final;
  void finish_pass(pipeline::Emitter& out) final;
  bool makes_batches() const final { return true; }
  double holds_bytes(double item_bytes) const final {
    return 2 * item_bytes * static_cast<double>(size_);  // its samples, and what it makes of them
  }

 protected:
  // Throws Error where `item` cannot stand in a batch beside `first`: the sample at fault is the one
  // that differs from the batch's first.
  virtual void check_fits(const pipeline::Item& first, const pipeline::Item& item) const = 0;
  // Sets field `name`, and what goes with it, of a batch of `items`, which all have it.
  virtual void join(const std::string& name, const std::vector<pipeline::Item>& items,
                    pipeline::Item& batch) const = 0;

 private:
  void emit_batch(pipeline::Emitter& out);
  void count(pipeline::BatchInfo& info);
  void join_views(pipeline::Item& batch) const;

  const size_t size_;
  const bool drop_remainder_;
  std::vector<pipeline::Item> items_;
  std::vector<uint64_t> ordinals_;  // in count()
};

}  // namespace etr::stages

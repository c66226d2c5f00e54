// The base of stages that make batches.
#pragma once

#include <optional>
#include <vector>

#include "core/error.h"
#include "pipeline/stage.h"

namespace etr::stages {

// Collects items and emits them as one when there are `size`. Has the options "size" and
// "drop_remainder". A derived stage defines how fields are joined.
class Batching : public pipeline::SerialStage {
 public:
  explicit Batching(const Options& options);

  void start_epoch(uint64_t epoch) final;
  void process(pipeline::Item&& item, pipeline::Emitter& out) final;
  void finish_pass(pipeline::Emitter& out) final;
  pipeline::SerialTraits traits() const override { return {.makes_batches = true}; }
  double holds_bytes(double item_bytes) const final {
    return 2 * item_bytes * static_cast<double>(size_);  // the samples and the batch made from them
  }

 protected:
  // Throws Error if `item` lacks a field of `first`, the batch's first sample, or has another one
  // under its name that cannot be joined with it. The error is attributed to `item`.
  virtual void check_fits(const pipeline::Item& first, const pipeline::Item& item) const = 0;
  // Sets the batch's field `name`, and related fields, from `items`, which all have it.
  virtual void join(const std::string& name, const std::vector<pipeline::Item>& items,
                    pipeline::Item& batch) const = 0;

 private:
  std::optional<Error> misfit(const pipeline::Item& first, const pipeline::Item& item) const;
  void settle(const pipeline::Item* next, pipeline::Emitter& out);
  void emit_batch(pipeline::Emitter& out);
  void count(pipeline::BatchInfo& info);
  void join_views(pipeline::Item& batch) const;

  const size_t size_;
  const bool drop_remainder_;
  uint32_t made_ = 0;  // batches in this epoch
  std::vector<pipeline::Item> items_;
  std::optional<pipeline::Item> rival_;  // does not fit the only item held; one of them is bad
  std::vector<uint64_t> ordinals_;       // scratch space of count()
};

}  // namespace etr::stages

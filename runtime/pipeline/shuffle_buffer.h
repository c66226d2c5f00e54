// A bounded buffer from which items leave in random order.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "pipeline/stage.h"

namespace etr::pipeline {

class ShuffleBuffer {
 public:
  // `owner` names the stage in errors. A capacity of 1 keeps the order. Once `initial` items are
  // held, one item leaves for every two that arrive, until the buffer is full. `compacts`: held
  // items are copied out of larger memory that their fields view, such as a decompressed block.
  ShuffleBuffer(size_t capacity, size_t initial, int64_t limit_bytes, std::string owner,
                bool compacts)
      : capacity_(capacity),
        initial_(std::min(initial, capacity)),
        limit_bytes_(limit_bytes),
        owner_(std::move(owner)),
        compacts_(compacts) {}

  size_t capacity() const { return capacity_; }

  // For each pass anew: a `take` downstream ends a pass, and how many items arrive after that
  // depends on timing.
  void reseed(const StageContext& context, uint64_t epoch, uint64_t pass) {
    rng_ = Rng(context.seed, epoch, uint64_t{1} << 63 | pass, context.position);
    second_ = false;
  }

  // Adds `item`; once enough items are held, emits a random one. Throws Error(out_of_memory) if the
  // held items exceed the byte limit. Ghosts have no bytes, so the limit must not influence what is
  // emitted when restoring.
  void add(Item&& item, Emitter& out);

  void drain(Emitter& out);  // emits everything, in random order

  size_t size() const { return items_.size(); }

 private:
  void emit_one(Emitter& out);

  const size_t capacity_, initial_;
  const int64_t limit_bytes_;
  const std::string owner_;
  const bool compacts_;
  struct Held {
    Item item;
    int64_t bytes;  // stored, because asking a tensor touched long ago is a cache miss
  };
  std::vector<Held> items_;
  int64_t bytes_ = 0;
  Rng rng_{0};
  bool second_ = false;  // parity of arrivals while the buffer grows
};

}  // namespace etr::pipeline

// A bounded buffer from which items leave in random order.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "pipeline/stage.h"

namespace etr::pipeline {

class ShuffleBuffer {
 public:
  // `owner` names the stage in errors. A capacity of 1 keeps the order. With `initial` items the first one leaves, and one for
  // every two that come, until the buffer is full.
  // `compacts`: items are held without what their fields are parts of, a decompressed block say.
  ShuffleBuffer(size_t capacity, size_t initial, int64_t limit_bytes, std::string owner,
                bool compacts)
      : capacity_(capacity),
        initial_(std::min(initial, capacity)),
        limit_bytes_(limit_bytes),
        owner_(std::move(owner)),
        compacts_(compacts) {}

  size_t capacity() const { return capacity_; }

  void reseed(const StageContext& context, uint64_t epoch) {
    rng_ = Rng(context.seed, epoch, uint64_t{1} << 63, context.position);
    second_ = false;
  }

  // Holds `item`; when the buffer holds enough, emits a random one. Throws Error(out_of_memory) where
  // the held items exceed the byte limit. Ghosts weigh nothing, so the limit cannot depend on a
  // restore.
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
    int64_t bytes;  // kept beside it: asking a tensor that was put away long ago is a cache miss
  };
  std::vector<Held> items_;
  int64_t bytes_ = 0;
  Rng rng_{0};
  bool second_ = false;  // of two items that come while the buffer grows
};

}  // namespace etr::pipeline

#include "pipeline/shuffle_buffer.h"

#include "core/error.h"
#include "core/text.h"

namespace etr::pipeline {

void ShuffleBuffer::add(Item&& item, Emitter& out) {
  const auto bytes = static_cast<int64_t>(item.size_bytes());
  if (bytes_ + bytes > limit_bytes_)
    fail(Code::out_of_memory, "the ", owner_, " buffer holds ", counted(items_.size(), "sample"),
         " of ", counted(bytes_, "byte"), " and may not exceed ", limit_bytes_,
         "; lower 'buffer' or raise 'buffer_bytes'");
  bytes_ += bytes;
  if (compacts_) item.compact();
  items_.push_back({std::move(item), bytes});
  const bool growing = items_.size() < capacity_;
  if (growing && items_.size() >= initial_) second_ = !second_;
  if (!growing || (items_.size() >= initial_ && second_)) emit_one(out);
}

void ShuffleBuffer::emit_one(Emitter& out) {
  const uint32_t pick = rng_.below(static_cast<uint32_t>(items_.size()));
  Item item = std::move(items_[pick].item);
  bytes_ -= items_[pick].bytes;
  if (pick + 1 != items_.size()) items_[pick] = std::move(items_.back());
  items_.pop_back();
  out.emit(std::move(item));
}

void ShuffleBuffer::drain(Emitter& out) {
  while (!items_.empty()) emit_one(out);
}

}  // namespace etr::pipeline

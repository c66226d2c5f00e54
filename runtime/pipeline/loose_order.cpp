#include "pipeline/loose_order.h"

#include <utility>

namespace etr::pipeline {

bool LooseOrder::may_go(const Chunk& chunk) const {
  return chunk.end == End::none && chunk.ends_before == ends_ &&
         chunk.sequence - next_ <= window_ && may_(chunk.epoch);
}

void LooseOrder::give_next(std::vector<Chunk>& out) {
  while (!waiting_.empty() && waiting_.begin()->first == next_) {
    out.push_back(std::move(waiting_.extract(waiting_.begin()).mapped()));
    ends_ += out.back().end != End::none;
    ++next_;
    while (gone_.erase(next_)) ++next_;
  }
}

std::vector<Chunk> LooseOrder::add(Chunk&& finished) {
  std::vector<Chunk> out;
  const uint64_t sequence = finished.sequence;
  waiting_.emplace(sequence, std::move(finished));
  give_next(out);
  for (auto it = waiting_.begin(); it != waiting_.end() && !it->second.failure;) {
    if (!may_go(it->second)) break;
    gone_.insert(it->first);
    for (Item& item : it->second.items) item.overtakes = true;
    out.push_back(std::move(it->second));
    it = waiting_.erase(it);
  }
  return out;
}

}  // namespace etr::pipeline

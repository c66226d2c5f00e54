#include "echo/echo_policy.h"

#include <cmath>

#include "core/error.h"

namespace etr::echo {

uint32_t CopyCounter::next() {
  owed_ += factor_;
  // A hair above .5 either way must not depend on how the sum was rounded.
  const double copies = std::floor(owed_ + 1e-9);
  owed_ -= copies;
  return static_cast<uint32_t>(copies);
}

void ReuseBuffer::add(const pipeline::Item& fresh) {
  if (size_ == capacity_)  // make room: the most used go first
    for (auto list = by_use_.rbegin(); list != by_use_.rend(); ++list)
      if (!list->empty()) {
        forget(list->front().item);
        list->pop_front();
        break;
      }
  const uint32_t budget = cap_.next();
  if (budget <= 1) return;
  const auto bytes = static_cast<int64_t>(fresh.size_bytes());
  if (bytes_ + bytes > limit_bytes_)
    fail(Code::out_of_memory, "the echo buffer holds ", size_, " samples of ", bytes_,
         " bytes and may not exceed ", limit_bytes_, "; lower 'buffer' or raise 'buffer_bytes'");
  if (by_use_.size() < 2) by_use_.resize(2);
  by_use_[1].push_back({fresh, budget});
  ++size_;
  bytes_ += bytes;
}

bool ReuseBuffer::draw(pipeline::Item& echo) {
  for (uint32_t used = 1; used < by_use_.size(); ++used) {
    if (by_use_[used].empty()) continue;
    Entry entry = std::move(by_use_[used].front());
    by_use_[used].pop_front();
    echo = entry.item;
    echo.replica = used;
    if (used + 1 >= entry.budget) {
      forget(entry.item);
      return true;
    }
    if (by_use_.size() < used + 2) by_use_.resize(used + 2);
    by_use_[used + 1].push_back(std::move(entry));
    return true;
  }
  return false;
}

void ReuseBuffer::clear() {
  by_use_.clear();
  size_ = 0;
  bytes_ = 0;
  cap_.reset();
}

}  // namespace etr::echo

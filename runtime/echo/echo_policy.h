// How often each item is repeated. Pure policy: no queues, no threads, no time.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "core/json_fwd.h"
#include "pipeline/item.h"

namespace etr::echo {

// Copies of successive items for a real factor e >= 1, by error diffusion: floor(e) or ceil(e)
// each, and after n items the sum is within 1 of n * e, for every n.
class CopyCounter {
 public:
  explicit CopyCounter(double factor) : factor_(factor) {}
  uint32_t next();
  void reset() { owed_ = 0; }

 private:
  const double factor_;
  double owed_ = 0;
};

// The samples that may be echoed on demand: the `capacity` newest ones, each with a budget of
// copies. Draws the least used, of these the oldest, so that use stays balanced.
class ReuseBuffer {
 public:
  ReuseBuffer(size_t capacity, int64_t limit_bytes, double cap)
      : capacity_(capacity), limit_bytes_(limit_bytes), cap_(cap) {}

  // The fresh copy counts as the first use. Throws Error(out_of_memory) beyond the byte limit: a
  // limit that dropped samples instead would make echoes depend on their size.
  void add(const pipeline::Item& fresh);
  // The next echo; false where every sample has used up its budget.
  bool draw(pipeline::Item& echo);
  void clear();
  size_t size() const { return size_; }

 private:
  struct Entry {
    pipeline::Item item;
    uint32_t budget;  // copies in all, the fresh one included
  };

  void forget(const pipeline::Item& item) {
    --size_;
    bytes_ -= static_cast<int64_t>(item.size_bytes());
  }

  const size_t capacity_;
  const int64_t limit_bytes_;
  CopyCounter cap_;
  // by_use_[u]: entries used u times, oldest first. Entries move from one list to the next.
  std::vector<std::deque<Entry>> by_use_;
  size_t size_ = 0;
  int64_t bytes_ = 0;
};

// What an on-demand node did, so that it can be repeated: how many echoes followed each fresh item.
class DecisionLog {
 public:
  void add_fresh() { echoes_.push_back(0); }
  void add_echo() { ++echoes_.back(); }
  bool started() const { return !echoes_.empty(); }
  const std::vector<uint32_t>& echoes() const { return echoes_; }

 private:
  std::vector<uint32_t> echoes_;
};

}  // namespace etr::echo

// The order in which chunks leave maps where finished ones need not wait for slower ones in front of them: see the stage
// `overtake`. Pure policy: no queues, no threads, no clocks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "pipeline/chunk.h"

namespace etr::pipeline {

class LooseOrder {
 public:
  // A chunk goes on before others that are not finished where it lies at most `window` places behind the first of these, where
  // `may` says so of its epoch, and never past the end of a pass or a failure.
  LooseOrder(uint64_t window, std::function<bool(uint64_t epoch)> may)
      : window_(window), may_(std::move(may)) {}

  // `finished` has left the maps: those that go on now, in this order. Items of those that go before others say so
  // (Item::overtakes).
  std::vector<Chunk> add(Chunk&& finished);

 private:
  bool may_go(const Chunk& chunk) const;
  void give_next(std::vector<Chunk>& out);

  const uint64_t window_;
  const std::function<bool(uint64_t epoch)> may_;
  uint64_t next_ = 0;                  // the first that has not gone on
  uint64_t ends_ = 0;                  // of passes, that have gone on
  std::map<uint64_t, Chunk> waiting_;  // finished ones, by sequence number
  std::set<uint64_t> gone_;            // beyond next_
};

}  // namespace etr::pipeline

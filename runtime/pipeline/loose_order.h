// Decides in which order chunks leave the maps if finished ones need not wait for slower ones
// before them: see the stage `overtake`. Pure policy, without queues, threads or clocks.
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
  // A chunk may overtake unfinished ones if it is at most `window` places behind the first of them
  // and `may` allows it for its epoch. It never overtakes the end of a pass or a failure.
  LooseOrder(uint64_t window, std::function<bool(uint64_t epoch)> may)
      : window_(window), may_(std::move(may)) {}

  // Adds a chunk that has been through the maps. Returns the chunks to release now, in order. Items
  // of a chunk that overtakes others are marked (Item::overtakes).
  std::vector<Chunk> add(Chunk&& finished);

 private:
  bool may_go(const Chunk& chunk) const;
  void give_next(std::vector<Chunk>& out);

  const uint64_t window_;
  const std::function<bool(uint64_t epoch)> may_;
  uint64_t next_ = 0;                  // the first chunk not released
  uint64_t ends_ = 0;                  // number of released pass ends
  std::map<uint64_t, Chunk> waiting_;  // finished chunks, by sequence number
  std::set<uint64_t> gone_;            // released chunks beyond next_
};

}  // namespace etr::pipeline

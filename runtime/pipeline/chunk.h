// A message of a pipeline's flow graph.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/error.h"
#include "pipeline/item.h"

namespace etr::pipeline {

enum class End : uint8_t { none, pass, epoch };

// Small items share a message, because each message costs about 0.3 us. Copies share everything,
// since the graph copies its messages.
struct Chunk {
  uint64_t sequence = 0;  // within the segment
  uint64_t epoch = 0;
  uint64_t ends_before = 0;  // number of pass ends that the segment sent before
  std::vector<Item> items;
  End end = End::none;                           // what ends after these items; none with a failure
  std::shared_ptr<const Error> failure;          // ends the run after these items
  int64_t sent_bytes = 0;                        // size of the items when they entered the maps
  int64_t counted_items = 0, counted_bytes = 0;  // as accounted in the sender's output queue
};

}  // namespace etr::pipeline

// Groups gradients into buckets for exchange, and determines when each bucket is final.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "gpu/kernel.h"
#include "graph/parameters.h"

namespace etr::parallel {

// Gradients that are exchanged together.
struct Bucket {
  struct Range {
    uint32_t begin, count;  // scalars of ParameterStore::gradients(), ascending
    bool operator==(const Range&) const = default;
  };
  size_t final_after = 0;  // the number of commands after which the gradients no longer change
  std::vector<Range> ranges;

  uint64_t count() const;  // scalars
};

// Returns the slices of the store's gradients that form the bucket.
std::vector<gpu::Buffer> parts_of(const Bucket& bucket, const graph::ParameterStore& store);

// Returns the number of commands up to and including the last one that writes the buffer; 0 if none
// does.
size_t final_after(const gpu::CommandList& commands, const gpu::Buffer& buffer);

// Puts all gradients into buckets of at least `bytes` (the last may be smaller), in the order in
// which `commands` make them final, so that the first ones are sent while the backward pass
// continues. `gradient_of` returns where a gradient lies if not in the store; it may return a
// buffer that is empty or has no place yet.
using GradientOf = std::function<gpu::Buffer(const graph::ParameterStore::Parameter&)>;
std::vector<Bucket> make_buckets(const gpu::CommandList& commands,
                                 const graph::ParameterStore& store, uint64_t bytes,
                                 const GradientOf& gradient_of = {});

// Appends `commands` from number `begin` on to `out`. Calls `emit`, which may append more, as soon
// as a bucket is final.
void weave(gpu::CommandList& out, const gpu::CommandList& commands, size_t begin,
           const std::vector<Bucket>& buckets, const std::function<void(const Bucket&)>& emit);

}  // namespace etr::parallel

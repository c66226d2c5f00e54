// When the gradients of a plan are final, and in which portions they are exchanged.
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
  size_t final_after = 0;  // so many of the commands: none of the others writes them
  std::vector<Range> ranges;

  uint64_t count() const;  // scalars
};

// The bucket's gradients, where they lie.
std::vector<gpu::Buffer> parts_of(const Bucket& bucket, const graph::ParameterStore& store);

// So many of the commands have run when the last of them that writes the buffer has; 0: none writes it.
size_t final_after(const gpu::CommandList& commands, const gpu::Buffer& buffer);

// Puts all gradients into buckets of at least `bytes`, but for the last one, in the order in which `commands` make them final: the
// backward pass goes on while the first ones are on their way. `gradient_of`: where they are not the store's; a buffer that is empty, or
// has no place yet, will do.
using GradientOf = std::function<gpu::Buffer(const graph::ParameterStore::Parameter&)>;
std::vector<Bucket> make_buckets(const gpu::CommandList& commands,
                                 const graph::ParameterStore& store, uint64_t bytes,
                                 const GradientOf& gradient_of = {});

// Appends `commands` from number `begin` on to `out`, and calls `emit`, which appends what it takes, where a bucket is final.
void weave(gpu::CommandList& out, const gpu::CommandList& commands, size_t begin,
           const std::vector<Bucket>& buckets, const std::function<void(const Bucket&)>& emit);

}  // namespace etr::parallel

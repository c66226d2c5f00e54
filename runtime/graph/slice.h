// The slice of a parameter that one of several devices holds.
#pragma once

#include <map>
#include <string>

#include "graph/graph.h"

namespace etr::graph {

// The axis consists of `parts` ranges of equal length; a product with q, k and v side by side in
// its columns has three. Every device holds an equal share of each range, in the order of ranks.
struct Slice {
  Shape whole;
  size_t axis = 0;
  int64_t parts = 1;
  int rank = 0, size = 1;

  Shape shape() const;       // shape of the slice
  int64_t length() const;    // length of a part of the slice along the axis
  Slice of(int rank) const;  // slice of the same parameter on another device

  // Copy elements between a whole parameter and the slice.
  void take(std::span<const float> from_whole, std::span<float> to_slice) const;
  void put(std::span<const float> from_slice, std::span<float> to_whole) const;
};

using Slices = std::map<std::string, Slice>;  // by the parameter's name

}  // namespace etr::graph

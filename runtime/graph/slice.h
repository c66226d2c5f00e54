// The part of a parameter that one of several devices has.
#pragma once

#include <map>
#include <string>

#include "graph/graph.h"

namespace etr::graph {

// An axis is made of `parts` ranges of equal length (a product whose columns are those of q, k and v has three), of each of which
// every device has as many elements, in their order.
struct Slice {
  Shape whole;
  size_t axis = 0;
  int64_t parts = 1;
  int rank = 0, size = 1;

  Shape shape() const;       // of the slice
  int64_t length() const;    // along the axis, of a part
  Slice of(int rank) const;  // the same parameter's slice on another device

  // Between a whole parameter's elements and those of the slice.
  void take(std::span<const float> from_whole, std::span<float> to_slice) const;
  void put(std::span<const float> from_slice, std::span<float> to_whole) const;
};

using Slices = std::map<std::string, Slice>;  // by the parameter's name

}  // namespace etr::graph

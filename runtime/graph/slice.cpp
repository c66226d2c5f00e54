#include "graph/slice.h"

#include <algorithm>

namespace etr::graph {
namespace {

// Calls `f(at, of_slice, count)` for each run of elements that are contiguous in both.
template <typename F>
void for_each_run(const Slice& slice, F&& f) {
  const auto size = [](int64_t n) { return static_cast<size_t>(n); };
  size_t outer = 1, inner = 1;
  for (size_t i = 0; i < slice.whole.size(); ++i)
    if (i != slice.axis) (i < slice.axis ? outer : inner) *= size(slice.whole[i]);
  const size_t run = size(slice.length()) * inner, ranks = size(slice.size);
  for (size_t part = 0; part < outer * size(slice.parts); ++part)
    f((part * ranks + size(slice.rank)) * run, part * run, run);
}

}  // namespace

int64_t Slice::length() const { return whole[axis] / parts / size; }

Shape Slice::shape() const {
  Shape out = whole;
  out[axis] = length() * parts;
  return out;
}

Slice Slice::of(int other) const {
  Slice out = *this;
  out.rank = other;
  return out;
}

void Slice::take(std::span<const float> from_whole, std::span<float> to_slice) const {
  for_each_run(*this, [&](size_t at, size_t of_slice, size_t count) {
    std::copy_n(from_whole.begin() + static_cast<ptrdiff_t>(at), count,
                to_slice.begin() + static_cast<ptrdiff_t>(of_slice));
  });
}

void Slice::put(std::span<const float> from_slice, std::span<float> to_whole) const {
  for_each_run(*this, [&](size_t at, size_t of_slice, size_t count) {
    std::copy_n(from_slice.begin() + static_cast<ptrdiff_t>(of_slice), count,
                to_whole.begin() + static_cast<ptrdiff_t>(at));
  });
}

}  // namespace etr::graph

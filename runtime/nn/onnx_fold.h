// Computes the values of ONNX nodes whose inputs are known, as the arithmetic of shapes is.
#pragma once

#include <optional>
#include <vector>

#include "nn/onnx_reader.h"

namespace etr::nn {

// Bounds the elements that folding and layers make of the file's constants, so that a small file
// cannot ask for much memory.
class FoldBudget {
 public:
  explicit FoldBudget(size_t elements) : left_(elements) {}
  void take(size_t elements, const OnnxNode& node);  // Error(unsupported) if they are too many
  void advise(const std::string& what) { advice_ = what; }  // the end of that error's message

 private:
  size_t left_;
  std::string advice_;
};

// Returns the outputs of a node, or none if folding does not know its operator. Optional inputs
// that are missing are null. Where a value is only expanded along an axis of length `batch`, it
// stays unexpanded along this axis, so that it serves any number of samples. Error(corrupt_data)
// names a node whose inputs do not fit.
std::optional<std::vector<OnnxConstant>> fold(const OnnxNode& node,
                                              const std::vector<OnnxConstant>& inputs,
                                              int64_t batch, FoldBudget& budget);

// Returns the axes with negative ones counted from the end, sorted. Error(corrupt_data).
std::vector<size_t> onnx_axes(const OnnxNode& node, std::vector<int64_t> axes, size_t rank);

// The same for axes of length 1 that come to `rank` others. Error(unsupported) if they are too
// many.
std::vector<size_t> onnx_unsqueezed(const OnnxNode& node, const std::vector<int64_t>& axes,
                                    size_t rank);

// Returns the shape that Reshape gives to `count` elements of shape `dims`.
std::vector<int64_t> onnx_reshape(const OnnxNode& node, const std::vector<int64_t>& dims,
                                  const std::vector<int64_t>& wanted);

// The part of one axis that Slice takes.
struct OnnxRange {
  size_t axis;
  int64_t begin, length, step;
};
// `dims`: the shape of what is sliced; inputs 1 to 4 are known.
std::vector<OnnxRange> onnx_ranges(const OnnxNode& node, const std::vector<int64_t>& dims,
                                   const std::vector<OnnxConstant>& inputs);

}  // namespace etr::nn

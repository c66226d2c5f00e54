// Permutes the axes of a tensor.
#include "ops/permute.h"

#include <algorithm>

#include "core/error.h"
#include "ops/gemm.h"
#include "ops/onnx_node.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}};
constexpr OptionSpec kOptions[] = {
    {"axes", OptionType::integers, nullptr,
     "for each axis of the result, the axis of x that it takes; the batch axis stays first", 0, 4},
};

std::vector<size_t> axes_of(const Options& options, const Shape& x) {
  std::vector<size_t> axes, sorted;
  for (const int64_t axis : options.integers("axes")) axes.push_back(static_cast<size_t>(axis));
  sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  bool all = x.size() <= 5 && axes.size() == x.size() && !axes.empty() && axes[0] == 0;
  for (size_t i = 0; all && i < sorted.size(); ++i) all = sorted[i] == i;
  if (!all)
    fail(Code::invalid_argument, "permute: 'axes' must name each of the ", x.size(), " axes of x ",
         shape_text(x), " once (at most 5), the batch first");
  return axes;
}

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  Shape out;
  for (const size_t axis : axes_of(options, in[0])) out.push_back(in[0][axis]);
  return {out, {}};
}

struct Push {
  uint32_t rows, d1, d2, d3, d4, slices;
  uint32_t strides[5];
};

void forward(const OpCall& call, Emitter& emit) {
  emit_permute(emit, call.inputs[0], axes_of(call.options, call.inputs[0].shape), call.output);
}

void backward(const OpCall& call, Emitter& emit) {
  const auto axes = axes_of(call.options, call.inputs[0].shape);
  std::vector<size_t> inverse(axes.size());
  for (size_t i = 0; i < axes.size(); ++i) inverse[axes[i]] = i;
  emit_permute(emit, call.output_grad, inverse, call.input_grads[0]);
}

std::string to_onnx(OnnxNode& node) {
  return node.transpose(node.in(0), node.options().integers("axes"));
}

}  // namespace

void emit_permute(Emitter& emit, const DeviceTensor& x, const std::vector<size_t>& axes,
                  const DeviceTensor& y) {
  std::vector<uint32_t> strides(x.shape.size(), 1);
  for (size_t i = x.shape.size() - 1; i-- > 0;)
    strides[i] = strides[i + 1] * static_cast<uint32_t>(x.shape[i + 1]);
  uint32_t sizes[5] = {1, 1, 1, 1, 1};
  Push push{};
  const size_t missing = 5 - axes.size();
  for (size_t i = 0; i < axes.size(); ++i) {
    sizes[missing + i] = static_cast<uint32_t>(x.shape[axes[i]]);
    push.strides[missing + i] = strides[axes[i]];
  }
  push.d1 = sizes[1], push.d2 = sizes[2], push.d3 = sizes[3], push.d4 = sizes[4];
  push.rows = x.count() / push.d4;
  push.slices = row_slices(*emit.device(), push.rows, push.d4);
  emit.for_channels("permute", {reads(x), writes(y)}, push, push.d4, push.slices);
}

extern const OpSpec permute_op;
const OpSpec permute_op{
    .name = "permute",
    .doc = "axes in another order",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .axes = AxesRule::permuted,
};

}  // namespace etr::ops

// Sum, mean, maximum or minimum over axes.
#include <algorithm>
#include <functional>
#include <numeric>

#include "core/error.h"
#include "ops/gemm.h"
#include "ops/onnx_node.h"
#include "ops/reduction.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}};
constexpr OptionSpec kOptions[] = {
    {"function", OptionType::string, "\"mean\"", "how elements are combined", 0, 0, "",
     "sum|mean|max|min"},
    {"axes", OptionType::integers, nullptr, "axes to reduce; negative values count from the end",
     -8, 7},
    {"keep_dims", OptionType::boolean, "false", "keep the reduced axes with length 1"},
};

std::vector<size_t> axes_of(const Options& options, const Shape& x) {
  const auto rank = static_cast<int64_t>(x.size());
  std::vector<size_t> axes;
  for (int64_t axis : options.integers("axes")) {
    if (axis < -rank || axis >= rank)
      fail(Code::invalid_argument, "reduce: there is no axis ", axis, " in x ", shape_text(x));
    axes.push_back(static_cast<size_t>(axis < 0 ? axis + rank : axis));
  }
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  // One pass takes only neighbouring axes. The gradient of several passes is not implemented.
  for (size_t i = 1; i < axes.size(); ++i)
    if (axes[i] != axes[0] + i)
      fail(Code::invalid_argument,
           "reduce: axes must lie side by side; use two reduce layers for x ", shape_text(x));
  if (axes.empty()) fail(Code::invalid_argument, "reduce: 'axes' is empty");
  return axes;
}

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  const auto axes = axes_of(options, in[0]);
  Shape out;
  for (size_t i = 0; i < in[0].size(); ++i) {
    const bool reduced = std::binary_search(axes.begin(), axes.end(), i);
    if (!reduced) out.push_back(in[0][i]);
    if (reduced && options.boolean("keep_dims")) out.push_back(1);
  }
  return {out, {}};
}

// Same order as the shader's constants.
enum class Reduction : uint32_t { sum, maximum, minimum };

struct Push {
  uint32_t outer, length, inner;
  float scale;
};

uint32_t product(const Shape& shape, size_t from, size_t to) {
  return static_cast<uint32_t>(std::accumulate(shape.begin() + static_cast<ptrdiff_t>(from),
                                               shape.begin() + static_cast<ptrdiff_t>(to),
                                               int64_t{1}, std::multiplies<>()));
}

// Returns the tensor's shape as [outer, length, inner] around the axes `first` to `last`.
Push around(const Shape& shape, size_t first, size_t last, float scale) {
  return {product(shape, 0, first), product(shape, first, last + 1),
          product(shape, last + 1, shape.size()), scale};
}

void emit_pass(Emitter& emit, Reduction kind, const DeviceTensor& x, const DeviceTensor& out,
               const Push& push) {
  const auto constant = static_cast<uint32_t>(kind);
  if (push.inner == 1)
    emit.for_rows("reduce_rows", {reads(x), writes(out)}, push, push.outer, push.length, {constant},
                  1);
  else if (push.outer == 1 && kind == Reduction::sum && push.scale == 1)
    emit_column_sum(emit, x, out, push.length, push.inner);  // splits a long column
  else {
    emit.require_iterations((2 + uint64_t{push.length}) * gpu::div_up(push.outer, kMostGroups));
    emit.for_channels("reduce", {reads(x), writes(out)}, push, push.inner,
                      std::min(push.outer, kMostGroups), 1, {constant});
  }
}

struct Reduce {
  Reduction kind;
  Push push;
};

Reduce reduce_of(const OpCall& call) {
  const Shape& x = call.inputs[0].shape;
  const auto axes = axes_of(call.options, x);
  const std::string function = call.options.string("function");
  const Push push = around(x, axes.front(), axes.back(), 1);
  if (function == "max") return {Reduction::maximum, push};
  if (function == "min") return {Reduction::minimum, push};
  const float scale = function == "mean" ? 1 / static_cast<float>(push.length) : 1;
  return {Reduction::sum, {push.outer, push.length, push.inner, scale}};
}

void forward(const OpCall& call, Emitter& emit) {
  const Reduce reduce = reduce_of(call);
  emit_pass(emit, reduce.kind, call.inputs[0], call.output, reduce.push);
}

void backward(const OpCall& call, Emitter& emit) {
  const Reduce reduce = reduce_of(call);
  const std::vector<gpu::Binding> bindings{reads(call.inputs[0]), reads(call.output),
                                           reads(call.output_grad), writes(call.input_grads[0])};
  const auto constant = static_cast<uint32_t>(reduce.kind);
  const Push& push = reduce.push;
  if (push.inner == 1)
    emit.for_rows("reduce_rows_grad", bindings, push, push.outer, push.length, {constant});
  else {
    emit.require_iterations((3 + uint64_t{2} * push.length) * gpu::div_up(push.outer, kMostGroups));
    emit.for_channels("reduce_grad", bindings, push, push.inner, std::min(push.outer, kMostGroups),
                      1, {constant});
  }
}

// Emits out = the sum of x over `axes` (ascending). `out` has as many elements as remain, in any
// shape.
void emit_sum(Emitter& emit, const DeviceTensor& x, std::vector<size_t> axes,
              const DeviceTensor& out) {
  // Start with the last run of neighbouring axes: those before it keep their numbers.
  DeviceTensor from = x;
  while (!axes.empty()) {
    const size_t last = axes.back();
    size_t first = last;
    axes.pop_back();
    while (!axes.empty() && axes.back() + 1 == first) first = axes.back(), axes.pop_back();
    Shape rest;
    for (size_t i = 0; i < from.shape.size(); ++i)
      if (i < first || i > last) rest.push_back(from.shape[i]);
    const DeviceTensor to = axes.empty() ? out : emit.scratch(rest);
    emit_pass(emit, Reduction::sum, from, to, around(from.shape, first, last, 1));
    from = {to.buffer, rest};
  }
}

std::string to_onnx(OnnxNode& node) {
  const std::string f = node.options().string("function");
  const auto axes = node.options().integers("axes");
  const int64_t keep = node.options().boolean("keep_dims");
  if (f == "sum")
    return node.emit("ReduceSum", {node.in(0), node.integers(axes)},
                     OnnxAttributes().integer("keepdims", keep));
  const char* op = f == "mean" ? "ReduceMean" : f == "max" ? "ReduceMax" : "ReduceMin";
  return node.emit(op, {node.in(0)},
                   OnnxAttributes().integers("axes", axes).integer("keepdims", keep));
}

}  // namespace

void emit_sum_to(Emitter& emit, const DeviceTensor& x, const DeviceTensor& out) {
  const size_t missing = x.shape.size() - out.shape.size();
  std::vector<size_t> axes;
  for (size_t i = 0; i < x.shape.size(); ++i)
    if (i < missing || (out.shape[i - missing] == 1 && x.shape[i] != 1)) axes.push_back(i);
  if (axes.empty())
    emit.add(gpu::Copy{x.buffer, out.buffer});
  else
    emit_sum(emit, x, axes, out);
}

extern const OpSpec reduce_op;
const OpSpec reduce_op{
    .name = "reduce",
    .doc = "sum, mean, maximum or minimum over axes",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .axes = AxesRule::reduced,
};

}  // namespace etr::ops

// [N, ...] -> [N, product]: the same memory with another shape.
#include "core/error.h"
#include "ops/onnx_node.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}};

OpShapes shapes(const Options&, const std::vector<Shape>& in) {
  if (in[0].empty()) fail(Code::invalid_argument, "flatten: x has no batch axis");
  return {{in[0][0], in[0][0] ? element_count(in[0]) / in[0][0] : 0}, {}};
}

void no_dispatch(const OpCall&, Emitter&) {}

std::string to_onnx(OnnxNode& node) {
  return node.reshape(node.in(0), with_free_batch(node.shape()));
}

}  // namespace

extern const OpSpec flatten_op;
const OpSpec flatten_op{
    .name = "flatten",
    .doc = "joins all axes except the first",
    .inputs = kInputs,
    .shapes = shapes,
    .forward = no_dispatch,
    .backward = no_dispatch,
    .view = true,
    .to_onnx = to_onnx,
    .axes = AxesRule::reshaped,
};

}  // namespace etr::ops

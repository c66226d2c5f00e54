// Gathers rows of each sample: y[n, j, ...] = x[n, ids[n, j], ...].
#include "core/error.h"
#include "ops/onnx_node.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}, {"ids", InputRole::constant, false, DType::i32}};

OpShapes shapes(const Options&, const std::vector<Shape>& in) {
  if (in[0].size() < 2)
    fail(Code::invalid_argument, "gather: x must be [N, rows, ...], not ", shape_text(in[0]));
  require_rank("gather", "ids", in[1], 2, "[N, picks]");
  if (in[0][0] != in[1][0])
    fail(Code::invalid_argument, "gather: x ", shape_text(in[0]), " and ids ", shape_text(in[1]),
         " differ in their samples");
  Shape out = in[0];
  out[1] = in[1][1];
  return {out, {}};
}

struct Push {
  uint32_t samples, rows, picks, c;
};

Push push_of(const OpCall& call) {
  const Shape &x = call.inputs[0].shape, &ids = call.inputs[1].shape;
  const auto u = [](int64_t v) { return static_cast<uint32_t>(v); };
  return {u(x[0]), u(x[1]), u(ids[1]), u(element_count(x) / (x[0] * x[1]))};
}

void forward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  emit.for_channels("gather", {reads(call.inputs[0]), reads(call.inputs[1]), writes(call.output)},
                    push, push.c, std::min(push.samples * push.picks, kMostGroups));
}

void backward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  emit.require_iterations((2 + uint64_t{push.picks}) *
                          gpu::div_up(uint64_t{push.samples} * push.rows, kMostGroups));
  emit.for_channels("gather_grad",
                    {reads(call.output_grad), reads(call.inputs[1]), writes(call.input_grads[0])},
                    push, push.c, std::min(push.samples * push.rows, kMostGroups));
}

std::string to_onnx(OnnxNode& node) {
  const OnnxName ids = node.emit("Cast", {node.in(1)}, OnnxAttributes().integer("to", kOnnxInt64));
  return node.emit("GatherND", {node.in(0), node.emit("Unsqueeze", {ids, node.integers({-1})})},
                   OnnxAttributes().integer("batch_dims", 1));
}

}  // namespace

extern const OpSpec gather_op;
const OpSpec gather_op{
    .name = "gather",
    .doc = "rows of each sample by number",
    .inputs = kInputs,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .axes = AxesRule::parts,
};

}  // namespace etr::ops

// y[..., c] = x[..., c] + b[c].
#include "core/error.h"
#include "ops/gemm.h"
#include "ops/onnx_node.h"
#include "ops/pointwise.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}, {"b"}};

OpShapes shapes(const Options&, const std::vector<Shape>& in) {
  require_rank("bias", "b", in[1], 1, "[C]");
  if (in[0].empty() || in[0].back() != in[1][0])
    fail(Code::invalid_argument, "bias: b ", shape_text(in[1]), " does not fit the last axis of x ",
         shape_text(in[0]));
  return {in[0], {}};
}

void forward(const OpCall& call, Emitter& emit) {
  const uint32_t columns = call.inputs[1].count(), rows = call.output.count() / columns;
  const struct {
    uint32_t rows, columns, slices;
  } push{rows, columns, row_slices(*emit.device(), rows, columns)};
  emit.for_channels("bias", {reads(call.inputs[0]), reads(call.inputs[1]), writes(call.output)},
                    push, columns, push.slices);
  auto note =
      std::make_shared<Pointwise>(*pointwise("bias", call.output.count(), 2, "$r = $0 + $1;"));
  note->operands[1].along = Pointwise::Along::columns;
  note->columns = columns;
  emit.set_fusible(note);
}

void backward(const OpCall& call, Emitter& emit) {
  if (call.input_grads[0]) emit.add(gpu::Copy{call.output_grad.buffer, call.input_grads[0].buffer});
  const uint32_t columns = call.inputs[1].count();
  if (call.input_grads[1])
    emit_column_sum(emit, call.output_grad, call.input_grads[1], call.output.count() / columns,
                    columns);
}

std::string to_onnx(OnnxNode& node) { return node.emit("Add", {node.in(0), node.in(1)}); }

}  // namespace

extern const OpSpec bias_op;
const OpSpec bias_op{
    .name = "bias",
    .doc = "adds a vector along the last axis",
    .inputs = kInputs,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .axes = AxesRule::elements,
};

}  // namespace etr::ops

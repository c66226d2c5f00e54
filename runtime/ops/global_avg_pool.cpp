// Mean over all pixels: [N, H, W, C] -> [N, C].
#include "ops/onnx_node.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}};

struct Push {
  uint32_t pixels, c;
};

OpShapes shapes(const Options&, const std::vector<Shape>& in) {
  require_rank("global_avg_pool", "x", in[0], 4, "[N, H, W, C]");
  return {{in[0][0], in[0][3]}, {}};
}

Push push_of(const OpCall& call) {
  const Shape& x = call.inputs[0].shape;
  return {static_cast<uint32_t>(x[1] * x[2]), static_cast<uint32_t>(x[3])};
}

void emit_by_samples(Emitter& emit, const char* shader, const Push& push, const DeviceTensor& from,
                     const DeviceTensor& to) {
  const auto samples = static_cast<uint32_t>(from.shape[0]);
  emit.require_iterations(gpu::div_up(push.pixels, 8) + 7);
  for_sample_runs(samples, 1, [&](uint32_t first, uint32_t count) {
    emit.for_channels(shader,
                      {reads(samples_of(from, first, count)), writes(samples_of(to, first, count))},
                      push, push.c, count);
  });
}

void forward(const OpCall& call, Emitter& emit) {
  emit_by_samples(emit, "global_avg_pool", push_of(call), call.inputs[0], call.output);
}

void backward(const OpCall& call, Emitter& emit) {
  emit_by_samples(emit, "global_avg_pool_grad", push_of(call), call.output_grad,
                  call.input_grads[0]);
}

std::string to_onnx(OnnxNode& node) {
  return node.emit("ReduceMean", {node.in(0)},
                   OnnxAttributes().integers("axes", {1, 2}).integer("keepdims", 0));
}

}  // namespace

extern const OpSpec global_avg_pool_op;
const OpSpec global_avg_pool_op{
    .name = "global_avg_pool",
    .doc = "mean over all pixels",
    .inputs = kInputs,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .axes = AxesRule::reduced,
};

}  // namespace etr::ops

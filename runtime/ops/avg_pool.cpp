// Mean over windows of [N, H, W, C]: windows of a given size, or as many as the result has pixels
// (adaptive).
#include <algorithm>

#include "ops/onnx_node.h"
#include "ops/pooling.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}};
constexpr OptionSpec kOptions[] = {
    kWindow,
    kWindowStride,
    {"pad", OptionType::integer, "0", "padding on each side, which is not counted", 0, 32,
     "pixels"},
    {"output_size", OptionType::integer, "0",
     "height and width of the result of adaptive pooling; 0: not adaptive", 0, 4096, "pixels"},
};

struct Push {
  PoolGeometry at;
  uint32_t adaptive;
};

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  const Shape& x = in[0];
  const int64_t outputs = options.integer("output_size");
  if (outputs == 0) return {pooled_shape("avg_pool", options, x), {}};
  require_rank("avg_pool", "x", x, 4, "[N, H, W, C]");
  return {{x[0], outputs, outputs, x[3]}, {}};
}

Push push_of(const OpCall& call) {
  return {pool_geometry(call), call.options.integer("output_size") > 0};
}

// `rows` of each of the samples that are written.
void emit_by_samples(Emitter& emit, const char* shader, const Push& push, uint32_t rows,
                     const DeviceTensor& from, const DeviceTensor& to) {
  const auto samples = static_cast<uint32_t>(from.shape[0]);
  for_sample_runs(samples, 1, [&](uint32_t first, uint32_t count) {
    emit.for_channels(shader,
                      {reads(samples_of(from, first, count)), writes(samples_of(to, first, count))},
                      push, push.at.c, rows, count);
  });
}

// Return the most pixels under an output, and the most outputs that the shader goes through for a
// pixel, along an axis.
uint64_t under(const Push& push, uint32_t size, uint32_t outputs) {
  if (!push.adaptive) return push.at.window;
  return size % outputs == 0 ? size / outputs : std::min(size / outputs + 2, size);
}
uint64_t over(const Push& push, uint32_t size, uint32_t outputs) {
  if (!push.adaptive) return gpu::div_up(push.at.window, push.at.stride);
  return std::min(outputs / size + 2, outputs);
}

void forward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  const PoolGeometry& g = push.at;
  emit.require_iterations(g.ow * (2 + under(push, g.h, g.oh) * (2 + under(push, g.w, g.ow))));
  emit_by_samples(emit, "avg_pool", push, push.at.oh, call.inputs[0], call.output);
}

void backward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  const PoolGeometry& g = push.at;
  emit.require_iterations(g.w * (2 + over(push, g.h, g.oh) * (2 + over(push, g.w, g.ow))));
  emit_by_samples(emit, "avg_pool_grad", push, push.at.h, call.output_grad, call.input_grads[0]);
}

std::string to_onnx(OnnxNode& node) {
  return pool_to_onnx(node, "AveragePool", node.options().integer("output_size"));
}

}  // namespace

extern const OpSpec avg_pool_op;
const OpSpec avg_pool_op{
    .name = "avg_pool",
    .doc = "mean over windows",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .axes = AxesRule::image,
};

}  // namespace etr::ops

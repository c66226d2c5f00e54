// Maximum over windows of [N, H, W, C].
#include <algorithm>

#include "ops/onnx_node.h"
#include "ops/pooling.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}};
constexpr OptionSpec kOptions[] = {
    kWindow,
    kWindowStride,
    {"pad", OptionType::integer, "0", "padding on each side, which is never the maximum", 0, 32,
     "pixels"},
};

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  const Shape y = pooled_shape("max_pool", options, in[0]);
  return {y, {y}};  // the winning tap of each output
}

// Emits a kernel over rows [pixels, c], of which each of the batch's images has `rows`.
void emit_over_rows(Emitter& emit, const char* shader, std::vector<gpu::Binding> bindings,
                    const OpCall& call, uint32_t rows, uint32_t pixels) {
  const PoolGeometry g = pool_geometry(call);
  const auto batch = static_cast<uint32_t>(call.output.shape[0]);
  // Each invocation divides once to find its first image, which is expensive on CPU devices.
  const bool is_cpu = emit.device()->family() == gpu::KernelFamily::cpu;
  const uint32_t slices =
      emit.slices_within(is_cpu ? std::clamp(64 / rows, 1u, batch) : std::min(batch, kMostGroups),
                         batch, 2 + uint64_t{g.window} * (2 + g.window));
  const struct {
    uint32_t batch, slices, h, w, c, oh, ow;
  } push{batch, slices, g.h, g.w, g.c, g.oh, g.ow};
  // A GPU would take longer to start as many narrow workgroups than to run them.
  const uint32_t lanes =
      lanes_over(*emit.device(), pixels * g.c, is_cpu ? channel_lanes(*emit.device()) : 128);
  emit.dispatch(shader, std::move(bindings), push, {gpu::div_up(pixels * g.c, lanes), slices, rows},
                {lanes, g.window, g.stride, g.pad});
}

// Whether a GPU gathers the gradient for a block of pixels at once: what it keeps of the windows
// over them must fit into registers.
bool gathers_in_blocks(const gpu::Device& device, const PoolGeometry& g) {
  return device.family() != gpu::KernelFamily::cpu && g.window <= 3 * g.stride && g.stride <= 4;
}

// Blocks of stride x stride pixels, counted from the padding, along an axis.
uint32_t blocks(const PoolGeometry& g, uint32_t size) { return (size - 1 + g.pad) / g.stride + 1; }

void forward(const OpCall& call, Emitter& emit) {
  const PoolGeometry g = pool_geometry(call);
  emit_over_rows(emit, "max_pool",
                 {reads(call.inputs[0]), writes(call.output), writes(call.saved[0])}, call, g.oh,
                 g.ow);
}

void backward(const OpCall& call, Emitter& emit) {
  const PoolGeometry g = pool_geometry(call);
  const std::vector<gpu::Binding> bindings{reads(call.saved[0]), reads(call.output_grad),
                                           writes(call.input_grads[0])};
  const auto covers = [&](uint32_t size, uint32_t outputs) {
    return g.window == g.stride && outputs * g.stride >= size + g.pad;
  };
  const bool overlap = g.window > g.stride;
  const bool fill = !overlap && (!covers(g.h, g.oh) || !covers(g.w, g.ow));
  if (fill) emit.add(gpu::Fill{call.input_grads[0].buffer, 0});
  if (overlap && gathers_in_blocks(*emit.device(), g))
    emit_over_rows(emit, "max_pool_grad_blocks", bindings, call, blocks(g, g.h), blocks(g, g.w));
  else if (overlap)
    emit_over_rows(emit, "max_pool_grad", bindings, call, g.h, g.w);
  else
    emit_over_rows(emit, "max_pool_grad_apart", bindings, call, g.oh, g.ow);
  emit.set_fusible(std::make_shared<MaxPoolGrad>(call.inputs[0].buffer, call.output.buffer, fill));
}

std::string to_onnx(OnnxNode& node) { return pool_to_onnx(node, "MaxPool"); }

}  // namespace

extern const OpSpec max_pool_op;
const OpSpec max_pool_op{
    .name = "max_pool",
    .doc = "maximum over windows",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .axes = AxesRule::image,
};

}  // namespace etr::ops

// The transpose of a convolution: conv2d's gradient of x is this op's forward pass, and vice versa.
// x [N, H, W, C], w [KH, KW, filters, C], y [N, (H - 1) s - 2 pad + KH, ..., filters].
#include "core/error.h"
#include "ops/conv.h"
#include "ops/onnx_node.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}, {"w"}};
constexpr OptionSpec kOptions[] = {
    {"stride", OptionType::integer, "1", "factor by which the image grows", 1, 64, "pixels"},
    {"pad", OptionType::integer, "0", "pixels cut off on each side of the result", 0, 4096,
     "pixels"},
};

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  const Shape &x = in[0], &w = in[1];
  require_rank("conv2d_transpose", "x", x, 4, "[N, H, W, C]");
  require_rank("conv2d_transpose", "w", w, 4, "[KH, KW, filters, C]");
  if (x[3] != w[3])
    fail(Code::invalid_argument, "conv2d_transpose: x ", shape_text(x), " has ", x[3],
         " channels, w ", shape_text(w), " expects ", w[3]);
  const int64_t stride = options.integer("stride"), pad = options.integer("pad");
  const int64_t h = (x[1] - 1) * stride - 2 * pad + w[0];
  const int64_t width = (x[2] - 1) * stride - 2 * pad + w[1];
  if (h < 1 || width < 1)
    fail(Code::invalid_argument, "conv2d_transpose: a border of ", pad, " leaves nothing of x ",
         shape_text(x));
  return {{x[0], h, width, w[2]}, {}};
}

// Returns the geometry of the convolution from y to x.
ConvGeometry geometry(const OpCall& call) {
  const Shape &x = call.inputs[0].shape, &w = call.inputs[1].shape, &y = call.output.shape;
  const auto u = [](int64_t v) { return static_cast<uint32_t>(v); };
  const uint32_t pad = u(call.options.integer("pad"));
  return {u(y[0]), u(y[1]), u(y[2]), u(y[3]), u(x[1]),
          u(x[2]), u(x[3]), u(w[0]), u(w[1]), u(call.options.integer("stride")),
          pad,     pad,     1,       1};
}

void forward(const OpCall& call, Emitter& emit) {
  emit_conv_dx(emit, geometry(call), call.inputs[0], call.inputs[1], call.output);
}

void backward(const OpCall& call, Emitter& emit) {
  const ConvGeometry g = geometry(call);
  if (call.input_grads[0])
    emit_conv(emit, g, call.output_grad, call.inputs[1], {}, false, call.input_grads[0]);
  if (call.input_grads[1])
    emit_conv_dw(emit, g, call.output_grad, call.inputs[0], call.input_grads[1]);
}

std::string to_onnx(OnnxNode& node) { return conv_to_onnx(node, /*transposed=*/true); }

}  // namespace

extern const OpSpec conv2d_transpose_op;
const OpSpec conv2d_transpose_op{
    .name = "conv2d_transpose",
    .doc = "transposed 2-D convolution",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .layout = conv_layout,
    .quantizes = conv_quantizes,
    .axes = AxesRule::image,
};

}  // namespace etr::ops

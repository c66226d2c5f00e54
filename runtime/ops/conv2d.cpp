// y[n, oy, ox, o] = sum over (ky, kx, c) of
//   x[n, oy s + ky d - pad, ox s + kx d - pad, c] w[ky, kx, c, o] (+ b) (ReLU).
#include "core/error.h"
#include "core/text.h"
#include "ops/conv.h"
#include "ops/onnx_node.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}, {"w"}, {"b", InputRole::differentiable, true}};
constexpr OptionSpec kOptions[] = {
    {"stride", OptionType::integer, "1", "stride of the window in both directions", 1, 64,
     "pixels"},
    {"pad", OptionType::integer, "0", "zeros added on each side", 0, 4096, "pixels"},
    {"pad_height", OptionType::integer, "-1", "zeros added above and below; -1: as 'pad'", -1, 4096,
     "pixels"},
    {"dilation", OptionType::integer, "1", "distance between kernel elements", 1, 4096, "pixels"},
    {"groups", OptionType::integer, "1", "number of independent groups of channels", 1, 1 << 16},
    {"relu", OptionType::boolean, "false", "apply ReLU to the result, fused into the product"},
};

ConvGeometry geometry(const Options& o, const Shape& x, const Shape& w) {
  const auto u = [](int64_t v) { return static_cast<uint32_t>(v); };
  ConvGeometry g{};
  g.batch = u(x[0]), g.h = u(x[1]), g.w = u(x[2]), g.c = u(x[3]);
  g.kh = u(w[0]), g.kw = u(w[1]), g.filters = u(w[3]);
  g.stride = u(o.integer("stride")), g.dilation = u(o.integer("dilation"));
  g.pad_x = u(o.integer("pad"));
  g.pad_y = o.integer("pad_height") < 0 ? g.pad_x : u(o.integer("pad_height"));
  g.groups = u(o.integer("groups"));
  const auto outputs = [&](uint32_t size, uint32_t pad, uint32_t taps) -> uint32_t {
    const uint32_t reach = (taps - 1) * g.dilation + 1, padded = size + 2 * pad;
    return padded < reach ? 0 : (padded - reach) / g.stride + 1;
  };
  g.oh = outputs(g.h, g.pad_y, g.kh), g.ow = outputs(g.w, g.pad_x, g.kw);
  return g;
}

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  const Shape &x = in[0], &w = in[1];
  require_rank("conv2d", "x", x, 4, "[N, H, W, C]");
  require_rank("conv2d", "w", w, 4, "[KH, KW, C / groups, filters]");
  const int64_t groups = options.integer("groups");
  if (x[3] != w[2] * groups || w[3] % groups)
    fail(Code::invalid_argument, "conv2d: x ", shape_text(x), " has ", counted(x[3], "channel"),
         ", w ", shape_text(w), " in ", groups, " group", groups == 1 ? "" : "s", " expects ",
         w[2] * groups);
  const ConvGeometry g = geometry(options, x, w);
  if (g.oh == 0 || g.ow == 0)
    fail(Code::invalid_argument, "conv2d: kernel ", shape_text(w), " is larger than the padded x ",
         shape_text(x), "; add padding or use a smaller kernel");
  return {{x[0], g.oh, g.ow, w[3]}, {}};
}

ConvGeometry geometry(const OpCall& call) {
  return geometry(call.options, call.inputs[0].shape, call.inputs[1].shape);
}

void forward(const OpCall& call, Emitter& emit) {
  const DeviceTensor bias = call.inputs.size() > 2 ? call.inputs[2] : DeviceTensor{};
  emit_conv(emit, geometry(call), call.inputs[0], call.inputs[1], bias,
            call.options.boolean("relu"), call.output);
}

void backward(const OpCall& call, Emitter& emit) {
  const DeviceTensor &x = call.inputs[0], &w = call.inputs[1];
  const ConvGeometry g = geometry(call);
  const DeviceTensor dy = emit_linear_grad(emit, call);
  if (call.input_grads[0]) emit_conv_dx(emit, g, dy, w, call.input_grads[0]);
  if (call.input_grads[1]) emit_conv_dw(emit, g, x, dy, call.input_grads[1]);
  if (call.input_grads.size() > 2 && call.input_grads[2])
    emit_column_sum(emit, dy, call.input_grads[2], g.batch * g.oh * g.ow, g.filters);
}

bool folds(const Options& options) { return !options.boolean("relu"); }

std::string to_onnx(OnnxNode& node) { return conv_to_onnx(node, /*transposed=*/false); }

}  // namespace

extern const OpSpec conv2d_op;
const OpSpec conv2d_op{
    .name = "conv2d",
    .doc = "2-D convolution, NHWC, with optional bias and ReLU",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .layout = conv_layout,
    .quantizes = conv_quantizes,
    .folds = folds,
    .axes = AxesRule::image,
};

}  // namespace etr::ops

// y[n, oy, ox, o] = sum over (ky, kx, c) of x[n, oy * s + ky - pad, ox * s + kx - pad, c] *
// w[ky, kx, c, o] (+ b) (ReLU), as implicit matrix products in all three directions.
#include "core/error.h"
#include "ops/gemm.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}, {"w"}, {"b", InputRole::differentiable, true}};
constexpr OptionSpec kOptions[] = {
    {"stride", OptionType::integer, "1", "step of the window in both directions", 1, 64, "pixels"},
    {"pad", OptionType::integer, "0", "zeros added on each side", 0, 64, "pixels"},
    {"relu", OptionType::boolean, "false", "apply ReLU to the result, fused into the product"},
};

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  const Shape &x = in[0], &w = in[1];
  require_rank("conv2d", "x", x, 4, "[N, H, W, C]");
  require_rank("conv2d", "w", w, 4, "[KH, KW, C, filters]");
  if (x[3] != w[2])
    fail(Code::invalid_argument, "conv2d: x ", shape_text(x), " has ", x[3], " channels, w ",
         shape_text(w), " expects ", w[2]);
  const int64_t stride = options.integer("stride"), pad = options.integer("pad");
  const int64_t h = x[1] + 2 * pad - w[0], width = x[2] + 2 * pad - w[1];
  if (h < 0 || width < 0)
    fail(Code::invalid_argument, "conv2d: kernel ", shape_text(w), " is larger than the padded x ",
         shape_text(x), "; add padding or use a smaller kernel");
  return {{x[0], h / stride + 1, width / stride + 1, w[3]}, {}};
}

// The geometry that all three products share.
GemmParams geometry(const OpCall& call) {
  const Shape &x = call.inputs[0].shape, &w = call.inputs[1].shape, &y = call.output.shape;
  const auto u = [](int64_t v) { return static_cast<uint32_t>(v); };
  GemmParams p;
  p.batch = u(x[0]), p.h = u(x[1]), p.w = u(x[2]), p.c = u(x[3]);
  p.oh = u(y[1]), p.ow = u(y[2]);
  p.kh = u(w[0]), p.kw = u(w[1]);
  p.stride = u(call.options.integer("stride"));
  p.pad = u(call.options.integer("pad"));
  return p;
}

void forward(const OpCall& call, Emitter& emit) {
  GemmParams p = geometry(call);
  const auto filters = static_cast<uint32_t>(call.output.shape[3]);
  p.m = p.batch * p.oh * p.ow, p.n = filters, p.k = p.kh * p.kw * p.c, p.kc = p.c;
  p.relu = call.options.boolean("relu");
  const DeviceTensor bias = call.inputs.size() > 2 ? call.inputs[2] : DeviceTensor{};
  emit_gemm(emit, GemmMode::conv, p, call.inputs[0], call.inputs[1], bias, call.output);
}

void backward(const OpCall& call, Emitter& emit) {
  const DeviceTensor &x = call.inputs[0], &w = call.inputs[1];
  const auto filters = static_cast<uint32_t>(call.output.shape[3]);
  const DeviceTensor dy = call.options.boolean("relu")
                              ? emit_relu_grad(emit, call.output, call.output_grad)
                              : call.output_grad;
  GemmParams p = geometry(call);
  if (call.input_grads[0]) {
    // [taps, c, filters] -> [taps, filters, c], so that k = (ky, kx, filter) runs along rows of B.
    const DeviceTensor wt = emit.scratch({p.kh, p.kw, filters, p.c});
    emit_transpose(emit, w, wt, p.kh * p.kw, p.c, filters);
    p.m = p.batch * p.h * p.w, p.n = p.c, p.k = p.kh * p.kw * filters, p.kc = filters;
    emit_gemm(emit, GemmMode::conv_dx, p, dy, wt, {}, call.input_grads[0]);
  }
  if (call.input_grads[1]) {
    p.m = p.kh * p.kw * p.c, p.n = filters, p.k = p.batch * p.oh * p.ow, p.kc = p.c;
    emit_gemm(emit, GemmMode::conv_dw, p, x, dy, {}, call.input_grads[1]);
  }
  if (call.input_grads.size() > 2 && call.input_grads[2])
    emit_column_sum(emit, dy, call.input_grads[2], p.batch * p.oh * p.ow, filters);
}

}  // namespace

extern const OpSpec conv2d_op;
const OpSpec conv2d_op{"conv2d", "2-D convolution, NHWC, with optional bias and ReLU",
                       kInputs,  kOptions,
                       shapes,   forward,
                       backward};

}  // namespace etr::ops

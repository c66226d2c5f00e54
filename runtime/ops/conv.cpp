// Convolutions as implicit matrix products; depthwise ones, whose product would have one column, by
// kernels of their own.
#include "ops/conv.h"

#include "ops/permute.h"

namespace etr::ops {
namespace {

GemmParams params_of(const ConvGeometry& g) {
  GemmParams p;
  p.batch = g.batch, p.h = g.h, p.w = g.w, p.c = g.c / g.groups;
  p.oh = g.oh, p.ow = g.ow, p.kh = g.kh, p.kw = g.kw;
  p.stride = g.stride, p.pad_y = g.pad_y, p.pad_x = g.pad_x;
  p.dilation = g.dilation, p.groups = g.groups;
  return p;
}

struct DepthwisePush {
  uint32_t batch, h, w, c, oh, ow, kh, kw, stride, pad_y, pad_x, dilation, slices, relu, bias;
};

DepthwisePush depthwise_of(const ConvGeometry& g) {
  return {g.batch,  g.h,     g.w,     g.c,        g.oh, g.ow, g.kh, g.kw,
          g.stride, g.pad_y, g.pad_x, g.dilation, 1,    0,    0};
}

// w [taps, c, G, f] -> [taps, f, G, c], so that k = (ky, kx, filter) runs along rows of B.
DeviceTensor flipped(Emitter& emit, const ConvGeometry& g, const DeviceTensor& w) {
  const uint32_t taps = g.kh * g.kw, c = g.c / g.groups, f = g.filters / g.groups;
  const DeviceTensor out = emit.scratch({taps, f, g.groups, c});
  if (g.groups == 1) {
    emit_transpose(emit, w, out, taps, c, f);
    return out;
  }
  emit_permute(emit, {w.buffer, {taps, c, g.groups, f}}, {0, 3, 2, 1}, out);
  return out;
}

}  // namespace

void emit_conv(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x, const DeviceTensor& w,
               const DeviceTensor& bias, bool relu, const DeviceTensor& y) {
  if (g.depthwise()) {
    DepthwisePush push = depthwise_of(g);
    push.relu = relu, push.bias = bias ? 1 : 0;
    emit.for_channels("depthwise", {reads(x), reads(w), reads(bias ? bias : w), writes(y)}, push,
                      g.c, g.oh, g.batch);
    return;
  }
  GemmParams p = params_of(g);
  p.m = p.batch * p.oh * p.ow, p.n = g.filters / g.groups, p.kc = p.c, p.k = p.kh * p.kw * p.c;
  p.relu = relu;
  emit_gemm(emit, GemmMode::conv, p, x, w, bias, y);
}

void emit_conv_dx(Emitter& emit, const ConvGeometry& g, const DeviceTensor& dy,
                  const DeviceTensor& w, const DeviceTensor& dx) {
  if (g.depthwise()) {
    emit.for_channels("depthwise_dx", {reads(dy), reads(w), writes(dx)}, depthwise_of(g), g.c, g.h,
                      g.batch);
    return;
  }
  GemmParams p = params_of(g);
  p.m = p.batch * p.h * p.w, p.n = p.c, p.kc = g.filters / g.groups, p.k = p.kh * p.kw * p.kc;
  emit_gemm(emit, GemmMode::conv_dx, p, dy, flipped(emit, g, w), {}, dx);
}

void emit_conv_dw(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x,
                  const DeviceTensor& dy, const DeviceTensor& dw) {
  if (g.depthwise()) {
    DepthwisePush push = depthwise_of(g);
    push.slices = row_slices(g.batch * g.oh);
    const uint32_t count = g.kh * g.kw * g.c;
    const DeviceTensor partial = emit.scratch({push.slices, count});
    emit.for_channels("depthwise_dw", {reads(x), reads(dy), writes(partial)}, push, g.c,
                      push.slices, g.kh * g.kw);
    emit_sum_slices(emit, partial, dw, push.slices, count);
    return;
  }
  GemmParams p = params_of(g);
  p.m = p.kh * p.kw * p.c, p.n = g.filters / g.groups, p.k = p.batch * p.oh * p.ow, p.kc = p.c;
  emit_gemm(emit, GemmMode::conv_dw, p, x, dy, {}, dw);
}

}  // namespace etr::ops

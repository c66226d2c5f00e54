// The three products of a convolution, shared by conv2d and its transpose.
#pragma once

#include "ops/gemm.h"

namespace etr::ops {

// y [N, OH, OW, F] = x [N, H, W, C] convolved with w [KH, KW, C / groups, F].
struct ConvGeometry {
  uint32_t batch, h, w, c, oh, ow, filters;
  uint32_t kh, kw, stride, pad_y, pad_x, dilation, groups;

  bool depthwise() const { return groups > 1 && groups == c && groups == filters; }
  bool plain() const { return groups == 1 && dilation == 1; }
};

// Emits y = x * w (+ bias) (ReLU), by products of its own pixels; `bias` may be empty.
void emit_conv_directly(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x,
                        const DeviceTensor& w, const DeviceTensor& bias, bool relu,
                        const DeviceTensor& y);

// The same the faster way: directly, or by Winograd's.
void emit_conv(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x, const DeviceTensor& w,
               const DeviceTensor& bias, bool relu, const DeviceTensor& y);

// By Winograd's F(2 x 2, 3 x 3), where winograd_fits(); `flipped`: with the taps of w turned about.
void emit_winograd(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x,
                   const DeviceTensor& w, bool flipped, const DeviceTensor& bias, bool relu,
                   const DeviceTensor& y);
bool winograd_fits(const gpu::Device& device, const ConvGeometry& g);

// By Winograd's F(2, 3) along lines, and F(3, 2) for the gradient by w, where lines_fit(); `flipped` as above.
void emit_lines(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x, const DeviceTensor& w,
                bool flipped, const DeviceTensor& bias, bool relu, const DeviceTensor& y);
void emit_lines_dw(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x,
                   const DeviceTensor& dy, const DeviceTensor& dw);
bool lines_fit(const gpu::Device& device, const ConvGeometry& g);
// Whether the device computes them as the host does.
bool lines_are_trusted(gpu::Kernels& kernels, const ConvGeometry& g, bool dw);

// Emits dx, the gradient by x of a convolution whose result has the gradient dy.
void emit_conv_dx(Emitter& emit, const ConvGeometry& g, const DeviceTensor& dy,
                  const DeviceTensor& w, const DeviceTensor& dx);

// Emits dw, the gradient by w.
void emit_conv_dw(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x,
                  const DeviceTensor& dy, const DeviceTensor& dw);

}  // namespace etr::ops

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

// Emits y = x * w (+ bias) (ReLU) as an implicit matrix product over the pixels, or by the
// depthwise kernel. `bias` may be empty.
void emit_conv_directly(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x,
                        const DeviceTensor& w, const DeviceTensor& bias, bool relu,
                        const DeviceTensor& y);

// Same by the fastest way that is known: directly, or by one of Winograd's algorithms.
void emit_conv(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x, const DeviceTensor& w,
               const DeviceTensor& bias, bool relu, const DeviceTensor& y);

// Same by Winograd's F(2 x 2, 3 x 3); requires winograd_fits(). `flipped`: the taps of w are taken
// in reverse order.
void emit_winograd(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x,
                   const DeviceTensor& w, bool flipped, const DeviceTensor& bias, bool relu,
                   const DeviceTensor& y);
bool winograd_fits(const gpu::Device& device, const ConvGeometry& g);

// Same by Winograd's F(2, 3) along lines. emit_lines_dw() emits the gradient of w by F(3, 2). Both
// require lines_fit(). `turned`: w is [kh, kw, filters, c], and its taps are taken in reverse
// order.
void emit_lines(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x, const DeviceTensor& w,
                bool turned, const DeviceTensor& bias, bool relu, const DeviceTensor& y);
void emit_lines_dw(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x,
                   const DeviceTensor& dy, const DeviceTensor& dw);
bool lines_fit(const gpu::Device& device, const ConvGeometry& g);
// Returns whether the device computes at least one of the kernels along lines as the host does.
bool lines_are_trusted(gpu::Kernels& kernels, const ConvGeometry& g, bool dw);

// Writes the op into an ONNX file.
std::string conv_to_onnx(OnnxNode& node, bool transposed);

// Implement OpSpec::layout and OpSpec::quantizes for convolutions.
WeightLayout conv_layout(const Options& options, size_t input);
inline bool conv_quantizes(const Options& /*options*/, size_t input) { return input == 1; }

// Emits dx, the gradient of x, from dy, the gradient of y.
void emit_conv_dx(Emitter& emit, const ConvGeometry& g, const DeviceTensor& dy,
                  const DeviceTensor& w, const DeviceTensor& dx);

// Emits dw, the gradient of w.
void emit_conv_dw(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x,
                  const DeviceTensor& dy, const DeviceTensor& dw);

}  // namespace etr::ops

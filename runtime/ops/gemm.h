// Matrix products, the shared engine of dense and conv2d. See shaders/gemm_params.glsl for the
// modes.
#pragma once

#include <optional>

#include "ops/op.h"

namespace etr::ops {

// The modes of shaders/gemm_params.glsl, and two of shaders/conv_line.comp for CPU devices: a
// convolution with three taps along a line, and the gradient of its weights.
enum class GemmMode { nn, tn, conv, conv_dx, conv_dw, line, line_dw };

// Mirrors GemmParams in shaders/gemm_params.glsl.
struct GemmParams {
  static constexpr uint32_t kBias = 1, kRelu = 2;

  uint32_t m = 0, n = 0, k = 0;
  uint32_t batch = 1, h = 1, w = 1, c = 1;
  uint32_t oh = 1, ow = 1, kc = 1;
  uint32_t kh = 1, kw = 1, stride = 1, pad_y = 0, pad_x = 0, dilation = 1;
  uint32_t groups = 1;
  uint32_t slices = 1;
  uint32_t epilogue = 0;  // kBias, kRelu
  uint32_t stride_x = 1;
  uint32_t line_step = 1, line_offset = 0;
};

// Returns the parameters of a plain product [m, k] by [k, n].
inline GemmParams product(int64_t m, int64_t n, int64_t k) {
  GemmParams p;
  p.m = static_cast<uint32_t>(m);
  p.n = static_cast<uint32_t>(n);
  p.k = static_cast<uint32_t>(k);
  return p;
}

// Emits out[m, groups * n] = A * B (+ bias) (ReLU) with the kernel family of the emitter's device.
// Splits k if the tiles of C alone would not fill the device. A and B are rounded to the emitter's
// precision. `bias` may be empty. `flops` is the count for profiles, for products with known zeros;
// 0: all of the product.
void emit_gemm(Emitter& emit, GemmMode mode, GemmParams params, const DeviceTensor& a,
               const DeviceTensor& b, const DeviceTensor& bias, const DeviceTensor& out,
               double flops = 0);

// Partial moments of the columns of a product's result: mean and sum of squared deviations of every
// `tile_rows` rows.
struct Moments {
  DeviceTensor partial;  // [tiles, 2, parts * columns]
  uint32_t rows;         // rows of each part
  uint32_t tile_rows;
  // Parts of the result's rows that lie side by side: a convolution may compute pixels in pairs.
  uint32_t parts;
};

// Makes the product that last wrote x [..., columns] compute its moments as well. Returns nothing
// if no product wrote x or its kernel cannot do that.
std::optional<Moments> emit_moments(Emitter& emit, const DeviceTensor& x);

// Emits out[b, j, i] = in[b, i, j].
void emit_transpose(Emitter& emit, const DeviceTensor& in, const DeviceTensor& out, uint32_t batch,
                    uint32_t rows, uint32_t columns);

// Emits out[c] = sum over rows of x[rows, c].
void emit_column_sum(Emitter& emit, const DeviceTensor& x, const DeviceTensor& out, uint32_t rows,
                     uint32_t columns);

// Emits the weights w' and biases b' of a product with the following normalisation folded in
// (shaders/fold_norm.comp). `bias` may be empty.
void emit_fold_norm(Emitter& emit, const DeviceTensor& w, const DeviceTensor& bias,
                    std::span<const DeviceTensor> norm, float epsilon, const DeviceTensor& folded_w,
                    const DeviceTensor& folded_b);

// Emits out[i] = sum over z of in[z, i].
void emit_sum_slices(Emitter& emit, const DeviceTensor& in, const DeviceTensor& out,
                     uint32_t slices, uint32_t count);

// Same for sums [2, columns], and first = sums[0] and second = sums[1]; either may be empty.
void emit_sum_halves(Emitter& emit, const DeviceTensor& in, const DeviceTensor& sums,
                     uint32_t slices, const DeviceTensor& first, const DeviceTensor& second);

// Returns the gradient of the op's result before the ReLU of its option "relu": dy where y > 0,
// else 0. Without the option returns dy itself.
DeviceTensor emit_linear_grad(Emitter& emit, const OpCall& call);

}  // namespace etr::ops

// The geometry of windows over an image, shared by max_pool and avg_pool.
#pragma once

#include "ops/op.h"

namespace etr::ops {

inline constexpr OptionSpec kWindow{
    "window", OptionType::integer, "2", "height and width of the window", 1, 64, "pixels"};
inline constexpr OptionSpec kWindowStride{
    "stride", OptionType::integer, "2", "stride of the window in both directions", 1, 64, "pixels"};

// The head of avg_pool's push constants.
struct PoolGeometry {
  uint32_t h, w, c, oh, ow, window, stride, pad;
};

// Returns [N, OH, OW, C] for x [N, H, W, C] under the options window, stride and pad. Throws
// Error(invalid_argument), naming `op`.
Shape pooled_shape(const char* op, const Options& options, const Shape& x);

PoolGeometry pool_geometry(const OpCall& call);

// Writes the op as the node `op` of an ONNX file. `outputs`: pixels of the result along each axis,
// for windows that share those of the input; 0: by the options.
std::string pool_to_onnx(OnnxNode& node, const char* op, int64_t outputs = 0);

// Describes the gradient of a max_pool, whose bindings are {winner, dy, dx}. Each dy is added to
// the dx of one element of x, which equals y.
struct MaxPoolGrad final : gpu::Fusible {
  MaxPoolGrad(gpu::Buffer of_x, gpu::Buffer of_y, bool filled)
      : x(std::move(of_x)), y(std::move(of_y)), after_fill(filled) {}

  gpu::Buffer x, y;
  bool after_fill;  // the previous command fills dx with 0
};

}  // namespace etr::ops

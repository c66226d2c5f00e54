// Convolutions by Winograd's algorithms: F(2 x 2, 3 x 3) through memory (formulas in
// shaders/winograd.comp), and F(2, 3) along lines within registers (shaders/conv_line.comp).
#include <algorithm>

#include "ops/conv.h"
#include "ops/gemm_kernels.h"

namespace etr::ops {
namespace {

struct Push {
  uint32_t rows, channels, slices, h, w, tiles_y, tiles_x;
  int32_t pad_y, pad_x;
  uint32_t first_image, relu, bias, flipped;
};

// Limits how many images are transformed at a time. The intermediate data should stay in a cache,
// and must not take several times the memory of the tensors.
constexpr uint64_t kChunkBytes = 8 << 20;

uint32_t tiles_of_image(const ConvGeometry& g) {
  return gpu::div_up(g.oh, 2) * gpu::div_up(g.ow, 2);
}

// Returns the size of the larger of an image's two transforms.
uint64_t image_bytes(const ConvGeometry& g) {
  return uint64_t{tiles_of_image(g)} * 16 * std::max(g.c, g.filters) * 4;
}

}  // namespace

bool winograd_fits(const gpu::Device& device, const ConvGeometry& g) {
  return g.plain() && g.kh == 3 && g.kw == 3 && g.stride == 1 &&
         image_bytes(g) <= device.max_tensor_bytes();
}

void emit_winograd(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x,
                   const DeviceTensor& w, bool flipped, const DeviceTensor& bias, bool relu,
                   const DeviceTensor& y) {
  Push push{};
  push.tiles_y = gpu::div_up(g.oh, 2), push.tiles_x = gpu::div_up(g.ow, 2);
  push.pad_y = static_cast<int32_t>(g.pad_y), push.pad_x = static_cast<int32_t>(g.pad_x);
  push.relu = relu, push.bias = bias ? 1 : 0, push.flipped = flipped;

  const auto transform = [&](const char* shader, std::vector<gpu::Binding> bindings, uint32_t rows,
                             uint32_t channels, uint32_t h, uint32_t width) {
    push.rows = rows, push.channels = channels, push.h = h, push.w = width;
    push.slices = row_slices(*emit.device(), rows, channels);
    emit.for_channels(shader, std::move(bindings), push, channels, push.slices);
  };
  const DeviceTensor u = emit.scratch({g.c, 16, g.filters});
  transform("winograd_filter", {reads(w), writes(u)}, g.c, g.filters, 0, 0);

  const uint32_t of_image = tiles_of_image(g);
  const auto most =
      static_cast<uint32_t>(std::clamp<uint64_t>(kChunkBytes / image_bytes(g), 1, g.batch));
  const DeviceTensor v = emit.scratch({most * of_image, 16, g.c});
  const DeviceTensor m = emit.scratch({most * of_image, 16, g.filters});
  for (uint32_t first = 0; first < g.batch; first += most) {
    const uint32_t images = std::min(most, g.batch - first), tiles = images * of_image;
    push.first_image = first;
    transform("winograd_input", {reads(x), writes(v)}, tiles, g.c, g.h, g.w);
    GemmParams p;  // sixteen products, as groups of a 1 x 1 convolution
    p.w = p.ow = tiles, p.c = p.kc = p.k = g.c, p.groups = 16;
    p.m = tiles, p.n = g.filters;
    emit_gemm(emit, GemmMode::conv, p, v, u, {}, m,
              // Operations of the direct convolution.
              18.0 * images * g.oh * g.ow * g.c * g.filters);
    transform("winograd_output", {reads(m), writes(y), reads(bias ? bias : u)}, tiles, g.filters,
              g.oh, g.ow);
  }
}

namespace {

GemmParams lines_of(const ConvGeometry& g) {
  GemmParams p;
  p.batch = g.batch, p.h = g.h, p.w = g.w, p.c = p.kc = g.c;
  p.oh = g.oh, p.ow = g.ow, p.kh = g.kh, p.kw = g.kw;
  p.pad_y = g.pad_y, p.pad_x = g.pad_x;
  p.n = g.filters;
  return p;
}

// Counts m in pairs of pixels, before lines are padded to whole runs.
GemmParams forward_of(const ConvGeometry& g) {
  GemmParams p = lines_of(g);
  p.m = g.batch * g.oh * gpu::div_up(g.ow, 2), p.k = 4 * g.kh * g.c;
  return p;
}

GemmParams dw_of(const ConvGeometry& g) {
  GemmParams p = lines_of(g);
  p.m = g.kh * g.c, p.k = g.batch * g.oh * g.ow;
  return p;
}

double flops_of(const ConvGeometry& g) {
  return 2.0 * g.batch * g.oh * g.ow * g.c * g.filters * g.kh * g.kw;
}

}  // namespace

bool lines_fit(const gpu::Device& device, const ConvGeometry& g) {
  return device.family() == gpu::KernelFamily::cpu && g.plain() && g.kw == 3 && g.stride == 1;
}

bool lines_are_trusted(gpu::Kernels& kernels, const ConvGeometry& g, bool dw) {
  const GemmMode mode = dw ? GemmMode::line_dw : GemmMode::line;
  const auto some =
      kernels_for(*kernels.device(), mode, dw ? dw_of(g) : forward_of(g), Precision::fp32);
  return std::any_of(some.begin(), some.end(),
                     [&](const GemmKernel& kernel) { return trusted(kernels, kernel, mode); });
}

void emit_lines(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x, const DeviceTensor& w,
                bool turned, const DeviceTensor& bias, bool relu, const DeviceTensor& y) {
  const uint32_t rows = g.kh * g.c;
  const DeviceTensor u = emit.scratch({rows, g.filters, 4});
  const struct {
    uint32_t rows, slices, kh, c, n, turned;
  } push{rows, row_slices(*emit.device(), rows, g.filters), g.kh, g.c, g.filters, turned};
  emit.for_channels("line_filter", {reads(w), writes(u)}, push, g.filters, push.slices);
  GemmParams p = forward_of(g);
  if (relu) p.epilogue |= GemmParams::kRelu;
  emit_gemm(emit, GemmMode::line, p, x, u, bias, y, flops_of(g));
}

void emit_lines_dw(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x,
                   const DeviceTensor& dy, const DeviceTensor& dw) {
  emit_gemm(emit, GemmMode::line_dw, dw_of(g), x, dy, {}, dw, flops_of(g));
}

}  // namespace etr::ops

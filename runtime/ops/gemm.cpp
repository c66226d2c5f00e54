#include "ops/gemm.h"

#include <algorithm>

#include "core/error.h"
#include "ops/gemm_check.h"

namespace etr::ops {
namespace {

const char* mode_name(GemmMode mode) {
  switch (mode) {
    case GemmMode::nn: return "nn";
    case GemmMode::tn: return "tn";
    case GemmMode::conv: return "conv";
    case GemmMode::conv_dx: return "conv_dx";
    case GemmMode::conv_dw: return "conv_dw";
  }
  return "?";
}

// The extent along which the CPU kernel walks k in steps of four.
uint32_t inner_extent(GemmMode mode, const GemmParams& p) {
  if (mode == GemmMode::conv_dw) return p.ow;
  return mode == GemmMode::nn || mode == GemmMode::tn ? p.k : p.kc;
}

// A tile of the CPU kernel (shaders/gemm_cpu.comp), and what a column of it costs beside one of the
// widest: fewer columns share a broadcast of A.
struct CpuTile {
  uint32_t columns, rows8, rows16;
  double cost;
};
constexpr CpuTile kCpuTiles[] = {{64, 24, 32, 1}, {32, 48, 64, 1.05}, {16, 48, 128, 1.45}};

const CpuTile& tile_for(uint32_t n) {
  const auto cost = [n](const CpuTile& tile) {
    return tile.cost * tile.columns * gpu::div_up(n, tile.columns);
  };
  return *std::min_element(std::begin(kCpuTiles), std::end(kCpuTiles),
                           [&](const CpuTile& a, const CpuTile& b) { return cost(a) < cost(b); });
}

uint32_t spread(const GemmParams& p) { return p.line_step != 1 || p.line_offset != 0; }

GemmKernel tiled(GemmMode mode, const GemmParams& p) {
  return {cat("gemm_tiled_", mode_name(mode)), {spread(p)}, 64, 64, 256};
}

GemmKernel fastest(const gpu::Device& device, GemmMode mode, const GemmParams& p) {
  if (device.family() == gpu::KernelFamily::tiled) return tiled(mode, p);
  const uint32_t lanes = device.info().subgroup_size;
  const uint32_t inner = inner_extent(mode, p);
  // Two steps of four an iteration halve the loop's bookkeeping where nothing is left over.
  const uint32_t unroll = inner % 8 == 0 && mode != GemmMode::conv_dw ? 2 : 1;
  const CpuTile& tile = tile_for(p.n);
  return {cat("gemm_cpu_", mode_name(mode), "_", lanes, "_", tile.columns),
          {inner % 4 != 0, unroll, spread(p)},
          lanes == 8 ? tile.rows8 : tile.rows16,
          tile.columns,
          16};
}

bool trusted(Emitter& emit, const GemmKernel& kernel, GemmMode mode) {
  return emit.kernels().trusts(kernel.shader, kernel.constants,
                               [&] { return computes_rightly(emit.kernels(), kernel, mode); });
}

// The fastest kernel that this driver computes as the host does.
GemmKernel choose(Emitter& emit, GemmMode mode, const GemmParams& p) {
  GemmKernel kernel = fastest(*emit.device(), mode, p);
  if (trusted(emit, kernel, mode)) return kernel;
  kernel = tiled(mode, p);
  if (trusted(emit, kernel, mode)) return kernel;
  const gpu::DeviceInfo& info = emit.device()->info();
  fail(Code::device, "the driver of '", info.name, "' (", info.driver, ") computes the kernel '",
       kernel.shader, "' wrongly, and there is no other: update it, or choose another device");
}

// Slices of k: only gradients by weights have a long k and a small result.
uint32_t choose_slices(const GemmKernel& kernel, GemmMode mode, const GemmParams& p,
                       uint32_t tiles) {
  if (mode != GemmMode::tn && mode != GemmMode::conv_dw) return 1;
  const bool by_lines = mode == GemmMode::conv_dw && kernel.shader.starts_with("gemm_cpu");
  const uint32_t longest = by_lines ? p.batch * p.oh : p.k / 64;
  const uint32_t wanted = gpu::div_up(kernel.wanted_groups, tiles);
  return std::clamp(wanted, 1u, std::max(longest, 1u));
}

DeviceTensor rounded(Emitter& emit, const DeviceTensor& x) {
  if (emit.precision() == Precision::fp32) return x;
  const DeviceTensor y = emit.scratch(x.shape);
  emit.for_each("round_to", {reads(x), writes(y)}, x.count(), x.count(),
                {static_cast<uint32_t>(emit.precision())});
  return y;
}

}  // namespace

void emit_gemm(Emitter& emit, GemmMode mode, GemmParams p, const DeviceTensor& wide_a,
               const DeviceTensor& wide_b, const DeviceTensor& bias, const DeviceTensor& out,
               double flops) {
  const DeviceTensor a = rounded(emit, wide_a), b = rounded(emit, wide_b);
  const GemmKernel kernel = choose(emit, mode, p);
  const uint32_t x = gpu::div_up(p.m, kernel.tile_rows), y = gpu::div_up(p.n, kernel.tile_columns);
  p.slices = choose_slices(kernel, mode, p, x * y * p.groups);
  p.bias = bias ? 1 : 0;
  const DeviceTensor target = p.slices == 1 ? out : emit.scratch({p.slices, p.m, p.groups * p.n});
  emit.dispatch(kernel.shader, {reads(a), reads(b), reads(bias ? bias : b), writes(target)}, p,
                {x, y, p.groups * p.slices}, kernel.constants);
  emit.count_flops(flops > 0 ? flops : 2.0 * p.m * p.n * p.groups * p.k);
  if (p.slices > 1) emit_sum_slices(emit, target, out, p.slices, p.m * p.groups * p.n);
}

void emit_transpose(Emitter& emit, const DeviceTensor& in, const DeviceTensor& out, uint32_t batch,
                    uint32_t rows, uint32_t columns) {
  const struct { uint32_t rows, columns, slices; } push{rows, columns, row_slices(columns)};
  emit.for_channels("transpose", {reads(in), writes(out)}, push, rows, push.slices, batch);
}

uint32_t row_slices(uint32_t rows) { return std::clamp(rows / 64, 1u, 64u); }

void emit_sum_slices(Emitter& emit, const DeviceTensor& in, const DeviceTensor& out,
                     uint32_t slices, uint32_t count) {
  const struct { uint32_t slices, count; } push{slices, count};
  emit.for_each("sum_slices", {reads(in), writes(out)}, push, count);
}

void emit_column_sum(Emitter& emit, const DeviceTensor& x, const DeviceTensor& out, uint32_t rows,
                     uint32_t columns) {
  const uint32_t slices = row_slices(rows);
  const struct { uint32_t rows, columns, slices; } push{rows, columns, slices};
  const DeviceTensor partial = emit.scratch({slices, columns});
  emit.for_channels("column_sum", {reads(x), writes(partial)}, push, columns, slices);
  emit_sum_slices(emit, partial, out, slices, columns);
}

void emit_halves(Emitter& emit, const DeviceTensor& sums, const DeviceTensor& first,
                 const DeviceTensor& second) {
  const uint64_t bytes = sums.buffer.size_bytes / 2;
  if (first) emit.add(gpu::Copy{sums.buffer.slice(0, bytes), first.buffer});
  if (second) emit.add(gpu::Copy{sums.buffer.slice(bytes, bytes), second.buffer});
}

DeviceTensor emit_relu_grad(Emitter& emit, const DeviceTensor& y, const DeviceTensor& dy) {
  DeviceTensor masked = emit.scratch(y.shape);
  emit.for_each("relu_grad", {reads(y), reads(dy), writes(masked)}, masked.count(), masked.count());
  return masked;
}

}  // namespace etr::ops

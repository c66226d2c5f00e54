#include <algorithm>
#include <cmath>

#include "gpu/recording.h"
#include "ops/gemm_kernels.h"

namespace etr::ops {
namespace {

// As many steps along k as the kernel's constants (of the CPU kernel: tail, unrolling) stand for.
uint32_t inner_for(const GemmKernel& kernel) {
  if (kernel.shader.starts_with("gemm_cpu_row")) return 7;
  if (kernel.shader.starts_with("gemm_matrix")) return 13;  // more than one tile along k
  if (!kernel.shader.starts_with("gemm_cpu") || kernel.constants[0] != 0) return 7;
  return kernel.constants[1] == 2 ? 8 : 12;
}

GemmParams problem_for(const GemmKernel& kernel, GemmMode mode, uint32_t joins) {
  const uint32_t inner = inner_for(kernel), n = kernel.tile_columns + 1;
  GemmParams p;
  if (mode == GemmMode::nn || mode == GemmMode::tn) {
    p = product(kernel.tile_rows + 3, n, 3 * inner);
  } else {
    p.n = n;
    p.kh = p.kw = 3;
    p.pad_y = p.pad_x = 1;
    p.h = p.oh = 5;
    p.w = p.ow = mode == GemmMode::conv_dw ? inner : 6;
    p.c = mode == GemmMode::conv_dw ? kernel.tile_rows / 9 + 1 : inner;
    p.kc = p.c;
    p.batch = mode == GemmMode::conv_dw ? 2 : kernel.tile_rows / 30 + 1;
    const uint32_t pixels = p.batch * p.h * p.w, taps = p.kh * p.kw * p.c;
    p.m = mode == GemmMode::conv_dw ? taps : pixels;
    p.k = mode == GemmMode::conv_dw ? pixels : taps;
  }
  const bool split = mode == GemmMode::tn || mode == GemmMode::conv_dw;
  p.slices = split && joins == 0 ? 2 : 1;
  if (p.slices == 1 && !(joins & GemmKernel::kKeep)) p.epilogue |= GemmParams::kBias;
  if (p.slices == 1 && !(joins & GemmKernel::kMoments)) p.epilogue |= GemmParams::kRelu;
  return p;
}

// Where A's element (row, k) lies; -1 where it is a zero outside the image. Stride and dilation are 1.
int64_t place_of_a(GemmMode mode, const GemmParams& p, uint32_t row, uint32_t k) {
  if (mode == GemmMode::nn) return int64_t{row} * p.k + k;
  if (mode == GemmMode::tn) return int64_t{k} * p.m + row;
  const bool by_row = mode == GemmMode::conv_dw;
  const uint32_t tap = (by_row ? row : k) / p.c, channel = (by_row ? row : k) % p.c;
  const uint32_t pixel = by_row ? k : row;
  const int64_t y = pixel / p.w % p.h, x = pixel % p.w, image = pixel / p.w / p.h;
  const int64_t dy = int64_t{tap / p.kw} - p.pad_y, dx = int64_t{tap % p.kw} - p.pad_x;
  const int64_t at_y = mode == GemmMode::conv_dx ? y - dy : y + dy;
  const int64_t at_x = mode == GemmMode::conv_dx ? x - dx : x + dx;
  if (at_y < 0 || at_y >= p.h || at_x < 0 || at_x >= p.w) return -1;
  return ((image * p.h + at_y) * p.w + at_x) * p.c + channel;
}

// All of float32's bits count.
std::vector<float> fractions(uint64_t count, uint32_t seed) {
  std::vector<float> out(count);
  for (uint64_t i = 0; i < count; ++i)
    out[i] = static_cast<float>((i * 2654435761u + seed * 40503u) % 16777213u) / 8388608.0f - 1.0f;
  return out;
}

std::vector<float> small_integers(uint64_t count, uint32_t seed) {
  std::vector<float> out(count);
  for (uint64_t i = 0; i < count; ++i) out[i] = static_cast<float>((i * 7 + i / 5 + seed) % 5) - 2;
  return out;
}

std::vector<float> expected(GemmMode mode, const GemmParams& p, uint32_t joins,
                            const std::vector<float>& a, const std::vector<float>& b,
                            const std::vector<float>& side, const std::vector<float>& residual) {
  std::vector<float> c(size_t{p.m} * p.n);
  for (uint32_t row = 0; row < p.m; ++row) {
    float* to = &c[size_t{row} * p.n];
    if (p.epilogue & GemmParams::kBias) std::copy_n(side.begin(), p.n, to);
    for (uint32_t k = 0; k < p.k; ++k) {
      const int64_t place = place_of_a(mode, p, row, k);
      if (place < 0) continue;
      for (uint32_t i = 0; i < p.n; ++i)
        to[i] += a[static_cast<size_t>(place)] * b[size_t{k} * p.n + i];
    }
    const size_t at = size_t{row} * p.n;
    for (uint32_t i = 0; i < p.n; ++i) {
      if (joins & GemmKernel::kResidual) to[i] += residual[at + i];
      if (p.epilogue & GemmParams::kRelu) to[i] = std::max(to[i], 0.0f);
      if ((joins & GemmKernel::kKeep) && !(side[at + i] > 0)) to[i] = 0;
    }
  }
  return c;
}

// Whether `moments` [tiles, 2, n] are those of the rows of c, tile by tile.
bool are_moments(const float* moments, const std::vector<float>& c, const GemmParams& p,
                 uint32_t tile_rows) {
  for (uint32_t tile = 0; tile * tile_rows < p.m; ++tile)
    for (uint32_t i = 0; i < p.n; ++i) {
      const uint32_t first = tile * tile_rows, last = std::min(first + tile_rows, p.m);
      double sum = 0, squares = 0;
      for (uint32_t row = first; row < last; ++row) sum += c[size_t{row} * p.n + i];
      const double mean = sum / (last - first);
      for (uint32_t row = first; row < last; ++row)
        squares += std::pow(c[size_t{row} * p.n + i] - mean, 2);
      const float* of_tile = moments + 2 * size_t{tile} * p.n + i;
      if (!(std::abs(of_tile[0] - mean) <= 1e-5 * (1 + std::abs(mean))) ||
          !(std::abs(of_tile[p.n] - squares) <= 1e-5 * (1 + squares)))
        return false;
    }
  return true;
}

// Rows of so many columns, further apart by `pad`.
std::vector<float> with_pad(const std::vector<float>& values, uint32_t columns, uint32_t pad) {
  if (pad == 0) return values;
  std::vector<float> out(values.size() / columns * (columns + pad), -7.0f);
  for (size_t row = 0; row * columns < values.size(); ++row)
    std::copy_n(values.begin() + static_cast<ptrdiff_t>(row * columns), columns,
                out.begin() + static_cast<ptrdiff_t>(row * (columns + pad)));
  return out;
}

// Whether the products of `values` agree to float32's accuracy: each is a sum of k terms of at most 1.
bool close(const std::vector<float>& got, const std::vector<float>& wanted, uint32_t k) {
  const float most = 4e-7f * std::sqrt(static_cast<float>(k));
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - wanted[i]) <= most)) return false;
  return true;
}

}  // namespace

bool computes_rightly(gpu::Kernels& kernels, const GemmKernel& kernel, GemmMode mode,
                      uint32_t joins) {
  const GemmParams p = problem_for(kernel, mode, joins);
  const auto numbers = kernel.exact ? small_integers : fractions;
  const auto a = numbers(static_cast<uint64_t>(elements_of_a(mode, p)), 1),
             b = numbers(uint64_t{p.k} * p.n, 2);
  const uint64_t of_slice = uint64_t{p.m} * p.n;
  const auto side = numbers(of_slice, 3), residual = numbers(of_slice, 4);

  gpu::Arena host(kernels.device(), gpu::MemoryUse::upload),
      back(kernels.device(), gpu::MemoryUse::readback),
      memory(kernels.device(), gpu::MemoryUse::device);
  gpu::CommandList commands;
  Emitter emit(kernels, memory, commands);
  const auto put = [&](const std::vector<float>& values) {
    const gpu::Buffer from = host.allocate(values.size() * 4);
    std::copy(values.begin(), values.end(), reinterpret_cast<float*>(from.host));
    const DeviceTensor to = emit.scratch({static_cast<int64_t>(values.size())});
    emit.add(gpu::Copy{from, to.buffer});
    return to;
  };
  const DeviceTensor on_a = put(with_pad(a, p.k, kernel.pad)),
                     on_b = put(with_pad(b, p.n, kernel.pad)), on_side = put(side),
                     on_residual = put(residual);
  const DeviceTensor on_c = emit.scratch({p.slices, p.m, p.n});
  emit.set_label("check of a product");
  emit.dispatch(
      kernel.shader,
      {reads(on_a), reads(on_b), reads(on_side), updates(on_residual), writes(on_c)}, p,
      {gpu::div_up(p.m, kernel.tile_rows), gpu::div_up(p.n, kernel.tile_columns), p.slices},
      kernel.constants_with(joins));
  const auto read_back = [&](const DeviceTensor& tensor) {
    const gpu::Buffer to = back.allocate(tensor.buffer.size_bytes);
    emit.add(gpu::Copy{tensor.buffer, to});
    return reinterpret_cast<const float*>(to.host);
  };
  const float *result = read_back(on_c), *moments = read_back(on_residual);
  gpu::run_once(kernels.device(), commands);

  std::vector<float> got(result, result + of_slice * p.slices);
  for (size_t i = 0; p.slices == 2 && i < of_slice; ++i) got[i] += got[of_slice + i];
  got.resize(of_slice);
  const std::vector<float> wanted = expected(mode, p, joins, a, b, side, residual);
  if ((joins & GemmKernel::kMoments) && !are_moments(moments, wanted, p, kernel.tile_rows))
    return false;
  return kernel.exact ? got == wanted : close(got, wanted, p.k);
}

}  // namespace etr::ops

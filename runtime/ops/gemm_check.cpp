#include <algorithm>
#include <cmath>

#include "gpu/run_once.h"
#include "ops/gemm_kernels.h"

namespace etr::ops {
namespace {

// Returns the steps along k that match the kernel's constants.
uint32_t inner_for(const GemmKernel& kernel) {
  if (kernel.shader.starts_with("conv_line")) return 0;  // see lines_for()
  if (kernel.shader.starts_with("gemm_cpu_row")) return 7;
  if (kernel.shader.starts_with("gemm_matrix"))  // more than one tile along k
    return kernel.loads_a == 1 ? 13 : 12;
  if (kernel.shader.starts_with("gemm_tiled")) return kernel.loads_a == 1 ? 7 : 8;
  return kernel.shader.starts_with("gemm_cpu") && kernel.constants[0] == 0 ? 12 : 7;
}

bool is_line(GemmMode mode) { return mode == GemmMode::line || mode == GemmMode::line_dw; }

// Returns the problem for a kernel of shaders/conv_line.comp.
GemmParams lines_for(const GemmKernel& kernel, GemmMode mode) {
  const bool dw = mode == GemmMode::line_dw;
  const uint32_t step = std::max(kernel.loads_a, kernel.loads_b);
  GemmParams p;
  p.n = kernel.tile_columns + step;
  p.kh = p.kw = 3;
  p.pad_y = p.pad_x = 1;
  p.h = p.oh = 5;
  // Its constants tell whether channels or pixels are left over, and whether lines end within a
  // run.
  p.w = p.ow =
      dw ? (kernel.constants[0] ? 11 : 16) : 2 * kernel.run + (kernel.constants[1] ? 1 : 0);
  p.c = p.kc = dw ? (kernel.tile_rows / 3 + step) / step * step : kernel.constants[0] ? 7 : 8;
  p.batch = dw ? 2 : kernel.tile_rows / 5 + 1;
  p.m = dw ? p.kh * p.c : rows_of_lines(kernel, p);
  p.k = dw ? p.batch * p.oh * p.ow : p.kh * p.c * 4;
  return p;
}

// Whether a kernel shares out single steps along k among its slices, not tiles or lines. Then only
// a short k leaves some of few slices empty.
bool slices_steps(const GemmKernel& kernel, GemmMode mode) {
  return !kernel.shader.starts_with("gemm_cpu") && !is_line(mode);
}

// Returns how many slices a kernel is checked with. One gets none of k, except where slices are of
// single steps: those have several tiles along k each, and as many terms as it takes to see how
// accurate a kernel is.
uint32_t checked_slices(const GemmKernel& kernel, GemmMode mode, const GemmParams& p) {
  if (slices_steps(kernel, mode)) return 2;
  const uint32_t all = slices_lines(kernel, mode) ? p.batch * p.oh : gpu::div_up(p.k, kernel.steps);
  uint32_t slices = 3;
  while (gpu::div_up(all, gpu::div_up(all, slices)) == slices) ++slices;
  return slices;
}

GemmParams problem_for(const GemmKernel& kernel, GemmMode mode, uint32_t joins) {
  const uint32_t step = kernel.loads_a, inner = inner_for(kernel),
                 n = kernel.tile_columns + kernel.loads_b;
  GemmParams p;
  if (is_line(mode)) {
    p = lines_for(kernel, mode);
  } else if (mode == GemmMode::nn || mode == GemmMode::tn) {
    // As many terms as a convolution's, where accuracy is at stake: errors grow with their number.
    p = product(kernel.tile_rows + 3 * step, n, 9 * inner);
  } else {
    p.n = n;
    p.kh = p.kw = 3;
    p.pad_y = p.pad_x = 1;
    p.h = p.oh = 5;
    p.w = p.ow = mode == GemmMode::conv_dw ? inner : 6;
    p.c = mode == GemmMode::conv_dw ? (kernel.tile_rows / 9 + step) / step * step : inner;
    p.kc = p.c;
    p.batch = mode == GemmMode::conv_dw ? 2 : kernel.tile_rows / 30 + 1;
    const uint32_t pixels = p.batch * p.h * p.w, taps = p.kh * p.kw * p.c;
    p.m = mode == GemmMode::conv_dw ? taps : pixels;
    p.k = mode == GemmMode::conv_dw ? pixels : taps;
  }
  const bool split = mode == GemmMode::tn || mode == GemmMode::conv_dw || mode == GemmMode::line_dw;
  if (split && joins == 0) p.slices = checked_slices(kernel, mode, p);
  if (p.slices == 1 && !(joins & GemmKernel::kKeep)) p.epilogue |= GemmParams::kBias;
  if (p.slices == 1 && !(joins & GemmKernel::kMoments)) p.epilogue |= GemmParams::kRelu;
  return p;
}

// Returns the problem with one step along k for three slices: the second begins where k ends, the
// third behind that.
GemmParams with_empty_slices(GemmParams p) {
  p.k = p.batch = p.h = p.w = p.oh = p.ow = 1;
  p.slices = 3;
  return p;
}

// Returns the index of A's element (row, k), or -1 for a zero outside the image. Stride and
// dilation are 1.
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

// Returns fractions that use all bits of a float32.
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

// Numbers that must be rounded, ties among them, and what rounding to the nearest, ties to even,
// makes of them. `half` is half the distance of two numbers of the format between 1 and 2. Their
// products with small integers have exact sums.
struct Rounded {
  float before, after;
};

Rounded to_be_rounded(Precision precision, uint64_t i, uint32_t seed) {
  const float half = precision == Precision::bf16 ? 1 / 256.0f : 1 / 2048.0f;
  const Rounded all[] = {{1 + half, 1},
                         {1 + 3 * half, 1 + 4 * half},
                         {-1 - half * 1.01f, -1 - 2 * half},
                         {1 + half * 0.99f, 1},
                         {2, 2}};
  return all[(i * 7 + i / 5 + seed) % 5];
}

// Returns the results of shaders/conv_line.comp. B holds transformed weights in the forward pass,
// and pixels of dy in the gradient of weights.
std::vector<float> line_products(GemmMode mode, const GemmParams& p, const std::vector<float>& a,
                                 const std::vector<float>& b) {
  const bool dw = mode == GemmMode::line_dw;
  std::vector<float> c(static_cast<size_t>(elements_of_c(mode, p)));
  const auto pixel = [&](uint32_t image, int64_t y, int64_t x, uint32_t channel) -> float {
    if (y < 0 || y >= p.h || x < 0 || x >= p.w) return 0;
    return a[static_cast<size_t>(((image * p.h + y) * p.w + x) * p.c + channel)];
  };
  const size_t n = p.n, channels = p.c;
  for (uint32_t line = 0; line < p.batch * p.oh; ++line)
    for (uint32_t x = 0; x < p.ow; x += 2)
      for (uint32_t ky = 0; ky < p.kh; ++ky)
        for (uint32_t channel = 0; channel < p.c; ++channel) {
          const int64_t y = int64_t{line % p.oh} + ky - p.pad_y;
          float d[4];
          for (uint32_t i = 0; i < 4; ++i)
            d[i] = pixel(line / p.oh, y, int64_t{x} + i - p.pad_x, channel);
          const size_t first = (size_t{line} * p.ow + x) * n, k = ky * channels + channel;
          const bool second = x + 1 < p.ow;
          for (size_t i = 0; i < n; ++i) {
            if (dw) {
              const float e0 = b[first + i], e1 = second ? b[first + n + i] : 0;
              for (uint32_t tap = 0; tap < 3; ++tap)
                c[((ky * 3 + tap) * channels + channel) * n + i] += d[tap] * e0 + d[tap + 1] * e1;
              continue;
            }
            const float* u = &b[(k * n + i) * 4];
            const float m[] = {(d[0] - d[2]) * u[0], (d[1] + d[2]) * u[1], (d[2] - d[1]) * u[2],
                               (d[1] - d[3]) * u[3]};
            c[first + i] += m[0] + m[1] + m[2];
            if (second) c[first + n + i] += m[1] - m[2] - m[3];
          }
        }
  return c;
}

void finish(std::vector<float>& c, const GemmParams& p, uint32_t joins,
            const std::vector<float>& side, const std::vector<float>& residual) {
  for (size_t at = 0; at < c.size(); ++at) {
    if (p.epilogue & GemmParams::kBias) c[at] += side[at % p.n];
    if (joins & GemmKernel::kResidual) c[at] += residual[at];
    if (p.epilogue & GemmParams::kRelu) c[at] = std::max(c[at], 0.0f);
    if ((joins & GemmKernel::kKeep) && side[at] <= 0) c[at] = 0;
  }
}

// `Sum`: what terms are summed in.
template <typename Sum>
std::vector<float> products(GemmMode mode, const GemmParams& p, const std::vector<float>& a,
                            const std::vector<float>& b) {
  std::vector<float> c(static_cast<size_t>(elements_of_c(mode, p)));
  std::vector<Sum> sums(p.n);
  for (uint32_t row = 0; row < p.m; ++row) {
    std::fill(sums.begin(), sums.end(), Sum{0});
    for (uint32_t k = 0; k < p.k; ++k) {
      const int64_t place = place_of_a(mode, p, row, k);
      if (place < 0) continue;
      for (uint32_t i = 0; i < p.n; ++i)
        sums[i] += Sum{a[static_cast<size_t>(place)]} * b[size_t{k} * p.n + i];
    }
    for (uint32_t i = 0; i < p.n; ++i) c[size_t{row} * p.n + i] = static_cast<float>(sums[i]);
  }
  return c;
}

std::vector<float> expected(GemmMode mode, const GemmParams& p, uint32_t joins, bool exact,
                            const std::vector<float>& a, const std::vector<float>& b,
                            const std::vector<float>& side, const std::vector<float>& residual) {
  std::vector<float> c = is_line(mode) ? line_products(mode, p, a, b)
                         : exact       ? products<float>(mode, p, a, b)
                                       : products<double>(mode, p, a, b);
  finish(c, p, joins, side, residual);
  return c;
}

// Returns whether `moments` [tiles, 2, n] are those of the rows of c [rows, n], tile by tile.
bool are_moments(const float* moments, const std::vector<float>& c, size_t n, size_t tile_rows) {
  const size_t rows = c.size() / n;
  for (size_t tile = 0; tile * tile_rows < rows; ++tile)
    for (size_t i = 0; i < n; ++i) {
      const size_t first = tile * tile_rows, last = std::min(first + tile_rows, rows);
      double sum = 0, squares = 0;
      for (size_t row = first; row < last; ++row) sum += c[row * n + i];
      const double mean = sum / static_cast<double>(last - first);
      for (size_t row = first; row < last; ++row) squares += std::pow(c[row * n + i] - mean, 2);
      const float* of_tile = moments + 2 * tile * n + i;
      if (!(std::abs(of_tile[0] - mean) <= 1e-5 * (1 + std::abs(mean))) ||
          !(std::abs(of_tile[n] - squares) <= 1e-5 * (1 + squares)))
        return false;
    }
  return true;
}

// Returns the rows with `pad` elements appended to each.
std::vector<float> with_pad(const std::vector<float>& values, uint32_t columns, uint32_t pad) {
  if (pad == 0) return values;
  std::vector<float> out(values.size() / columns * (columns + pad), -7.0f);
  for (size_t row = 0; row * columns < values.size(); ++row)
    std::copy_n(values.begin() + static_cast<ptrdiff_t>(row * columns), columns,
                out.begin() + static_cast<ptrdiff_t>(row * (columns + pad)));
  return out;
}

// Returns whether results have float32's accuracy; each is a sum of k terms of magnitude at most 1.
// With the check's 117 to 130 terms, sums of float32 one after another reach 0.7 of the limit, and
// matrix units that cut off what they add 1.6 to 2: their errors have one sign and add up.
bool close(const std::vector<float>& got, const std::vector<float>& wanted, uint32_t k) {
  const float most = 8e-7f * std::sqrt(static_cast<float>(k));
  for (size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - wanted[i]) <= most)) return false;
  return true;
}

// `exact`: with numbers of which every sum is exact.
bool computes(gpu::Kernels& kernels, const GemmKernel& kernel, GemmMode mode, uint32_t joins,
              const GemmParams& p, bool exact) {
  const auto numbers = exact ? small_integers : fractions;
  auto a = numbers(static_cast<uint64_t>(elements_of_a(mode, p)), 1);
  auto rounded_a = a;
  if (kernel.rounds != Precision::fp32)
    for (uint64_t i = 0; i < a.size(); ++i) {
      const Rounded of = to_be_rounded(kernel.rounds, i, 1);
      a[i] = of.before, rounded_a[i] = of.after;
    }
  const auto b = numbers(uint64_t{p.k} * p.n, 2);
  const auto of_slice = static_cast<uint64_t>(elements_of_c(mode, p));
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
  const DeviceTensor on_c = emit.scratch({p.slices, elements_of_c(mode, p)});
  emit.add(gpu::Fill{on_c.buffer, 0x7FC00000});  // NaN: what is not written counts as wrong
  emit.set_label("check of a product");
  emit.dispatch(
      kernel.shader, {reads(on_a), reads(on_b), reads(on_side), updates(on_residual), writes(on_c)},
      p, {gpu::div_up(p.m, kernel.tile_rows), gpu::div_up(p.n, kernel.tile_columns), p.slices},
      kernel.constants_with(joins));
  const auto read_back = [&](const DeviceTensor& tensor) {
    const gpu::Buffer to = back.allocate(tensor.buffer.size_bytes);
    emit.add(gpu::Copy{tensor.buffer, to});
    return reinterpret_cast<const float*>(to.host);
  };
  const float *result = read_back(on_c), *moments = read_back(on_residual);
  gpu::run_once(kernels.device(), commands);

  std::vector<float> got(result, result + of_slice * p.slices);
  for (size_t i = of_slice; i < got.size(); ++i) got[i % of_slice] += got[i];
  got.resize(of_slice);
  const std::vector<float> wanted = expected(mode, p, joins, exact, rounded_a, b, side, residual);
  const uint32_t tile_rows = (mode == GemmMode::line ? 2 : 1) * kernel.tile_rows;
  if ((joins & GemmKernel::kMoments) && !are_moments(moments, wanted, p.n, tile_rows)) return false;
  return exact ? got == wanted : close(got, wanted, p.k);
}

}  // namespace

bool computes_rightly(gpu::Kernels& kernels, const GemmKernel& kernel, GemmMode mode,
                      uint32_t joins) {
  const GemmParams p = problem_for(kernel, mode, joins);
  return computes(kernels, kernel, mode, joins, p, kernel.exact) &&
         (p.slices == 1 || !slices_steps(kernel, mode) ||
          computes(kernels, kernel, mode, joins, with_empty_slices(p), true));
}

}  // namespace etr::ops

#include "ops/gemm_kernels.h"

#include <algorithm>

#include "gpu/run_once.h"
#include "ops/measure.h"

namespace etr::ops {
namespace {

const char* mode_name(GemmMode mode) {
  switch (mode) {
    case GemmMode::nn: return "nn";
    case GemmMode::tn: return "tn";
    case GemmMode::conv: return "conv";
    case GemmMode::conv_dx: return "conv_dx";
    case GemmMode::conv_dw: return "conv_dw";
    case GemmMode::line: return "line";
    case GemmMode::line_dw: return "line_dw";
  }
  return "?";
}

uint32_t spread(const GemmParams& p) { return p.line_step != 1 || p.line_offset != 0; }

// k is split only for gradients of weights, which have a long k and a small result.
bool is_split(GemmMode mode) {
  return mode == GemmMode::tn || mode == GemmMode::conv_dw || mode == GemmMode::line_dw;
}

// A tile of shaders/gemm_tiled.comp. `cost` is that of an element relative to the tile that reuses
// most of what it loads, and `at_once` the workgroups that a compute unit runs side by side before
// another one costs time; both as measured on an H200.
struct Tile {
  uint32_t rows, columns, depth, buffers;
  double cost;
  uint32_t at_once;
  uint32_t shared_bytes() const { return buffers * depth * (4 * rows + 16 + 4 * columns); }
  std::string name() const { return cat(rows, "x", columns); }
};
constexpr Tile kTiles[] = {{64, 64, 16, 1, 1.17, 1},
                           {128, 128, 16, 2, 1, 1},
                           {128, 64, 16, 1, 1.03, 3},
                           {128, 32, 16, 1, 1.33, 1},
                           {256, 16, 8, 1, 1.95, 2}};
// gemm_tiled_tn_128x128 has one buffer, so that a compute unit has room for two workgroups.
constexpr Tile kWidestOfTn = {128, 128, 16, 1, 1.04, 2};

// The operands that a kernel for GPUs loads four numbers at a time: those whose extent along the
// axis in memory is a multiple of four.
constexpr uint32_t kWideA = 1, kWideB = 2;

void load_widely(GemmKernel& kernel, GemmMode mode, const GemmParams& p) {
  const uint32_t of_a = mode == GemmMode::nn        ? p.k
                        : mode == GemmMode::tn      ? p.m
                        : mode == GemmMode::conv_dw ? p.c
                                                    : p.kc;
  kernel.loads_a = of_a % 4 == 0 ? 4 : 1;
  kernel.loads_b = p.n % 4 == 0 ? 4 : 1;
  kernel.constants.push_back((kernel.loads_a == 4 ? kWideA : 0) |
                             (kernel.loads_b == 4 ? kWideB : 0));
}

GemmKernel tiled(const gpu::Device& device, const Tile& tile, GemmMode mode, const GemmParams& p) {
  GemmKernel out{cat("gemm_tiled_", mode_name(mode), "_", tile.name()),
                 {spread(p)},
                 tile.rows,
                 tile.columns,
                 0};
  load_widely(out, mode, p);
  out.steps = tile.depth;
  // Compilers for CPUs take long for the unrolled loop and gain nothing.
  out.constants.push_back(device.info().kind == gpu::DeviceKind::cpu ? 1 : tile.depth);
  out.cost = tile.cost, out.at_once = tile.at_once;
  out.can_join = GemmKernel::kResidual | GemmKernel::kKeep;
  return out;
}

// Compute units of a large GPU. Vulkan does not tell how many a device has.
constexpr uint32_t kUnits = 132;

// Estimates the time of a product on a GPU with so many slices of k, in multiply-adds of a compute
// unit: the work of the busiest unit, and the sum over the slices.
double estimate(const GemmKernel& kernel, const GemmParams& p, uint32_t slices) {
  constexpr double kStart = 64;  // steps along k that a workgroup's start and end take
  constexpr double kSum = 1;     // of an element of a slice
  const uint32_t groups = gpu::div_up(p.m, kernel.tile_rows) *
                          gpu::div_up(p.n, kernel.tile_columns) * p.groups * slices;
  const double each = kernel.cost * kernel.tile_rows * kernel.tile_columns *
                      (static_cast<double>(p.k) / slices + kStart);
  const double sum = slices == 1 ? 0 : kSum * slices * p.m * p.n * p.groups / kUnits;
  return gpu::div_up(groups, kUnits * kernel.at_once) * kernel.at_once * each + sum;
}

uint32_t most_slices(const GemmKernel& kernel, GemmMode mode, const GemmParams& p) {
  if (!is_split(mode)) return 1;
  if (kernel.wanted_groups)
    return std::max(slices_lines(kernel, mode) ? p.batch * p.oh : p.k / 64, 1u);
  constexpr uint32_t kMostElements = 1 << 26;  // of all slices of a result
  const uint64_t elements = uint64_t{p.m} * p.n * p.groups;
  const auto fit = static_cast<uint32_t>(kMostElements / std::max<uint64_t>(elements, 1));
  return std::max(std::min({p.k / 64, fit, kMostGroups / p.groups}), 1u);
}

uint32_t default_slices(const GemmKernel& kernel, GemmMode mode, const GemmParams& p) {
  if (!is_split(mode)) return 1;
  const uint32_t most = most_slices(kernel, mode, p);
  if (kernel.wanted_groups) {
    const uint32_t tiles =
        gpu::div_up(p.m, kernel.tile_rows) * gpu::div_up(p.n, kernel.tile_columns) * p.groups;
    return std::clamp(gpu::div_up(kernel.wanted_groups, tiles), kernel.least_slices, most);
  }
  // More slices need more memory, which a few percent of an estimate are not worth.
  constexpr double kLeastGain = 0.97;
  uint32_t best = kernel.least_slices;
  double least = estimate(kernel, p, best);
  for (uint32_t slices = best + 1; slices <= std::min(most, 8 * kUnits); ++slices)
    if (const double time = estimate(kernel, p, slices); time < kLeastGain * least)
      best = slices, least = time;
  return best;
}

void sort_by_estimate(std::vector<GemmKernel>& kernels, GemmMode mode, const GemmParams& p) {
  std::vector<std::pair<double, GemmKernel>> all;
  for (GemmKernel& kernel : kernels) {
    const double time = estimate(kernel, p, default_slices(kernel, mode, p));
    all.emplace_back(time, std::move(kernel));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  kernels.clear();
  for (auto& [time, kernel] : all) kernels.push_back(std::move(kernel));
}

// Returns the kernels with the likely fastest first.
std::vector<GemmKernel> on_tiles(const gpu::Device& device, GemmMode mode, const GemmParams& p) {
  std::vector<GemmKernel> out;
  for (const Tile& of_most : kTiles) {
    const bool widest = of_most.rows == kWidestOfTn.rows && of_most.columns == kWidestOfTn.columns;
    const Tile& tile = mode == GemmMode::tn && widest ? kWidestOfTn : of_most;
    if (tile.shared_bytes() <= device.info().max_shared_bytes)
      out.push_back(tiled(device, tile, mode, p));
  }
  sort_by_estimate(out, mode, p);
  return out;
}

// The extent along which the CPU kernel walks k in steps of four.
uint32_t inner_extent(GemmMode mode, const GemmParams& p) {
  if (mode == GemmMode::conv_dw) return p.ow;
  return mode == GemmMode::nn || mode == GemmMode::tn ? p.k : p.kc;
}

// A tile of the CPU kernel (shaders/gemm_cpu.comp). `cost` is that of an element relative to the
// first tile: fewer columns share a broadcast of A, and fewer rows a load of B.
struct CpuTile {
  uint32_t lanes, rows, columns;
  double cost;
};
constexpr CpuTile kCpuTiles[] = {{16, 64, 64, 1},   {16, 32, 64, 1.2},  {16, 128, 32, 1.15},
                                 {16, 64, 32, 1.3}, {16, 128, 16, 1.7}, {8, 32, 64, 1},
                                 {8, 64, 32, 1.05}, {8, 64, 16, 1.45}};

// The operands that a kernel for CPUs loads two numbers at a time, as in
// shaders/gemm_cpu_operand.glsl.
constexpr uint32_t kPairsOfA = 1, kPairsOfB = 2;

void load_in_pairs(GemmKernel& kernel, uint32_t pairs) {
  kernel.constants.push_back(pairs);
  kernel.loads_a = (pairs & kPairsOfA) ? 2 : 1;
  kernel.loads_b = (pairs & kPairsOfB) ? 2 : 1;
}

// `tail`: steps of four along k leave a rest.
uint32_t pairs_for(GemmMode mode, const GemmParams& p, bool tail, uint32_t lanes,
                   uint32_t columns) {
  const bool by_weights = mode == GemmMode::conv_dw || mode == GemmMode::line_dw;
  const bool of_a = mode == GemmMode::tn ? p.m % 2 == 0 : by_weights ? p.c % 2 == 0 : !tail;
  // Along lines, the four numbers of a filter lie together and are always loaded in pairs.
  const bool of_b = mode != GemmMode::line && p.n % 2 == 0 && columns >= 2 * lanes;
  return (of_a ? kPairsOfA : 0) | (of_b ? kPairsOfB : 0);
}

// Rows whose distance is a multiple of a page map to the same cache lines. For a large product, a
// copy of the operands with longer rows costs less than the conflicts.
std::vector<uint32_t> pads_for(GemmMode mode, const GemmParams& p) {
  constexpr uint32_t kPage = 1024, kPad = 16;  // in floats
  const bool collides = p.k % kPage == 0 || p.n % kPage == 0;
  if (mode != GemmMode::nn || p.groups != 1 || !collides || p.m < 256 || p.n < 256) return {0};
  return {kPad, 0};
}

// Returns the kernels with the likely fastest tile first.
std::vector<GemmKernel> on_cpu(const gpu::Device& device, GemmMode mode, const GemmParams& p) {
  const uint32_t lanes = device.info().subgroup_size, inner = inner_extent(mode, p);
  std::vector<CpuTile> tiles;
  for (const CpuTile& tile : kCpuTiles)
    if (tile.lanes == lanes) tiles.push_back(tile);
  const auto cost = [&](const CpuTile& tile) {
    return tile.cost * gpu::div_up(p.m, tile.rows) * tile.rows * gpu::div_up(p.n, tile.columns) *
           tile.columns;
  };
  std::stable_sort(tiles.begin(), tiles.end(),
                   [&](const CpuTile& a, const CpuTile& b) { return cost(a) < cost(b); });
  std::vector<GemmKernel> out;
  constexpr uint32_t kFewRows = 4;  // the limit of shaders/gemm_cpu_row.comp
  if (mode == GemmMode::nn && p.m <= kFewRows && p.groups == 1) {
    const uint32_t columns = 4 * lanes, of_b = pairs_for(mode, p, /*tail=*/true, lanes, columns);
    out.push_back({cat("gemm_cpu_row_", lanes), {p.m}, p.m, columns, 16});
    out.back().steps = lanes;
    load_in_pairs(out.back(), of_b);
  }
  for (const uint32_t pad : pads_for(mode, p))
    for (const CpuTile& tile : tiles) {
      out.push_back(
          {cat("gemm_cpu_", mode_name(mode), "_", lanes, "_", tile.rows, "x", tile.columns),
           {inner % 4 != 0, spread(p), pad},
           tile.rows,
           tile.columns,
           16});
      load_in_pairs(out.back(), pairs_for(mode, p, inner % 4 != 0, lanes, tile.columns));
      out.back().pad = pad;
      out.back().can_join = GemmKernel::kResidual | GemmKernel::kKeep;
      if (!spread(p)) out.back().can_join |= GemmKernel::kMoments;
    }
  return out;
}

// Tiles of shaders/conv_line.comp: columns, and rows per lane; the likely fastest first. A tile has
// four sums for each of its elements, which must stay in the L1 cache.
struct LineTile {
  uint32_t lanes, columns, blocks;
};
constexpr LineTile kLineTiles[] = {{16, 16, 4}, {16, 32, 1}, {16, 16, 2},
                                   {8, 32, 2},  {8, 32, 1},  {8, 16, 2}};
constexpr LineTile kLineTilesDw[] = {{16, 16, 2}, {8, 32, 2}, {8, 16, 2}};

std::vector<GemmKernel> on_lines(const gpu::Device& device, GemmMode mode, const GemmParams& p) {
  const bool dw = mode == GemmMode::line_dw;
  const uint32_t lanes = device.info().subgroup_size;
  const uint32_t tail = dw ? p.ow % 8 != 0 : p.c % 4 != 0;
  std::vector<GemmKernel> out;
  if (device.family() != gpu::KernelFamily::cpu) return out;
  for (const LineTile& tile :
       dw ? std::span<const LineTile>(kLineTilesDw) : std::span<const LineTile>(kLineTiles)) {
    if (tile.lanes != lanes) continue;
    const uint32_t loose = !dw && p.ow % (2 * tile.blocks) != 0;
    GemmKernel kernel{
        cat("conv_", mode_name(mode), "_", lanes, "_", tile.columns, "x", tile.blocks),
        {tail, loose},
        lanes * tile.blocks,
        tile.columns,
        16};
    load_in_pairs(kernel, pairs_for(mode, p, tail != 0, lanes, tile.columns));
    if (dw) kernel.steps = 8;  // four pairs of pixels
    if (!dw) kernel.run = tile.blocks;
    if (!dw) kernel.can_join = GemmKernel::kResidual | GemmKernel::kKeep;
    if (!dw && !loose) kernel.can_join |= GemmKernel::kMoments;
    out.push_back(std::move(kernel));
  }
  // Prefer the tile that leaves the fewest columns empty, and then one whose runs fit the lines.
  const auto columns = [&](const GemmKernel& kernel) {
    return gpu::div_up(p.n, kernel.tile_columns) * kernel.tile_columns;
  };
  std::stable_sort(out.begin(), out.end(), [&](const GemmKernel& a, const GemmKernel& b) {
    return std::pair(columns(a), a.constants[1]) < std::pair(columns(b), b.constants[1]);
  });
  return out;
}

constexpr uint32_t kMatrixDepth = 32;  // DEPTH in shaders/matrix/gemm_matrix.comp

// Returns the matrix unit with the largest product that fits the shader.
const gpu::MatrixUnit* matrix_unit(const gpu::Device& device, bool bfloat16) {
  const gpu::MatrixUnit* best = nullptr;
  for (const gpu::MatrixUnit& unit : device.info().matrix_units) {
    const bool fits = unit.bfloat16 == bfloat16 && unit.m <= 16 && unit.n <= 16 &&
                      kMatrixDepth % unit.k == 0 && unit.m % 4 == 0 && unit.n % 4 == 0 &&
                      unit.k % 4 == 0;
    if (fits && (!best || unit.m * unit.n * unit.k > best->m * best->n * best->k)) best = &unit;
  }
  return best;
}

// A tile of the shader: matrices of a subgroup along rows and columns, and subgroups; `cost` and
// `at_once` as in Tile.
struct MatrixTile {
  uint32_t rows, columns, down, across;
  double cost;
  uint32_t at_once;
};
constexpr MatrixTile kMatrixTiles[] = {{4, 4, 2, 2, 1, 2},
                                       {4, 4, 4, 2, 0.98, 1},
                                       {2, 2, 4, 2, 1.19, 2},
                                       {2, 2, 2, 2, 1.36, 1},
                                       {1, 1, 2, 2, 2.5, 4}};

// `parts` of a float: 1 or 3, see the shader.
std::optional<GemmKernel> on_matrices(const gpu::Device& device, const MatrixTile& tile,
                                      GemmMode mode, const GemmParams& p,
                                      const gpu::MatrixUnit& unit, uint32_t parts) {
  const uint32_t subgroups = tile.down * tile.across,
                 lanes = subgroups * device.info().subgroup_size;
  const uint32_t rows = unit.m * tile.rows * tile.down,
                 columns = unit.n * tile.columns * tile.across;
  const uint32_t by_rows = rows * (kMatrixDepth + 8), by_k = kMatrixDepth * (rows + 8);
  const bool along_k = mode != GemmMode::tn && mode != GemmMode::conv_dw;
  const uint32_t shared = 2 * parts * ((along_k ? by_rows : by_k) + kMatrixDepth * (columns + 8)) +
                          4 * subgroups * unit.m * unit.n;
  // The invocations must share out the lines of a tile evenly.
  const bool even = lanes % (rows / 4) == 0 && lanes % (kMatrixDepth / 4) == 0 &&
                    rows * kMatrixDepth / 4 % lanes == 0 && columns * kMatrixDepth / 4 % lanes == 0;
  if (shared > device.info().max_shared_bytes || lanes > device.info().max_workgroup || !even)
    return std::nullopt;
  GemmKernel kernel{cat("gemm_matrix_", unit.bfloat16 ? "bf16" : "fp16", parts == 3 ? "x3" : ""),
                    {static_cast<uint32_t>(mode), spread(p), unit.m, unit.n, unit.k, tile.rows,
                     tile.columns, tile.down, tile.across, lanes},
                    rows,
                    columns,
                    0};
  load_widely(kernel, mode, p);
  kernel.steps = kMatrixDepth;
  kernel.cost = tile.cost, kernel.at_once = tile.at_once;
  if (parts == 1) kernel.rounds = unit.bfloat16 ? Precision::bf16 : Precision::fp16;
  kernel.exact = parts == 1;
  kernel.can_join = GemmKernel::kResidual | GemmKernel::kKeep;
  return kernel;
}

// Returns the kernels with the likely fastest one first.
std::vector<GemmKernel> on_matrices(const gpu::Device& device, GemmMode mode, const GemmParams& p,
                                    bool bfloat16, uint32_t parts) {
  const gpu::MatrixUnit* unit = matrix_unit(device, bfloat16);
  if (!unit) return {};
  std::vector<GemmKernel> out;
  for (const MatrixTile& tile : kMatrixTiles)
    if (auto kernel = on_matrices(device, tile, mode, p, *unit, parts))
      out.push_back(std::move(*kernel));
  sort_by_estimate(out, mode, p);
  return out;
}

void append(std::vector<GemmKernel>& to, std::vector<GemmKernel> more) {
  to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

std::vector<uint32_t> GemmKernel::constants_with(uint32_t joins) const {
  std::vector<uint32_t> out = constants;
  if (joins) out.push_back(joins);
  return out;
}

std::string GemmKernel::name() const {
  std::string out = shader;
  for (const uint32_t constant : constants) out += cat(" ", constant);
  if (slices) out += cat(" / ", slices);
  return out;
}

namespace {

bool grid_fits(const gpu::Device& device, const GemmKernel& kernel, GemmMode mode,
               const GemmParams& p) {
  const auto& most = device.info().max_groups;
  const uint32_t rows = mode == GemmMode::line ? rows_of_lines(kernel, p) : p.m;
  return gpu::div_up(rows, kernel.tile_rows) <= most[0] &&
         gpu::div_up(p.n, kernel.tile_columns) <= most[1];
}

std::vector<GemmKernel> all_kernels(const gpu::Device& device, GemmMode mode, const GemmParams& p,
                                    Precision precision) {
  if (mode == GemmMode::line || mode == GemmMode::line_dw) return on_lines(device, mode, p);
  std::vector<GemmKernel> out;
  const bool matrices = device.family() == gpu::KernelFamily::matrix;
  if (matrices && precision != Precision::fp32)
    append(out, on_matrices(device, mode, p, precision == Precision::bf16, 1));
  if (device.family() == gpu::KernelFamily::cpu) {
    append(out, on_cpu(device, mode, p));
    out.push_back(tiled(device, kTiles[0], mode, p));
  } else {
    append(out, on_tiles(device, mode, p));
  }
  // Floats as three bfloat16 come last, so that only a measurement selects them: which is faster
  // depends on the device.
  if (matrices && precision == Precision::fp32) append(out, on_matrices(device, mode, p, true, 3));
  return out;
}

// Returns the fewest slices whose iterations are at most `limit`, or as many as there can be.
uint32_t least_slices(GemmKernel kernel, GemmMode mode, const GemmParams& p, uint32_t limit) {
  uint32_t least = 1;
  for (uint32_t most = most_slices(kernel, mode, p); least < most;) {
    kernel.slices = (least + most) / 2;
    if (iterations_of(kernel, mode, p) <= limit)
      most = kernel.slices;
    else
      least = kernel.slices + 1;
  }
  return least;
}

// Makes the kernels keep within the iterations that the driver does before it ends a loop. The most
// pressing case is the gradient of weights over a large batch.
void keep_iterations(const gpu::Device& device, std::vector<GemmKernel>& kernels, GemmMode mode,
                     const GemmParams& p) {
  const uint32_t limit = device.info().max_iterations;
  if (limit == 0) return;
  for (GemmKernel& kernel : kernels) kernel.least_slices = least_slices(kernel, mode, p, limit);
  const auto fits = [&](GemmKernel kernel) {
    kernel.slices = kernel.least_slices;
    return iterations_of(kernel, mode, p) <= limit;
  };
  if (std::any_of(kernels.begin(), kernels.end(), fits))
    std::erase_if(kernels, [&](const GemmKernel& kernel) { return !fits(kernel); });
}

}  // namespace

std::vector<GemmKernel> kernels_for(const gpu::Device& device, GemmMode mode, const GemmParams& p,
                                    Precision precision) {
  std::vector<GemmKernel> out = all_kernels(device, mode, p, precision);
  std::erase_if(out, [&](const GemmKernel& kernel) { return !grid_fits(device, kernel, mode, p); });
  keep_iterations(device, out, mode, p);
  return out;
}

bool slices_lines(const GemmKernel& kernel, GemmMode mode) {
  return mode == GemmMode::line_dw ||
         (mode == GemmMode::conv_dw && kernel.shader.starts_with("gemm_cpu"));
}

uint64_t iterations_of(const GemmKernel& kernel, GemmMode mode, const GemmParams& p) {
  const auto along = [&](uint64_t length) -> uint64_t { return gpu::div_up(length, kernel.steps); };
  const uint32_t slices = std::max(kernel.slices, 1u);
  if (slices_lines(kernel, mode))
    return uint64_t{gpu::div_up(uint64_t{p.batch} * p.oh, slices)} * (2 + along(p.ow));
  if (mode == GemmMode::line) return p.kh * (2 + along(p.c));
  const bool on_cpu = kernel.shader.starts_with("gemm_cpu");
  if (on_cpu && (mode == GemmMode::conv || mode == GemmMode::conv_dx))
    return p.kh * (3 + p.kw * (2 + along(p.kc)));
  const uint64_t tiles = along(gpu::div_up(p.k, slices));
  // Some of the tiles of shaders/gemm_tiled.comp have their inner loop unrolled, others do not.
  return on_cpu ? tiles : tiles * (2 + kernel.steps);
}

std::vector<uint32_t> slices_for(const GemmKernel& kernel, GemmMode mode, const GemmParams& p) {
  const uint32_t usual = default_slices(kernel, mode, p);
  std::vector<uint32_t> out{usual};
  if (!is_split(mode)) return out;
  for (const uint32_t other : {usual / 4, usual / 2, usual * 2, usual * 4})
    if (other >= kernel.least_slices && other <= most_slices(kernel, mode, p) &&
        std::find(out.begin(), out.end(), other) == out.end())
      out.push_back(other);
  return out;
}

std::string problem_name(GemmMode mode, const GemmParams& p, Precision precision) {
  const char* const precisions[] = {"fp32", "bf16", "fp16"};
  std::string out = cat(mode_name(mode), " ", p.m, "x", p.n, "x", p.k, " ",
                        precisions[static_cast<size_t>(precision)]);
  if (mode == GemmMode::nn || mode == GemmMode::tn) return out;
  out += cat(" image ", p.h, "x", p.w, "x", p.c, " kernel ", p.kh, "x", p.kw, " stride ", p.stride,
             "x", p.stride_x);
  if (p.dilation != 1) out += cat(" dilation ", p.dilation);
  if (p.groups != 1) out += cat(" groups ", p.groups);
  if (spread(p)) out += cat(" lines ", p.line_step, "+", p.line_offset);
  return out;
}

int64_t elements_of_a(GemmMode mode, const GemmParams& p) {
  if (mode == GemmMode::nn || mode == GemmMode::tn) return int64_t{p.m} * p.k;
  if (mode == GemmMode::conv_dx) return int64_t{p.batch} * p.oh * p.ow * p.groups * p.kc;
  return int64_t{p.batch} * p.h * p.w * p.groups * p.c;
}

uint32_t rows_of_lines(const GemmKernel& kernel, const GemmParams& p) {
  return p.batch * p.oh * gpu::div_up(p.ow, 2 * kernel.run) * kernel.run;
}

int64_t elements_of_c(GemmMode mode, const GemmParams& p) {
  if (mode == GemmMode::line) return int64_t{p.batch} * p.oh * p.ow * p.n;
  if (mode == GemmMode::line_dw) return int64_t{p.m} * 3 * p.n;
  return int64_t{p.line_step} * p.m * p.groups * p.n;
}

bool trusted(gpu::Kernels& kernels, const GemmKernel& kernel, GemmMode mode, uint32_t joins) {
  return kernels.trusts(kernel.shader, kernel.constants_with(joins), !kernel.exact,
                        [&] { return computes_rightly(kernels, kernel, mode, joins); });
}

gpu::Dispatch with_joins(gpu::Kernels& kernels, const gpu::Dispatch& product, uint32_t joins,
                         bool relu) {
  const auto& now = dynamic_cast<const Product&>(*product.fusible);
  auto next = std::make_shared<Product>(now);
  next->joins |= joins;
  if (relu) next->params.epilogue |= GemmParams::kRelu;
  constexpr uint32_t kOneBuffer = GemmKernel::kResidual | GemmKernel::kMoments;
  const bool can = (joins & ~now.kernel.can_join) == 0 && (joins & now.joins) == 0 &&
                   (next->joins & kOneBuffer) != kOneBuffer;
  if (!can || !trusted(kernels, now.kernel, now.mode, next->joins)) return {};
  gpu::Dispatch out = product;
  out.kernel = &kernels.get(now.kernel.shader, now.kernel.constants_with(next->joins),
                            out.bindings.size(), sizeof(GemmParams));
  out.push = gpu::push_bytes(next->params);
  out.fusible = std::move(next);
  return out;
}

namespace {

// A problem's operands on the device, and its product by each kernel.
class Ways {
 public:
  Ways(gpu::Kernels& kernels, GemmMode mode, const GemmParams& p, Precision precision)
      : operands_(kernels.device(), gpu::MemoryUse::device), memory_(kernels.device()) {
    gpu::CommandList commands;
    Emitter emit(kernels, operands_, commands);
    const DeviceTensor a = emit.scratch({elements_of_a(mode, p)});
    const DeviceTensor b = emit.scratch({p.k, p.groups * p.n});
    const DeviceTensor c = emit.scratch({elements_of_c(mode, p)});
    for (const DeviceTensor& operand : {a, b}) emit.add(gpu::Fill{operand.buffer, 0x3F800000});
    gpu::run_once(kernels.device(), commands);
    for (GemmKernel& kernel : kernels_for(*kernels.device(), mode, p, precision)) {
      if (!trusted(kernels, kernel, mode)) continue;
      for (const uint32_t slices : slices_for(kernel, mode, p)) {
        kernel.slices = slices;
        ways_.push_back({kernel.name(), {}});
        memory_.rewind();
        Emitter one(kernels, memory_, ways_.back().commands);
        one.set_label("tuning");
        one.set_precision(precision);
        emit_with(one, kernel, mode, p, a, b, {}, c, 0);
      }
    }
  }
  const std::vector<Way>& operator*() const { return ways_; }

 private:
  gpu::Arena operands_;
  WayMemory memory_;
  std::vector<Way> ways_;
};

}  // namespace

std::string measure_kernels(gpu::Kernels& kernels, GemmMode mode, const GemmParams& p,
                            Precision precision) {
  const Ways ways(kernels, mode, p, precision);
  return (*ways).size() < 2 ? "" : fastest_of(kernels, *ways);
}

std::vector<KernelTime> time_kernels(gpu::Kernels& kernels, GemmMode mode, const GemmParams& p,
                                     Precision precision) {
  const Ways ways(kernels, mode, p, precision);
  std::vector<KernelTime> out;
  const std::vector<double> seconds = time_of_each(kernels, *ways);
  for (size_t i = 0; i < seconds.size(); ++i) out.push_back({(*ways)[i].name, seconds[i]});
  return out;
}

}  // namespace etr::ops

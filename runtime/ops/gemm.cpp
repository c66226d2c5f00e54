#include "ops/gemm.h"

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "ops/gemm_kernels.h"
#include "ops/pointwise.h"

namespace etr::ops {
namespace {

DeviceTensor rounded(Emitter& emit, const DeviceTensor& x) {
  const DeviceTensor y = emit.scratch(x.shape);
  emit.for_each("round_to", {reads(x), writes(y)}, x.count(), x.count(),
                {static_cast<uint32_t>(emit.precision())});
  return y;
}

// Returns x [rows, columns] with rows `pad` elements longer.
DeviceTensor padded(Emitter& emit, const DeviceTensor& x, uint32_t rows, uint32_t pad) {
  const uint32_t columns = x.count() / rows, slices = row_slices(*emit.device(), rows, columns);
  const struct { uint32_t rows, columns, slices, pad; } push{rows, columns, slices, pad};
  const DeviceTensor y = emit.scratch({rows, columns + pad});
  emit.for_channels("pad_rows", {reads(x), writes(y)}, push, columns, slices);
  return y;
}

// Returns whether the operands are aligned to the vectors that the kernel loads and stores.
bool are_aligned(const GemmKernel& kernel, GemmMode mode, const DeviceTensor& a,
                 const DeviceTensor& b, const DeviceTensor& c) {
  const auto fits = [](const DeviceTensor& x, uint32_t loads) {
    return x.buffer.offset % (4 * loads) == 0;
  };
  // The transformed filter of a line is loaded in pairs whatever n is.
  const uint32_t loads_b = mode == GemmMode::line ? 2 : kernel.loads_b;
  return fits(a, kernel.loads_a) && fits(b, loads_b) && fits(c, kernel.loads_b);
}

// Returns the kernel that was measured fastest, or else the likely fastest, among those that the
// driver computes as the host does.
GemmKernel choose(Emitter& emit, GemmMode mode, const GemmParams& p) {
  const Precision precision = emit.precision();
  std::vector<GemmKernel> kernels;  // each with the numbers of slices that are worth trying
  std::vector<std::string> names;
  for (GemmKernel& kernel : kernels_for(*emit.device(), mode, p, precision))
    for (const uint32_t slices : slices_for(kernel, mode, p)) {
      kernel.slices = slices;
      kernels.push_back(kernel);
      names.push_back(kernel.name());
    }
  const std::string best = emit.kernels().tuning().choice(
      problem_name(mode, p, precision), names,
      [=](gpu::Kernels& on) { return measure_kernels(on, mode, p, precision); });
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == best && trusted(emit.kernels(), kernels[i], mode)) return kernels[i];
  for (const GemmKernel& kernel : kernels)
    if (trusted(emit.kernels(), kernel, mode)) return kernel;
  const gpu::DeviceInfo& info = emit.device()->info();
  fail(Code::device, "the driver of '", info.name, "' (", info.driver,
       ") does not compile the kernel '", kernels.back().shader,
       "', or computes it wrongly, and there is no other: update it, or choose another device");
}

constexpr uint32_t kInTurnCpu = 4096;  // sums that one invocation of a CPU adds

// Whether a GPU adds slices by workgroups that share them: few columns would not occupy it.
bool adds_in_groups(const Emitter& emit, uint32_t slices, uint32_t count) {
  return emit.device()->family() != gpu::KernelFamily::cpu && slices <= 4096 && count < 1 << 16;
}

void emit_in_groups(Emitter& emit, const char* shader, std::vector<gpu::Binding> bindings,
                    uint32_t slices, uint32_t count) {
  const uint32_t streams = std::clamp(std::bit_ceil(slices / 4), 8u, 64u);
  const struct { uint32_t rows, columns, slices; } push{slices, count, 1};
  emit.for_tiles(shader, std::move(bindings), push, count, 1, {256 / streams, streams});
}

}  // namespace

void emit_with(Emitter& emit, const GemmKernel& kernel, GemmMode mode, GemmParams p,
               const DeviceTensor& wide_a, const DeviceTensor& wide_b, const DeviceTensor& bias,
               const DeviceTensor& out, double flops) {
  const bool round = kernel.rounds != emit.precision();
  const auto prepared = [&](const DeviceTensor& wide, uint32_t rows) {
    const DeviceTensor x = round ? rounded(emit, wide) : wide;
    return kernel.pad ? padded(emit, x, rows, kernel.pad) : x;
  };
  const DeviceTensor a = prepared(wide_a, p.m), b = prepared(wide_b, p.k);
  if (!are_aligned(kernel, mode, a, b, out))
    fail(Code::internal, "the kernel '", kernel.shader,
         "' needs operands that are aligned to its vectors");
  if (mode == GemmMode::line) p.m = rows_of_lines(kernel, p);
  const uint32_t x = gpu::div_up(p.m, kernel.tile_rows), y = gpu::div_up(p.n, kernel.tile_columns);
  p.slices = kernel.slices;
  if (bias) p.epilogue |= GemmParams::kBias;
  emit.require_iterations(iterations_of(kernel, mode, p));
  const int64_t elements = elements_of_c(mode, p);
  const DeviceTensor target = p.slices == 1 ? out : emit.scratch({p.slices, elements});
  emit.dispatch(kernel.shader,
                {reads(a), reads(b), reads(bias ? bias : b), reads(b), writes(target)}, p,
                {x, y, p.groups * p.slices}, kernel.constants);
  emit.count_flops(flops > 0 ? flops : 2.0 * p.m * p.n * p.groups * p.k);
  if (p.slices > 1) {
    emit_sum_slices(emit, target, out, p.slices, static_cast<uint32_t>(elements));
  } else if (kernel.can_join) {
    auto note = std::make_shared<Product>();
    note->kernel = kernel, note->mode = mode, note->params = p;
    emit.set_fusible(std::move(note));
  }
}

namespace {

// Returns the number of parts into which a product can be split: its rows or, in a convolution,
// images.
uint32_t parts_of(GemmMode mode, const GemmParams& p) {
  if (mode == GemmMode::nn) return p.m;
  const bool by_images =
      mode == GemmMode::conv || mode == GemmMode::conv_dx || mode == GemmMode::line;
  return by_images ? p.batch : 1;
}

// Returns the product's first `parts` parts.
GemmParams first_of(GemmMode mode, GemmParams p, uint32_t parts) {
  p.m = p.m / parts_of(mode, p) * parts;
  if (mode != GemmMode::nn) p.batch = p.batch / parts_of(mode, p) * parts;
  return p;
}

// Returns the largest number of parts whose tiles the device takes as the workgroups of a dispatch,
// such that A and C can be bound behind as many.
uint32_t parts_at_once(const Emitter& emit, GemmMode mode, GemmParams p) {
  constexpr int64_t kAligned = 64;  // elements, in the largest alignment that Vulkan allows
  const GemmParams one = first_of(mode, p, 1);
  const int64_t a = elements_of_a(mode, one), c = elements_of_c(mode, one);
  uint32_t step = 1;
  while (step * a % kAligned || step * c % kAligned) step *= 2;
  uint32_t parts = parts_of(mode, p) / step * step;
  const auto fits = [&](uint32_t some) {
    return !kernels_for(*emit.device(), mode, first_of(mode, p, some), emit.precision()).empty();
  };
  while (parts > step && !fits(parts)) parts = (parts / 2 + step - 1) / step * step;
  if (parts == 0 || !fits(parts))
    fail(Code::unsupported, emit.label(), ": a product of ", p.m, " by ", p.n,
         " numbers needs more workgroups than device '", emit.device()->info().name,
         "' takes along an axis (", emit.device()->info().max_groups[0], "); use smaller samples");
  return parts;
}

}  // namespace

void emit_gemm(Emitter& emit, GemmMode mode, GemmParams p, const DeviceTensor& a,
               const DeviceTensor& b, const DeviceTensor& bias, const DeviceTensor& out,
               double flops) {
  if (!kernels_for(*emit.device(), mode, p, emit.precision()).empty())
    return emit_with(emit, choose(emit, mode, p), mode, p, a, b, bias, out, flops);
  const uint32_t all = parts_of(mode, p), most = parts_at_once(emit, mode, p);
  for (uint32_t first = 0; first < all; first += most) {
    const uint32_t count = std::min(most, all - first);
    const GemmParams some = first_of(mode, p, count);
    const auto part = [&](const DeviceTensor& whole) {
      return samples_of({whole.buffer, {all, element_count(whole.shape) / all}}, first, count);
    };
    emit_with(emit, choose(emit, mode, some), mode, some, part(a), b, bias, part(out),
              flops * count / all);
  }
}

std::optional<Moments> emit_moments(Emitter& emit, const DeviceTensor& x) {
  auto writer = emit.commands().rbegin();
  const auto writes_x = [&](const gpu::Command& command) {
    const auto* dispatch = std::get_if<gpu::Dispatch>(&command);
    return dispatch && dispatch->bindings.back().buffer == x.buffer;
  };
  writer = std::find_if(writer, emit.commands().rend(), writes_x);
  if (writer == emit.commands().rend()) return std::nullopt;
  auto& dispatch = std::get<gpu::Dispatch>(*writer);
  const auto* product = dynamic_cast<const Product*>(dispatch.fusible.get());
  if (!product || (product->params.epilogue & GemmParams::kRelu)) return std::nullopt;
  const GemmParams& p = product->params;
  const uint32_t columns = p.groups * p.n, tile_rows = product->kernel.tile_rows;
  // A view of the result may have channels that are not the product's columns.
  if (columns % static_cast<uint32_t>(x.shape.back()) != 0) return std::nullopt;
  gpu::Dispatch with = with_joins(emit.kernels(), dispatch, GemmKernel::kMoments, false);
  if (!with.kernel) return std::nullopt;
  const uint32_t pixels = product->mode == GemmMode::line ? 2 : 1;  // pixels per row of the product
  const Moments out{emit.scratch({gpu::div_up(p.m, tile_rows), 2, columns}), pixels * p.m,
                    pixels * tile_rows, columns / static_cast<uint32_t>(x.shape.back())};
  with.bindings[3] = writes(out.partial);
  dispatch = std::move(with);
  return out;
}

void emit_transpose(Emitter& emit, const DeviceTensor& in, const DeviceTensor& out, uint32_t batch,
                    uint32_t rows, uint32_t columns) {
  const struct {
    uint32_t rows, columns, slices;
  } push{rows, columns, row_slices(*emit.device(), columns, rows)};
  constexpr uint32_t kTile = 32;
  const bool is_cpu = emit.device()->family() == gpu::KernelFamily::cpu;
  const bool thin =
      std::min(rows, columns) < kTile / 2 || std::max(rows, columns) > kTile * kMostGroups;
  if (is_cpu || thin)
    emit.for_channels(is_cpu ? "transpose" : "transpose_thin", {reads(in), writes(out)}, push, rows,
                      push.slices, batch);
  else
    emit.dispatch("transpose", {reads(in), writes(out)}, push,
                  {gpu::div_up(columns, kTile), gpu::div_up(rows, kTile), batch});
}

void emit_sum_slices(Emitter& emit, const DeviceTensor& in, const DeviceTensor& out,
                     uint32_t slices, uint32_t count) {
  constexpr uint32_t kInTurn = 64;  // sums that one invocation of a GPU adds
  const bool is_cpu = emit.device()->family() == gpu::KernelFamily::cpu;
  if (adds_in_groups(emit, slices, count))
    return emit_in_groups(emit, "column_sum", {reads(in), writes(out)}, slices, count);
  if (slices > (is_cpu ? kInTurnCpu : kInTurn))
    return emit_column_sum(emit, in, out, slices, count);
  const struct { uint32_t slices, count; } push{slices, count};
  const bool pairs =
      is_cpu && count % 2 == 0 && begins_with_a_pair(in.buffer) && begins_with_a_pair(out.buffer);
  emit.for_each("sum_slices", {reads(in), writes(out)}, push, pairs ? count / 2 : count, {pairs});
}

void emit_column_sum(Emitter& emit, const DeviceTensor& x, const DeviceTensor& out, uint32_t rows,
                     uint32_t columns) {
  const uint32_t slices = tile_slices(*emit.device(), rows, columns);
  const bool done = slices == 1 && emit.device()->family() != gpu::KernelFamily::cpu;
  const struct { uint32_t rows, columns, slices; } push{rows, columns, slices};
  const DeviceTensor partial = done ? out : emit.scratch({slices, columns});
  emit.for_tiles("column_sum", {reads(x), writes(partial)}, push, columns, slices,
                 sum_tile(*emit.device(), columns));
  if (!done) emit_sum_slices(emit, partial, out, slices, columns);
}

void emit_fold_norm(Emitter& emit, const DeviceTensor& w, const DeviceTensor& bias,
                    std::span<const DeviceTensor> norm, float epsilon, const DeviceTensor& folded_w,
                    const DeviceTensor& folded_b) {
  const uint32_t c = folded_b.count(), rows = w.count() / c;
  const struct {
    uint32_t rows, c, slices, bias;
    float epsilon;
  } push{rows, c, row_slices(*emit.device(), rows, c), bias ? 1u : 0u, epsilon};
  emit.for_channels("fold_norm",
                    {reads(w), reads(bias ? bias : w), reads(norm[0]), reads(norm[1]),
                     reads(norm[2]), reads(norm[3]), writes(folded_w), writes(folded_b)},
                    push, c, push.slices);
}

void emit_sum_halves(Emitter& emit, const DeviceTensor& in, const DeviceTensor& sums,
                     uint32_t slices, const DeviceTensor& first, const DeviceTensor& second) {
  const uint32_t count = sums.count();
  const std::vector<gpu::Binding> halves{reads(in), writes(sums), writes(first), writes(second)};
  if (first && second && adds_in_groups(emit, slices, count))
    return emit_in_groups(emit, "column_sum_halves", halves, slices, count);
  if (first && second && emit.device()->family() == gpu::KernelFamily::cpu &&
      slices <= kInTurnCpu) {
    const struct { uint32_t rows, columns, slices; } push{slices, count, 1};
    return emit.for_channels("column_sum_halves", halves, push, count, 1);
  }
  emit_sum_slices(emit, in, sums, slices, count);
  const uint64_t bytes = sums.buffer.size_bytes / 2;
  if (first) emit.add(gpu::Copy{sums.buffer.slice(0, bytes), first.buffer});
  if (second) emit.add(gpu::Copy{sums.buffer.slice(bytes, bytes), second.buffer});
}

DeviceTensor emit_linear_grad(Emitter& emit, const OpCall& call) {
  if (!call.options.boolean("relu")) return call.output_grad;
  DeviceTensor masked = emit.scratch(call.output.shape);
  emit_relu_grad(emit, call.output, call.output_grad, masked);
  return masked;
}

}  // namespace etr::ops

// Convolutions as implicit matrix products; depthwise ones, whose product would have one column, by
// kernels of their own.
#include "ops/conv.h"

#include <algorithm>
#include <cstdint>

#include "gpu/run_once.h"
#include "ops/measure.h"
#include "ops/onnx_node.h"
#include "ops/permute.h"

namespace etr::ops {
namespace {

// Narrow results are slow on a CPU device: with as many columns as lanes, each number of A is
// broadcast for a single vector of B. Two pixels of a line can form one row of twice the columns,
// without a copy, if the kernel is widened by the distance of the pixels. Part of the work is then
// zeros, but the wide product gains more.
bool pays_in_pairs(const Emitter& emit, const ConvGeometry& g, uint32_t columns, uint32_t width) {
  const gpu::Device& device = *emit.device();
  return device.family() == gpu::KernelFamily::cpu && device.info().subgroup_size == 16 &&
         g.plain() && g.stride == 1 && g.kw >= 3 && columns <= 16 && width % 2 == 0;
}

// Taps (ky, kx) = (ay ty + cy, ax tx + bx p + cx) of pixel p of a pair; mirrors
// shaders/conv_wide.comp.
struct WidePush {
  uint32_t rows, slices, taps_x, channels, n, kh, kw;
  int32_t ay, cy, ax, bx, cx;
  uint32_t flipped;
};

// Emits the product for pairs of pixels [N, oh, ow, n]. `p` holds the source (h, w, c = kc), oh,
// the taps (kh, kw), pads and strides.
void emit_pairs(Emitter& emit, GemmParams p, WidePush wide, uint32_t ow, const DeviceTensor& source,
                const DeviceTensor& w, const DeviceTensor& bias, const DeviceTensor& out,
                double flops) {
  p.ow = ow / 2;
  p.kc = p.c;
  p.m = p.batch * p.oh * p.ow, p.n = 2 * wide.n, p.k = p.kh * p.kw * p.c;
  wide.rows = p.k, wide.slices = row_slices(*emit.device(), p.k, p.n), wide.taps_x = p.kw,
  wide.channels = p.c;
  const DeviceTensor both = emit.scratch({p.kh, p.kw, p.c, p.n});
  emit.for_channels("conv_wide", {reads(w), writes(both)}, wide, p.n, wide.slices);
  DeviceTensor shifts;
  if (bias) {
    shifts = emit.scratch({2, wide.n});
    const uint64_t bytes = uint64_t{wide.n} * 4;
    for (uint64_t i = 0; i < 2; ++i)
      emit.add(gpu::Copy{bias.buffer, shifts.buffer.slice(i * bytes, bytes)});
  }
  emit_gemm(emit, GemmMode::conv, p, source, both, shifts, out, flops);
}

// Returns the operations of a convolution with `taps` taps.
double flops_of(const ConvGeometry& g, double taps) {
  return 2.0 * g.batch * g.oh * g.ow * g.c * g.filters / g.groups * taps;
}

GemmParams params_of(const ConvGeometry& g) {
  GemmParams p;
  p.batch = g.batch, p.h = g.h, p.w = g.w, p.c = g.c / g.groups;
  p.oh = g.oh, p.ow = g.ow, p.kh = g.kh, p.kw = g.kw;
  p.stride = p.stride_x = g.stride, p.pad_y = g.pad_y, p.pad_x = g.pad_x;
  p.dilation = g.dilation, p.groups = g.groups;
  return p;
}

struct DepthwisePush {
  uint32_t batch, h, w, c, oh, ow, kh, kw, stride, pad_y, pad_x, dilation, slices, relu, bias;
};

DepthwisePush depthwise_of(const ConvGeometry& g) {
  return {g.batch,  g.h,     g.w,     g.c,        g.oh, g.ow, g.kh, g.kw,
          g.stride, g.pad_y, g.pad_x, g.dilation, 1,    0,    0};
}

// Refuses lines that are too long for an invocation that computes all `pixels` of one.
void require_line(const Emitter& emit, const ConvGeometry& g, uint32_t pixels) {
  emit.require_iterations(pixels * (2 + uint64_t{g.kh} * (2 + g.kw)));
}

// w [taps, c, G, f] -> [taps, f, G, c], so that k = (ky, kx, filter) runs along rows of B.
DeviceTensor flipped(Emitter& emit, const ConvGeometry& g, const DeviceTensor& w) {
  const uint32_t taps = g.kh * g.kw, c = g.c / g.groups, f = g.filters / g.groups;
  const DeviceTensor out = emit.scratch({taps, f, g.groups, c});
  if (g.groups == 1) {
    emit_transpose(emit, w, out, taps, c, f);
    return out;
  }
  emit_permute(emit, {w.buffer, {taps, c, g.groups, f}}, {0, 3, 2, 1}, out);
  return out;
}

// For the lines (or pixels) y = 2 i + phase of dx: tap k contributes the outputs o = i + offset for
// which 2 o = y + pad - k.
struct Offsets {
  int32_t first = 0, count = 0;
};

Offsets offsets_of(uint32_t taps, uint32_t pad, std::initializer_list<int32_t> phases) {
  int32_t low = INT32_MAX, high = INT32_MIN;
  for (const int32_t phase : phases)
    for (int32_t k = 0; k < static_cast<int32_t>(taps); ++k) {
      const int32_t twice = phase + static_cast<int32_t>(pad) - k;
      if (twice % 2) continue;
      low = std::min(low, twice / 2), high = std::max(high, twice / 2);
    }
  return low > high ? Offsets{} : Offsets{low, high - low + 1};
}

// Emits dx of a convolution with stride 2. Each combination of even or odd line and even or odd
// pixel uses a quarter of the taps. Even and odd lines are separate products; an even and an odd
// pixel are computed as a pair.
void emit_conv_dx_by_two(Emitter& emit, const ConvGeometry& g, const DeviceTensor& dy,
                         const DeviceTensor& w, const DeviceTensor& dx) {
  const auto pad_y = static_cast<int32_t>(g.pad_y), pad_x = static_cast<int32_t>(g.pad_x);
  const Offsets across = offsets_of(g.kw, g.pad_x, {0, 1});
  const Offsets down[] = {offsets_of(g.kh, g.pad_y, {0}), offsets_of(g.kh, g.pad_y, {1})};
  if (down[0].count == 0 || down[1].count == 0) emit.add(gpu::Fill{dx.buffer, 0});
  for (int32_t phase = 0; phase < 2; ++phase) {
    if (down[phase].count == 0) continue;
    GemmParams p;
    p.batch = g.batch, p.h = g.oh, p.w = g.ow, p.c = g.filters;
    p.oh = g.h / 2;
    p.kh = static_cast<uint32_t>(down[phase].count), p.kw = static_cast<uint32_t>(across.count);
    p.pad_y = static_cast<uint32_t>(-down[phase].first);
    p.pad_x = static_cast<uint32_t>(-across.first);
    p.line_step = 2, p.line_offset = static_cast<uint32_t>(phase);
    emit_pairs(emit, p,
               {.n = g.c,
                .kh = g.kh,
                .kw = g.kw,
                .ay = -2,
                .cy = phase + pad_y - 2 * down[phase].first,
                .ax = -2,
                .bx = 1,
                .cx = pad_x - 2 * across.first,
                .flipped = 1},
               g.w, dy, w, {}, dx, flops_of(g, static_cast<double>(p.kh) * g.kw));
  }
}

// Returns the convolution of dy, with the taps reversed, that gives dx for a stride of 1.
ConvGeometry turned(const ConvGeometry& g) {
  ConvGeometry out = g;
  out.h = g.oh, out.w = g.ow, out.c = g.filters;
  out.oh = g.h, out.ow = g.w, out.filters = g.c;
  out.pad_y = g.kh - 1 - g.pad_y,
  // May be below 0: it wraps around, and back when used.
      out.pad_x = g.kw - 1 - g.pad_x;
  return out;
}

}  // namespace

void emit_conv_directly(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x,
                        const DeviceTensor& w, const DeviceTensor& bias, bool relu,
                        const DeviceTensor& y) {
  if (g.depthwise()) {
    DepthwisePush push = depthwise_of(g);
    push.relu = relu, push.bias = bias ? 1 : 0;
    require_line(emit, g, g.ow);
    for_sample_runs(g.batch, 1, [&](uint32_t first, uint32_t count) {
      emit.for_channels("depthwise",
                        {reads(samples_of(x, first, count)), reads(w), reads(bias ? bias : w),
                         writes(samples_of(y, first, count))},
                        push, g.c, g.oh, count);
    });
    return;
  }
  GemmParams p = params_of(g);
  if (relu) p.epilogue |= GemmParams::kRelu;
  if (pays_in_pairs(emit, g, g.filters, g.ow)) {
    p.kw = g.kw + 1, p.stride_x = 2;
    const WidePush wide{.n = g.filters, .kh = g.kh, .kw = g.kw, .ay = 1, .ax = 1, .bx = -1};
    return emit_pairs(emit, p, wide, g.ow, x, w, bias, y, flops_of(g, g.kh * g.kw));
  }
  p.m = p.batch * p.oh * p.ow, p.n = g.filters / g.groups, p.kc = p.c, p.k = p.kh * p.kw * p.c;
  emit_gemm(emit, GemmMode::conv, p, x, w, bias, y);
}

namespace {

void emit_conv_dx_directly(Emitter& emit, const ConvGeometry& g, const DeviceTensor& dy,
                           const DeviceTensor& w, const DeviceTensor& dx) {
  if (g.depthwise()) {
    require_line(emit, g, g.w);
    for_sample_runs(g.batch, 1, [&](uint32_t first, uint32_t count) {
      emit.for_channels("depthwise_dx",
                        {reads(samples_of(dy, first, count)), reads(w),
                         writes(samples_of(dx, first, count))},
                        depthwise_of(g), g.c, g.h, count);
    });
    return;
  }
  if (g.plain() && g.stride == 2 && g.h % 2 == 0 && g.w % 2 == 0)
    return emit_conv_dx_by_two(emit, g, dy, w, dx);
  if (pays_in_pairs(emit, g, g.c, g.w)) {
    GemmParams p = params_of(turned(g));
    p.kw = g.kw + 1, p.stride_x = 2;
    const auto last = [](uint32_t taps) { return static_cast<int32_t>(taps) - 1; };
    const WidePush wide{.n = g.c,
                        .kh = g.kh,
                        .kw = g.kw,
                        .ay = -1,
                        .cy = last(g.kh),
                        .ax = -1,
                        .bx = 1,
                        .cx = last(g.kw),
                        .flipped = 1};
    return emit_pairs(emit, p, wide, g.w, dy, w, {}, dx, flops_of(g, g.kh * g.kw));
  }
  GemmParams p = params_of(g);
  p.m = p.batch * p.h * p.w, p.n = p.c, p.kc = g.filters / g.groups, p.k = p.kh * p.kw * p.kc;
  emit_gemm(emit, GemmMode::conv_dx, p, dy, flipped(emit, g, w), {}, dx);
}

// Winograd's F(2 x 2, 3 x 3) has the fewest products but moves the most memory. It gains with the
// number of channels.
constexpr uint32_t kWinogradChannels = 128;

void emit_forward(Emitter& emit, const std::string& way, const ConvGeometry& g,
                  const DeviceTensor& x, const DeviceTensor& w, const DeviceTensor& bias, bool relu,
                  const DeviceTensor& y) {
  if (way == "lines") return emit_lines(emit, g, x, w, /*turned=*/false, bias, relu, y);
  if (way == "winograd") return emit_winograd(emit, g, x, w, /*flipped=*/false, bias, relu, y);
  emit_conv_directly(emit, g, x, w, bias, relu, y);
}

void emit_dx(Emitter& emit, const std::string& way, const ConvGeometry& g, const DeviceTensor& dy,
             const DeviceTensor& w, const DeviceTensor& dx) {
  if (way == "direct") return emit_conv_dx_directly(emit, g, dy, w, dx);
  if (way == "lines")
    return emit_lines(emit, turned(g), dy, w, /*turned=*/true, {}, false, dx);
  emit_winograd(emit, turned(g), dy, flipped(emit, g, w), /*flipped=*/true, {}, false, dx);
}

void emit_conv_dw_directly(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x,
                           const DeviceTensor& dy, const DeviceTensor& dw) {
  if (g.depthwise()) {
    DepthwisePush push = depthwise_of(g);
    const uint32_t lines = g.batch * g.oh;
    push.slices = emit.slices_within(sum_slices(*emit.device(), lines, g.c), lines, 2 + g.ow);
    const uint32_t count = g.kh * g.kw * g.c;
    const DeviceTensor partial = emit.scratch({push.slices, count});
    emit.for_channels("depthwise_dw", {reads(x), reads(dy), writes(partial)}, push, g.c,
                      push.slices, g.kh * g.kw);
    emit_sum_slices(emit, partial, dw, push.slices, count);
    return;
  }
  GemmParams p = params_of(g);
  p.kc = p.c;
  if (pays_in_pairs(emit, g, g.filters, g.ow)) {
    p.kw = g.kw + 1, p.ow = g.ow / 2, p.stride_x = 2;
    p.m = p.kh * p.kw * p.c, p.n = 2 * g.filters, p.k = p.batch * p.oh * p.ow;
    const DeviceTensor both = emit.scratch({p.kh, p.kw, p.c, p.n});
    emit_gemm(emit, GemmMode::conv_dw, p, x, dy, {}, both, flops_of(g, g.kh * g.kw));
    const uint32_t rows = g.kh * g.kw * p.c;
    const WidePush fold{.rows = rows,
                        .slices = row_slices(*emit.device(), rows, g.filters),
                        .channels = p.c,
                        .n = g.filters,
                        .kw = g.kw};
    emit.for_channels("conv_fold", {reads(both), writes(dw)}, fold, g.filters, fold.slices);
    return;
  }
  p.m = p.kh * p.kw * p.c, p.n = g.filters / g.groups, p.k = p.batch * p.oh * p.ow;
  emit_gemm(emit, GemmMode::conv_dw, p, x, dy, {}, dw);
}

// The pass of a convolution: y, or the gradient of x or w.
enum class Pass { forward, dx, dw };

void emit_pass(Emitter& emit, Pass pass, const std::string& way, const ConvGeometry& g,
               const DeviceTensor& x, const DeviceTensor& w, const DeviceTensor& y) {
  if (pass == Pass::forward) return emit_forward(emit, way, g, x, w, {}, false, y);
  if (pass == Pass::dx) return emit_dx(emit, way, g, y, w, x);
  if (way == "lines") return emit_lines_dw(emit, g, x, y, w);
  emit_conv_dw_directly(emit, g, x, y, w);
}

// Returns the ways that apply; the first has been fastest for most problems.
std::vector<std::string> ways_for(const gpu::Device& device, const ConvGeometry& g, Pass pass,
                                  Precision precision) {
  std::vector<std::string> out{"direct"};
  if (precision != Precision::fp32) return out;
  const bool dx = pass == Pass::dx, dw = pass == Pass::dw;
  // The way along lines wins for narrow results, because its tiles have few columns. With 16 lanes,
  // wider results are faster directly, those of the input's gradient excepted. For the gradient of
  // the weights, few rows would leave most of a tile empty.
  const uint32_t most = device.info().subgroup_size == 8 || dx ? 32 : 16;
  const bool narrow = (dx ? g.c : g.filters) <= most;
  const bool enough = !dw || g.kh * g.c >= 32;
  if (lines_fit(device, g)) out.insert(narrow && enough ? out.begin() : out.end(), "lines");
  if (dw || !winograd_fits(device, g)) return out;
  const bool wide = std::min(g.c, g.filters) >= kWinogradChannels;
  const bool wins = device.family() == gpu::KernelFamily::cpu && wide;
  out.insert(wins ? out.begin() : out.end(), "winograd");
  return out;
}

// Returns whether the way can be used. Only the way along lines has no fallback kernels.
bool can_go(gpu::Kernels& kernels, const std::string& way, const ConvGeometry& g, Pass pass) {
  const bool dx = pass == Pass::dx, dw = pass == Pass::dw;
  return way != "lines" || lines_are_trusted(kernels, dx ? turned(g) : g, dw);
}

// Returns the measured choice, or the default if there is none.
std::string way_of(Emitter& emit, const ConvGeometry& g, Pass pass) {
  const std::vector<std::string> names = ways_for(*emit.device(), g, pass, emit.precision());
  if (names.size() == 1) return names[0];
  const auto measure = [g, pass, names](gpu::Kernels& kernels) {
    gpu::Arena operands(kernels.device(), gpu::MemoryUse::device);
    WayMemory memory(kernels.device());
    gpu::CommandList fills;
    Emitter fill(kernels, operands, fills);
    const auto ones = [&](const Shape& shape) {
      const DeviceTensor out = fill.scratch(shape);
      fill.add(gpu::Fill{out.buffer, 0x3F800000});
      return out;
    };
    const DeviceTensor x = ones({g.batch, g.h, g.w, g.c}),
                       y = ones({g.batch, g.oh, g.ow, g.filters}),
                       w = ones({g.kh, g.kw, g.c, g.filters});
    gpu::run_once(kernels.device(), fills);
    std::vector<Way> ways;
    for (const std::string& name : names) {
      if (!can_go(kernels, name, g, pass)) continue;
      ways.push_back({name, {}});
      memory.rewind();
      Emitter one(kernels, memory, ways.back().commands);
      one.set_label("tuning");
      emit_pass(one, pass, name, g, x, w, y);
    }
    return fastest_of(kernels, ways);
  };
  const char* const passes[] = {"convolution ", "convolution_dx ", "convolution_dw "};
  const std::string choice = emit.kernels().tuning().choice(
      cat(passes[static_cast<size_t>(pass)], g.batch, "x", g.h, "x", g.w, "x", g.c, " to ",
          g.filters, " pad ", g.pad_y, "x", g.pad_x),
      names, measure);
  const auto can = [&](const std::string& name) { return can_go(emit.kernels(), name, g, pass); };
  return !choice.empty() && can(choice) ? choice : *std::find_if(names.begin(), names.end(), can);
}

}  // namespace

void emit_conv(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x, const DeviceTensor& w,
               const DeviceTensor& bias, bool relu, const DeviceTensor& y) {
  emit_forward(emit, way_of(emit, g, Pass::forward), g, x, w, bias, relu, y);
}

void emit_conv_dx(Emitter& emit, const ConvGeometry& g, const DeviceTensor& dy,
                  const DeviceTensor& w, const DeviceTensor& dx) {
  emit_dx(emit, way_of(emit, g, Pass::dx), g, dy, w, dx);
}

void emit_conv_dw(Emitter& emit, const ConvGeometry& g, const DeviceTensor& x,
                  const DeviceTensor& dy, const DeviceTensor& dw) {
  emit_pass(emit, Pass::dw, way_of(emit, g, Pass::dw), g, x, dw, dy);
}

WeightLayout conv_layout(const Options&, size_t input) {
  return input == 1 ? WeightLayout::convolution : WeightLayout::same;
}

std::string conv_to_onnx(OnnxNode& node, bool transposed) {
  const Shape w = node.shape_in(1);
  const Options& o = node.options();
  const int64_t pad = o.integer("pad");
  int64_t pad_y = pad;
  OnnxAttributes attributes;
  if (!transposed) {
    pad_y = o.integer("pad_height") < 0 ? pad : o.integer("pad_height");
    attributes.integers("dilations", {o.integer("dilation"), o.integer("dilation")})
        .integer("group", o.integer("groups"));
  }
  attributes.integers("kernel_shape", {w[0], w[1]})
      .integers("pads", {pad_y, pad, pad_y, pad})
      .integers("strides", {o.integer("stride"), o.integer("stride")});
  // [KH, KW, C, F] -> [F, C, KH, KW]; for the transpose [KH, KW, F, C] -> [C, F, KH, KW]: the same
  // permutation.
  const std::vector<float> from = node.floats(1);
  std::vector<float> to(from.size());
  const auto taps = static_cast<size_t>(w[0] * w[1]), c = static_cast<size_t>(w[2]),
             f = static_cast<size_t>(w[3]);
  for (size_t t = 0; t < taps; ++t)
    for (size_t i = 0; i < c; ++i)
      for (size_t k = 0; k < f; ++k) to[(k * c + i) * taps + t] = from[(t * c + i) * f + k];
  std::vector<OnnxName> inputs{"", node.parameter(1, {w[3], w[2], w[0], w[1]}, to)};
  if (node.inputs() > 2) inputs.push_back(node.in(2));
  const OnnxName y = node.on_image(node.in(0), [&](const OnnxName& image) {
    inputs[0] = image;
    return node.emit(transposed ? "ConvTranspose" : "Conv", inputs, attributes);
  });
  return transposed ? y : node.relu_where(y);
}

}  // namespace etr::ops

// Convolutions and pooling. Shapes are [N, H, W, C], or [N, positions, C] in one dimension.
#include "core/error.h"
#include "core/text.h"
#include "nn/layers/common.h"

namespace etr::nn {
namespace {

constexpr OptionSpec kFilters{
    "filters", OptionType::integer, nullptr, "number of output channels", 1, 1 << 16};
constexpr OptionSpec kKernel{"kernel", OptionType::integer, "3", "size of the kernel", 1, 4096,
                             "pixels"};
constexpr OptionSpec kStride{"stride", OptionType::integer, "1", "stride of the kernel", 1, 64,
                             "pixels"};
constexpr OptionSpec kPad{"pad",
                          OptionType::integer,
                          "-1",
                          "zeros added on each side; -1: half of (kernel - 1) * dilation, rounded "
                          "down, which keeps the size if the kernel is odd",
                          -1,
                          4096,
                          "pixels"};
constexpr OptionSpec kCut{
    "pad",   OptionType::integer,
    "-1",    "pixels cut off on each side of the result; -1: half of kernel - 1, rounded down",
    -1,      4096,
    "pixels"};
constexpr OptionSpec kDilation{"dilation", OptionType::integer,
                               "1",        "distance between neighbouring elements of the kernel",
                               1,          4096,
                               "pixels"};
constexpr OptionSpec kGroups{"groups",
                             OptionType::integer,
                             "1",
                             "number of independent groups of channels; the number of channels "
                             "makes a depthwise convolution",
                             1,
                             1 << 16};

constexpr OptionSpec kConv[] = {kFilters, kKernel,  kStride,     kPad, kDilation,
                                kGroups,  kUseBias, kActivation, kInit};
constexpr OptionSpec kTransposed[] = {kFilters, kKernel,     kStride, kCut,
                                      kUseBias, kActivation, kInit};

struct Geometry {
  int64_t kernel, pad, dilation, groups, filters;
};

Geometry geometry(const LayerCall& call, int64_t channels) {
  const Options& o = call.options;
  Geometry g{o.integer("kernel"), o.integer("pad"), o.integer("dilation"), o.integer("groups"),
             o.integer("filters")};
  if (g.pad < 0) g.pad = (g.kernel - 1) * g.dilation / 2;
  if (channels % g.groups || g.filters % g.groups)
    fail(Code::invalid_argument, call.name, ": ", counted(channels, "channel"), " and ",
         counted(g.filters, "filter"), " do not split into ", g.groups, " groups");
  return g;
}

graph::ValueId convolve(const LayerCall& call, graph::ValueId x, const Geometry& g,
                        int64_t kernel_height, int64_t pad_height) {
  const int64_t channels = call.graph.shape(x)[3] / g.groups, taps = kernel_height * g.kernel;
  const auto weight = call.graph.add_parameter(
      call.name + ".weight", {kernel_height, g.kernel, channels, g.filters}, /*decay=*/true,
      weight_initializer(call.options.string("init"), taps * channels,
                         taps * g.filters / g.groups));
  const Json options{{"stride", call.options.integer("stride")},
                     {"pad", g.pad},
                     {"pad_height", pad_height},
                     {"dilation", g.dilation},
                     {"groups", g.groups},
                     {"relu", fused_relu(call)}};
  const auto inputs = with_bias(call, x, weight, g.filters);
  return activate(call, call.graph.add("conv2d", options, inputs, call.name));
}

graph::ValueId build_conv2d(const LayerCall& call) {
  const Shape& x = call.shape();
  if (x.size() != 4)
    fail(Code::invalid_argument, call.name, ": conv2d takes [N, H, W, C], not ", shape_text(x));
  const Geometry g = geometry(call, x[3]);
  return convolve(call, call.input(), g, g.kernel, g.pad);
}

// Builds it as a 2D convolution of an image of one row.
graph::ValueId build_conv1d(const LayerCall& call) {
  const Shape x = call.shape();
  if (x.size() != 3)
    fail(Code::invalid_argument, call.name, ": conv1d takes [N, positions, C], not ",
         shape_text(x));
  graph::Graph& graph = call.graph;
  const auto row = graph.add("reshape", {{"shape", {1, x[1], x[2]}}}, {call.input()}, call.name);
  const auto y = convolve(call, row, geometry(call, x[2]), 1, 0);
  const Shape out = graph.shape(y);
  return graph.add("reshape", {{"shape", {out[2], out[3]}}}, {y}, call.name);
}

graph::ValueId build_conv2d_transpose(const LayerCall& call) {
  const Shape& x = call.shape();
  if (x.size() != 4)
    fail(Code::invalid_argument, call.name, ": conv2d_transpose takes [N, H, W, C], not ",
         shape_text(x));
  const int64_t k = call.options.integer("kernel"), filters = call.options.integer("filters");
  const int64_t pad = call.options.integer("pad") < 0 ? (k - 1) / 2 : call.options.integer("pad");
  const auto weight = call.graph.add_parameter(
      call.name + ".weight", {k, k, filters, x[3]}, /*decay=*/true,
      weight_initializer(call.options.string("init"), k * k * x[3], k * k * filters));
  const Json options{{"stride", call.options.integer("stride")}, {"pad", pad}};
  auto y = call.graph.add("conv2d_transpose", options, {call.input(), weight}, call.name);
  if (call.options.boolean("bias")) {
    const auto bias =
        call.graph.add_parameter(call.name + ".bias", {filters}, /*decay=*/false, constant(0));
    y = call.graph.add("bias", Json::object(), {y, bias}, call.name);
  }
  return activate_unfused(call, y);
}

// Pooling -------------------------------------------------------------------------------------

constexpr OptionSpec kPool[] = {
    {"window", OptionType::integer, "2", "height and width of the window", 1, 64, "pixels"},
    {"stride", OptionType::integer, "2", "stride of the window in both directions", 1, 64,
     "pixels"},
    {"pad", OptionType::integer, "0", "padding on each side, which is not counted", 0, 32,
     "pixels"},
};
constexpr OptionSpec kAdaptive[] = {
    {"output_size", OptionType::integer, nullptr, "height and width of the result", 1, 4096,
     "pixels", "", "outputs"},
};

const char* const kMaxPool = "max_pool";
const char* const kAvgPool = "avg_pool";
const char* const kGlobalAvgPool = "global_avg_pool";

}  // namespace

extern const LayerSpec conv1d_layer, conv2d_layer, conv2d_transpose_layer, max_pool_layer,
    avg_pool_layer, adaptive_avg_pool_layer, global_avg_pool_layer;
const LayerSpec conv1d_layer{"conv1d", "1-D convolution of [N, positions, C]", kConv, build_conv1d};
const LayerSpec conv2d_layer{"conv2d", "2-D convolution of [N, H, W, C]", kConv, build_conv2d};
const LayerSpec conv2d_transpose_layer{
    "conv2d_transpose",
    "transposed 2-D convolution: it turns H pixels into (H - 1) * stride - 2 * pad + "
    "kernel",
    kTransposed, build_conv2d_transpose};
const LayerSpec max_pool_layer{"max_pool", "maximum over windows of [N, H, W, C]", kPool,
                               build_plain<kMaxPool>};
const LayerSpec avg_pool_layer{"avg_pool", "average over windows of [N, H, W, C]", kPool,
                               build_plain<kAvgPool>};
const LayerSpec adaptive_avg_pool_layer{
    "adaptive_avg_pool", "averages over windows chosen so that the result has a given size",
    kAdaptive, build_plain<kAvgPool>};
const LayerSpec global_avg_pool_layer{
    "global_avg_pool", "average over all pixels: [N, C]", {}, build_plain<kGlobalAvgPool>};

}  // namespace etr::nn

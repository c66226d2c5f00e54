// The head of a detector: the prediction of each anchor of a feature map.
#include <cmath>

#include "core/error.h"
#include "nn/layers/common.h"

namespace etr::nn {
namespace {

constexpr OptionSpec kBoxHead[] = {
    {"classes", OptionType::integer, nullptr, "number of classes, not counting the background", 1,
     1 << 16},
    {"scale", OptionType::number, nullptr, "side length of the anchors, as a fraction of the image",
     0.001, 2},
    {"next_scale", OptionType::number, "0",
     "side length of the next map's anchors; adds a square anchor of a size between the two; 0: "
     "none",
     0, 2},
    {"ratios", OptionType::numbers, "[1, 2, 0.5]", "aspect ratios (width / height) of the anchors",
     0.01, 100},
    {"kernel", OptionType::integer, "3", "kernel size of the convolution", 1, 63, "pixels"},
};

struct Size {
  double width, height;
};

// Liu et al. 2016, section 2.2.
std::vector<Size> sizes_of(const Options& o) {
  const double scale = o.number("scale");
  std::vector<Size> sizes;
  for (const double ratio : o.numbers("ratios"))
    sizes.push_back({scale * std::sqrt(ratio), scale / std::sqrt(ratio)});
  const double between = std::sqrt(scale * o.number("next_scale"));
  if (between > 0) sizes.push_back({between, between});
  return sizes;
}

// Fills in (centre x, centre y, width, height) of each pixel's anchors.
graph::Initializer anchors(int64_t height, int64_t width, std::vector<Size> sizes) {
  return [=](std::span<float> out, Rng&) {
    size_t at = 0;
    for (int64_t y = 0; y < height; ++y)
      for (int64_t x = 0; x < width; ++x)
        for (const Size& size : sizes)
          for (const double v : {(static_cast<double>(x) + 0.5) / static_cast<double>(width),
                                 (static_cast<double>(y) + 0.5) / static_cast<double>(height),
                                 size.width, size.height})
            out[at++] = static_cast<float>(v);
  };
}

graph::ValueId build_box_head(const LayerCall& call) {
  const Options& o = call.options;
  graph::Graph& graph = call.graph;
  const Shape x = call.shape();
  if (x.size() != 4)
    fail(Code::invalid_argument, call.name, ": box_head takes [N, H, W, C], not ", shape_text(x));
  const std::vector<Size> sizes = sizes_of(o);
  if (sizes.empty()) fail(Code::invalid_argument, call.name, ": 'ratios' is empty");
  const auto per_pixel = static_cast<int64_t>(sizes.size());
  const int64_t columns = 1 + o.integer("classes") + 4, k = o.integer("kernel");
  const int64_t filters = per_pixel * columns, taps = k * k;
  const auto weight =
      graph.add_parameter(call.name + ".weight", {k, k, x[3], filters}, /*decay=*/true,
                          weight_initializer("glorot", taps * x[3], taps * columns));
  const auto bias =
      graph.add_parameter(call.name + ".bias", {filters}, /*decay=*/false, constant(0));
  const auto map = graph.add("conv2d", {{"pad", (k - 1) / 2}, {"pad_height", (k - 1) / 2}},
                             {call.input(), weight, bias}, call.name);
  const Shape grid = graph.shape(map);
  const int64_t count = grid[1] * grid[2] * per_pixel;
  const auto found = graph.add("reshape", {{"shape", {count, columns}}}, {map}, call.name);
  const auto from =
      graph.add_constant(call.name + ".anchors", {1, count, 4}, anchors(grid[1], grid[2], sizes));
  return graph.add("concat", {{"axis", -1}}, {found, from}, call.name);
}

}  // namespace

extern const LayerSpec box_head_layer;
const LayerSpec box_head_layer{"box_head",
                               "class scores and box offsets for each anchor of [N, H, W, C]: [N, "
                               "anchors, 1 + classes + 8]; see the loss 'multibox'",
                               kBoxHead, build_box_head};

}  // namespace etr::nn

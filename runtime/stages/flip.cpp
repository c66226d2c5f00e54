// Mirrors images horizontally or vertically with a given probability.
#include <algorithm>
#include <cstring>

#include "pipeline/stage.h"
#include "stages/box_ops.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"probability", OptionType::number, "0.5", "fraction of images that are mirrored", 0, 1},
    {"direction", OptionType::string, "\"horizontal\"",
     "horizontal: left and right are exchanged; vertical: top and bottom", 0, 0, "",
     "horizontal|vertical"},
};

class Flip final : public MapStage {
 public:
  Flip(const Options& options, const StageContext& context)
      : probability_(static_cast<float>(options.number("probability"))),
        vertical_(options.string("direction") == "vertical"),
        context_(context) {}

  ViewStep view_step() const override { return ViewStep::place; }

  void process(Item& item, uint64_t epoch) const override {
    if (!item.views) require_image(item, "image");
    if (item_rng(context_, epoch, item).uniform() >= probability_) return;
    flip_boxes(item, vertical_);
    if (item.views) return item.change_view([&](ImageView& view) { view.flip(vertical_); });
    const Tensor& image = *item.find("image");
    const auto h = static_cast<size_t>(image.shape()[0]), w = static_cast<size_t>(image.shape()[1]);
    const size_t pixel = static_cast<size_t>(image.shape()[2]) * dtype_size(image.dtype());
    Tensor out = item.take_writable("image");
    auto* bytes = static_cast<std::byte*>(out.mutable_data());
    if (vertical_) {
      for (size_t y = 0; y < h / 2; ++y)
        std::swap_ranges(bytes + y * w * pixel, bytes + (y + 1) * w * pixel,
                         bytes + (h - 1 - y) * w * pixel);
      item.set("image", std::move(out));
      return;
    }
    // A pixel size known at compile time turns each swap into register moves.
    for (size_t y = 0; y < h; ++y, bytes += w * pixel)
      if (pixel == 1)
        std::reverse(bytes, bytes + w);
      else if (pixel == 3)
        mirror<3>(bytes, w, pixel);
      else
        mirror<0>(bytes, w, pixel);
    item.set("image", std::move(out));
  }

 private:
  template <size_t kPixel>
  static void mirror(std::byte* row, size_t w, size_t pixel) {
    const size_t n = kPixel ? kPixel : pixel;
    std::byte* right = row + w * n;
    for (std::byte* left = row; left + n < right; left += n) {
      right -= n;
      if constexpr (kPixel != 0) {
        std::byte kept[kPixel];
        std::memcpy(kept, left, n);
        std::memcpy(left, right, n);
        std::memcpy(right, kept, n);
      } else {
        std::swap_ranges(left, left + n, right);
      }
    }
  }

  const float probability_;
  const bool vertical_;
  const StageContext context_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec flip_stage;
const StageSpec flip_stage{"flip",           "mirrors images at random", StageKind::map,
                           stages::kOptions, make_stage<stages::Flip>,   /*random=*/true};

}  // namespace etr::pipeline

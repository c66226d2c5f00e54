// Mirrors images left to right with a given probability.
#include <cstring>

#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"probability", OptionType::number, "0.5", "share of images that are mirrored", 0, 1},
};

class Flip final : public MapStage {
 public:
  Flip(const Options& options, const StageContext& context)
      : probability_(static_cast<float>(options.number("probability"))), context_(context) {}

  void process(Item& item, uint64_t epoch) const override {
    const Tensor& image = require_image(item, "image");
    if (item_rng(context_, epoch, item).uniform() >= probability_) return;
    Tensor out(image.dtype(), image.shape());
    const auto h = static_cast<size_t>(image.shape()[0]), w = static_cast<size_t>(image.shape()[1]);
    const size_t pixel = static_cast<size_t>(image.shape()[2]) * dtype_size(image.dtype());
    // A size known to the compiler turns each copy into a move of a register.
    if (pixel == 1)
      mirror<1>(image, out, h, w, pixel);
    else if (pixel == 3)
      mirror<3>(image, out, h, w, pixel);
    else
      mirror<0>(image, out, h, w, pixel);
    item.set("image", std::move(out));
  }

 private:
  template <size_t kPixel>
  static void mirror(const Tensor& from, Tensor& to, size_t h, size_t w, size_t pixel) {
    const size_t n = kPixel ? kPixel : pixel;
    const auto* source = static_cast<const std::byte*>(from.data());
    auto* target = static_cast<std::byte*>(to.mutable_data());
    for (size_t y = 0; y < h; ++y)
      for (size_t x = 0; x < w; ++x)
        std::memcpy(target + (y * w + x) * n, source + (y * w + (w - 1 - x)) * n, n);
  }

  const float probability_;
  const StageContext context_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec flip_stage;
const StageSpec flip_stage{"flip", "mirrors images left to right at random", StageKind::map,
                           stages::kOptions, make_stage<stages::Flip>};

}  // namespace etr::pipeline

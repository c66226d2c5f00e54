// Random brightness and contrast: y = (x - mean(x)) * contrast + mean(x) + brightness * 255,
// clamped to [0, 255], with contrast in [1 - c, 1 + c] and brightness in [-b, b]. Input and output
// are u8.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"brightness", OptionType::number, "0.2",
     "largest change of brightness, as a fraction of full scale", 0, 1},
    {"contrast", OptionType::number, "0.2", "largest change of the contrast factor", 0, 1},
};

class BrightnessContrast final : public MapStage {
 public:
  BrightnessContrast(const Options& options, const StageContext& context)
      : brightness_(static_cast<float>(options.number("brightness"))),
        contrast_(static_cast<float>(options.number("contrast"))),
        context_(context) {}

  ViewStep view_step() const override { return ViewStep::adjust; }

  void process(Item& item, uint64_t epoch) const override {
    Rng rng = item_rng(context_, epoch, item);
    const float shift = 255 * rng.uniform(-brightness_, brightness_);
    const float factor = rng.uniform(1 - contrast_, 1 + contrast_);
    if (item.views) return item.change_view([&](ImageView& view) { view.adjust(factor, shift); });
    const Tensor& image = require_image(item, "image");
    if (image.dtype() != DType::u8)
      fail(Code::invalid_argument, "brightness_contrast takes u8 images, not ",
           dtype_name(image.dtype()),
           "; put it before normalize, and leave decode's 'dtype' at u8");
    const auto in = image.view<uint8_t>();
    // Multiplies by the reciprocal, because division is not bit-exact on every device.
    const float mean = static_cast<float>(std::accumulate(in.begin(), in.end(), uint64_t{0})) *
                       (1.0f / static_cast<float>(std::max<size_t>(in.size(), 1)));
    std::array<uint8_t, 256> table;  // 256 possible inputs
    for (size_t v = 0; v < 256; ++v)
      table[v] = static_cast<uint8_t>(std::clamp(
          std::lround((static_cast<float>(v) - mean) * factor + mean + shift), 0l, 255l));
    Tensor out = item.take_writable("image");
    for (uint8_t& v : out.mutable_view<uint8_t>()) v = table[v];
    item.set("image", std::move(out));
  }

 private:
  const float brightness_, contrast_;
  const StageContext context_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec brightness_contrast_stage;
const StageSpec brightness_contrast_stage{
    "brightness_contrast", "random brightness and contrast",       StageKind::map,
    stages::kOptions,      make_stage<stages::BrightnessContrast>, /*random=*/true};

}  // namespace etr::pipeline

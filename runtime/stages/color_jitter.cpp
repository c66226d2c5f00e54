// Random brightness, contrast, saturation and hue, in this order. Brightness scales the values,
// contrast their distance from the mean luma, saturation their distance from their own luma; hue
// rotates about the gray axis. Each step rounds u8.
#include "pipeline/stage.h"
#include "stages/image_ops.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"brightness", OptionType::number, "0", "largest change of the brightness factor", 0, 1},
    {"contrast", OptionType::number, "0", "largest change of the contrast factor", 0, 1},
    {"saturation", OptionType::number, "0", "largest change of the saturation factor", 0, 1},
    {"hue", OptionType::number, "0",
     "largest rotation of the hue, as a fraction of the colour circle", 0, 0.5},
};

class ColorJitter final : public MapStage {
 public:
  ColorJitter(const Options& options, const StageContext& context)
      : brightness_(static_cast<float>(options.number("brightness"))),
        contrast_(static_cast<float>(options.number("contrast"))),
        saturation_(static_cast<float>(options.number("saturation"))),
        hue_(static_cast<float>(options.number("hue"))),
        context_(context) {}

  ViewStep view_step() const override { return ViewStep::jitter; }

  void process(Item& item, uint64_t epoch) const override {
    if (!item.views) require_image(item, "image");
    Rng rng = item_rng(context_, epoch, item);
    const float brightness = rng.uniform(1 - brightness_, 1 + brightness_);
    const float contrast = rng.uniform(1 - contrast_, 1 + contrast_);
    const float saturation = rng.uniform(1 - saturation_, 1 + saturation_);
    const float turns = rng.uniform(-hue_, hue_);
    if (item.views) {
      const Jitter jitter{brightness, contrast, saturation, hue_matrix(turns)};
      return item.change_view([&](ImageView& view) { view.change_colours(jitter); });
    }
    Tensor image = item.take_writable("image");
    if (brightness_ > 0) image = stretch(std::move(image), brightness, 0);
    if (contrast_ > 0) {
      const float mean = mean_luma(image);
      image = stretch(std::move(image), contrast, mean);
    }
    const bool colour = image.shape()[2] == 3;
    if (saturation_ > 0 && colour) {
      const Tensor gray = to_gray(image);
      image = blend(std::move(image), gray, saturation);
    }
    if (hue_ > 0 && colour) image = turn_hue(std::move(image), turns);
    item.set("image", std::move(image));
  }

 private:
  const float brightness_, contrast_, saturation_, hue_;
  const StageContext context_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec color_jitter_stage;
const StageSpec color_jitter_stage{"color_jitter",
                                   "random brightness, contrast, saturation and hue",
                                   StageKind::map,
                                   stages::kOptions,
                                   make_stage<stages::ColorJitter>,
                                   /*random=*/true};

}  // namespace etr::pipeline

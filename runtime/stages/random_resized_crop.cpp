// Scales a random part of the image, of random area and aspect ratio, to a fixed size (the
// Inception crop, Szegedy et al. 2015). After ten failed tries uses the largest centred part with
// an allowed ratio.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "stages/box_ops.h"
#include "stages/random_part.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"height", OptionType::integer, nullptr, "height of the result", 1, 1 << 16, "pixels"},
    {"width", OptionType::integer, nullptr, "width of the result", 1, 1 << 16, "pixels"},
    {"area_min", OptionType::number, "0.08",
     "smallest area of the part, as a fraction of the image", 0, 1},
    {"area_max", OptionType::number, "1", "largest area of the part, as a fraction of the image", 0,
     1},
    {"ratio_min", OptionType::number, "0.75", "smallest aspect ratio (width / height) of the part",
     0.01, 100},
    {"ratio_max", OptionType::number, "1.3333333333333333",
     "largest aspect ratio (width / height) of the part", 0.01, 100},
    {"filter", OptionType::string, "\"bilinear\"",
     "interpolation; bilinear and area are antialiased when shrinking", 0, 0, "",
     "bilinear|area|nearest"},
};

class RandomResizedCrop final : public MapStage {
 public:
  RandomResizedCrop(const Options& options, const StageContext& context)
      : height_(options.integer("height")),
        width_(options.integer("width")),
        part_(options, "random_resized_crop"),
        filter_(filter_named(options.string("filter"))),
        context_(context) {}

  ViewStep view_step() const override { return ViewStep::scale; }

  void process(Item& item, uint64_t epoch) const override {
    const Tensor& image = item.views ? *item.views->front().image : require_image(item, "image");
    if (image.count() == 0)
      fail(Code::invalid_argument, "an image without pixels cannot be resized");
    Rng rng = item_rng(context_, epoch, item);
    const int64_t h = image.shape()[0], w = image.shape()[1];
    const Box part = part_.draw(rng, h, w).value_or(part_.largest(h, w));
    if (item.views) {
      const auto by =
          std::make_shared<const Resampling>(resampling(part, h, w, height_, width_, filter_));
      item.change_view([&](ImageView& view) { view.resample(by); });
    } else {
      item.set("image", resample(image, part, height_, width_, filter_));
    }
    crop_boxes(item, h, w, part);
  }

  // An image may be shrunk before this stage as long as even its smallest part is still shrunk
  // here.
  std::optional<int64_t> sufficient_side() const override {
    const double share = part_.min_side_share();
    if (filter_ == Filter::nearest || share < 1e-3) return std::nullopt;
    return static_cast<int64_t>(
        std::ceil(static_cast<double>(kReducingGap * std::max(height_, width_)) / share));
  }

 private:
  const int64_t height_, width_;
  const RandomPart part_;
  const Filter filter_;
  const StageContext context_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec random_resized_crop_stage;
const StageSpec random_resized_crop_stage{"random_resized_crop",
                                          "crops a random part of the image and resizes it",
                                          StageKind::map,
                                          stages::kOptions,
                                          make_stage<stages::RandomResizedCrop>,
                                          /*random=*/true};

}  // namespace etr::pipeline

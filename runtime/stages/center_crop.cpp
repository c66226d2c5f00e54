// Crops the centre of the image, and fills up images that are too small.
#include "stages/box_ops.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"height", OptionType::integer, nullptr, "height of the result", 1, 1 << 16, "pixels"},
    {"width", OptionType::integer, nullptr, "width of the result", 1, 1 << 16, "pixels"},
    {"fill", OptionType::number, "0",
     "value around images smaller than the result, as a fraction of full scale", 0, 1},
};

class CenterCrop final : public MapStage {
 public:
  CenterCrop(const Options& options, const StageContext&)
      : height_(options.integer("height")),
        width_(options.integer("width")),
        fill_(static_cast<float>(options.number("fill"))) {}

  void process(Item& item, uint64_t) const override {
    const Tensor& image = require_image(item, "image");
    const int64_t h = image.shape()[0], w = image.shape()[1];
    const int64_t y = (h - height_) / 2, x = (w - width_) / 2;
    item.set("image", crop(image, y, x, height_, width_, fill_));
    crop_boxes(item, h, w, box_of(y, x, height_, width_));
  }

 private:
  const int64_t height_, width_;
  const float fill_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec center_crop_stage;
const StageSpec center_crop_stage{
    "center_crop",    "crops the middle of the image", StageKind::map,
    stages::kOptions, make_stage<stages::CenterCrop>,  /*random=*/false,
    /*prepares=*/true};

}  // namespace etr::pipeline

// A random part of the image, of random area and shape, scaled to one size (the crop of Inception, Szegedy et al.
// 2015): ten tries, then the largest centred part of an allowed shape.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "pipeline/stage.h"
#include "stages/image_ops.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"height", OptionType::integer, nullptr, "height of the result", 1, 1 << 16, "pixels"},
    {"width", OptionType::integer, nullptr, "width of the result", 1, 1 << 16, "pixels"},
    {"area_min", OptionType::number, "0.08", "smallest part, as a share of the image's area", 0, 1},
    {"area_max", OptionType::number, "1", "largest part, as a share of the image's area", 0, 1},
    {"ratio_min", OptionType::number, "0.75", "smallest width : height of the part", 0.01, 100},
    {"ratio_max", OptionType::number, "1.3333333333333333", "largest width : height of the part",
     0.01, 100},
    {"filter", OptionType::string, "\"bilinear\"",
     "bilinear and area are antialiased when they shrink", 0, 0, "", "bilinear|area|nearest"},
};

class RandomResizedCrop final : public MapStage {
 public:
  RandomResizedCrop(const Options& options, const StageContext& context)
      : height_(options.integer("height")),
        width_(options.integer("width")),
        area_min_(options.number("area_min")),
        area_max_(options.number("area_max")),
        log_min_(std::log(options.number("ratio_min"))),
        log_max_(std::log(options.number("ratio_max"))),
        filter_(filter_named(options.string("filter"))),
        context_(context) {
    if (area_min_ > area_max_ || log_min_ > log_max_)
      fail(Code::invalid_argument, "random_resized_crop: a minimum is above its maximum");
  }

  void process(Item& item, uint64_t epoch) const override {
    const Tensor& image = require_image(item, "image");
    if (image.count() == 0)
      fail(Code::invalid_argument, "an image without pixels cannot be resized");
    Rng rng = item_rng(context_, epoch, item);
    item.set("image", resample(image, part(rng, image.shape()[0], image.shape()[1]), height_,
                               width_, filter_));
  }

 private:
  Box part(Rng& rng, int64_t h, int64_t w) const {
    constexpr int kTries = 10;
    const double area = static_cast<double>(h) * static_cast<double>(w);
    for (int i = 0; i < kTries; ++i) {
      const double target = area * (area_min_ + (area_max_ - area_min_) * rng.uniform());
      const double ratio = std::exp(log_min_ + (log_max_ - log_min_) * rng.uniform());
      const int64_t bw = std::llround(std::sqrt(target * ratio)),
                    bh = std::llround(std::sqrt(target / ratio));
      if (bw < 1 || bh < 1 || bw > w || bh > h) continue;
      const uint32_t y = rng.below(static_cast<uint32_t>(h - bh + 1));
      const uint32_t x = rng.below(static_cast<uint32_t>(w - bw + 1));
      return {static_cast<double>(y), static_cast<double>(x), static_cast<double>(bh),
              static_cast<double>(bw)};
    }
    double bh = static_cast<double>(h), bw = static_cast<double>(w);
    bw = std::min(bw, bh * std::exp(log_max_));
    bh = std::min(bh, bw / std::exp(log_min_));
    return {(static_cast<double>(h) - bh) / 2, (static_cast<double>(w) - bw) / 2, bh, bw};
  }

  const int64_t height_, width_;
  const double area_min_, area_max_, log_min_, log_max_;
  const Filter filter_;
  const StageContext context_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec random_resized_crop_stage;
const StageSpec random_resized_crop_stage{
    "random_resized_crop", "a random part of the image, scaled to one size", StageKind::map,
    stages::kOptions, make_stage<stages::RandomResizedCrop>};

}  // namespace etr::pipeline

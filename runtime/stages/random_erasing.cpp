// Erases a random rectangle (Zhong et al., "Random Erasing Data Augmentation", AAAI 2020): with a value, or with
// uniform noise.
#include <cmath>

#include "core/error.h"
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"probability", OptionType::number, "0.5", "share of images in which something is erased", 0,
     1},
    {"area_min", OptionType::number, "0.02", "smallest rectangle, as a share of the image's area",
     0, 1},
    {"area_max", OptionType::number, "0.33", "largest rectangle, as a share of the image's area", 0,
     1},
    {"ratio_min", OptionType::number, "0.3", "smallest width : height of the rectangle", 0.01, 100},
    {"ratio_max", OptionType::number, "3.3333333333333335",
     "largest width : height of the rectangle", 0.01, 100},
    {"filling", OptionType::string, "\"value\"", "what is put there", 0, 0, "", "value|noise"},
    {"value", OptionType::number, "0", "the value, as a share of full scale", 0, 1},
};

class RandomErasing final : public MapStage {
 public:
  RandomErasing(const Options& options, const StageContext& context)
      : probability_(static_cast<float>(options.number("probability"))),
        area_min_(options.number("area_min")),
        area_max_(options.number("area_max")),
        log_min_(std::log(options.number("ratio_min"))),
        log_max_(std::log(options.number("ratio_max"))),
        noise_(options.string("filling") == "noise"),
        value_(static_cast<float>(options.number("value"))),
        context_(context) {
    if (area_min_ > area_max_ || log_min_ > log_max_)
      fail(Code::invalid_argument, "random_erasing: a minimum is above its maximum");
  }

  void process(Item& item, uint64_t epoch) const override {
    const Tensor& image = require_image(item, "image");
    Rng rng = item_rng(context_, epoch, item);
    if (rng.uniform() >= probability_) return;
    const int64_t h = image.shape()[0], w = image.shape()[1];
    constexpr int kTries = 10;
    for (int i = 0; i < kTries; ++i) {
      const double area =
          static_cast<double>(h * w) * (area_min_ + (area_max_ - area_min_) * rng.uniform());
      const double ratio = std::exp(log_min_ + (log_max_ - log_min_) * rng.uniform());
      const int64_t bw = std::llround(std::sqrt(area * ratio)),
                    bh = std::llround(std::sqrt(area / ratio));
      if (bw < 1 || bh < 1 || bw > w || bh > h) continue;
      const int64_t y = rng.below(static_cast<uint32_t>(h - bh + 1)),
                    x = rng.below(static_cast<uint32_t>(w - bw + 1));
      Tensor out = item.take_writable("image");
      if (out.dtype() == DType::u8)
        erase<uint8_t>(out, y, x, bh, bw, rng);
      else
        erase<float>(out, y, x, bh, bw, rng);
      item.set("image", std::move(out));
      return;
    }
  }

 private:
  template <typename T>
  void erase(Tensor& image, int64_t y, int64_t x, int64_t height, int64_t width, Rng& rng) const {
    const float full = std::is_same_v<T, uint8_t> ? 255.0f : 1.0f;
    const int64_t w = image.shape()[1], c = image.shape()[2];
    T* pixels = static_cast<T*>(image.mutable_data());
    for (int64_t row = y; row < y + height; ++row)
      for (int64_t i = (row * w + x) * c; i < (row * w + x + width) * c; ++i)
        pixels[i] = static_cast<T>(full * (noise_ ? rng.uniform() : value_));
  }

  const float probability_;
  const double area_min_, area_max_, log_min_, log_max_;
  const bool noise_;
  const float value_;
  const StageContext context_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec random_erasing_stage;
const StageSpec random_erasing_stage{"random_erasing", "erases a random rectangle of images",
                                     StageKind::map, stages::kOptions,
                                     make_stage<stages::RandomErasing>};

}  // namespace etr::pipeline

// Erases a random rectangle (Zhong et al., "Random Erasing Data Augmentation", AAAI 2020) with a
// value or uniform noise.
#include <type_traits>

#include "pipeline/stage.h"
#include "stages/random_part.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"probability", OptionType::number, "0.5", "fraction of images in which a rectangle is erased",
     0, 1},
    {"area_min", OptionType::number, "0.02",
     "smallest area of the rectangle, as a fraction of the image", 0, 1},
    {"area_max", OptionType::number, "0.33",
     "largest area of the rectangle, as a fraction of the image", 0, 1},
    {"ratio_min", OptionType::number, "0.3",
     "smallest aspect ratio (width / height) of the rectangle", 0.01, 100},
    {"ratio_max", OptionType::number, "3.3333333333333335",
     "largest aspect ratio (width / height) of the rectangle", 0.01, 100},
    {"filling", OptionType::string, "\"value\"",
     "what the rectangle is filled with: a constant value, or noise", 0, 0, "", "value|noise"},
    {"value", OptionType::number, "0", "the constant value, as a fraction of full scale", 0, 1},
};

class RandomErasing final : public MapStage {
 public:
  RandomErasing(const Options& options, const StageContext& context)
      : probability_(static_cast<float>(options.number("probability"))),
        part_(options, "random_erasing"),
        noise_(options.string("filling") == "noise"),
        value_(static_cast<float>(options.number("value"))),
        context_(context) {}

  void process(Item& item, uint64_t epoch) const override {
    const Tensor& image = require_image(item, "image");
    Rng rng = item_rng(context_, epoch, item);
    if (rng.uniform() >= probability_) return;
    const auto part = part_.draw(rng, image.shape()[0], image.shape()[1]);
    if (!part) return;
    Tensor out = item.take_writable("image");
    if (out.dtype() == DType::u8)
      erase<uint8_t>(out, *part, rng);
    else if (out.dtype() == DType::u16)
      erase<uint16_t>(out, *part, rng);
    else
      erase<float>(out, *part, rng);
    item.set("image", std::move(out));
  }

 private:
  template <typename T>
  void erase(Tensor& image, const Box& part, Rng& rng) const {
    const int64_t w = image.shape()[1], c = image.shape()[2];
    const auto y = static_cast<int64_t>(part.y), x = static_cast<int64_t>(part.x);
    const int64_t bottom = y + static_cast<int64_t>(part.height);
    const int64_t right = x + static_cast<int64_t>(part.width);
    T* pixels = static_cast<T*>(image.mutable_data());
    constexpr float kRounding = std::is_integral_v<T> ? 0.5f : 0;
    for (int64_t row = y; row < bottom; ++row)
      for (int64_t i = (row * w + x) * c; i < (row * w + right) * c; ++i)
        pixels[i] = static_cast<T>(kFullScale<T> * (noise_ ? rng.uniform() : value_) + kRounding);
  }

  const float probability_;
  const RandomPart part_;
  const bool noise_;
  const float value_;
  const StageContext context_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec random_erasing_stage;
const StageSpec random_erasing_stage{
    "random_erasing", "erases a random rectangle of images", StageKind::map,
    stages::kOptions, make_stage<stages::RandomErasing>,     /*random=*/true};

}  // namespace etr::pipeline

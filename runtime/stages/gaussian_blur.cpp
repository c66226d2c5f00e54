// Blurs images with a Gaussian, truncated at three standard deviations, along rows, then columns.
// Edges are repeated.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "pipeline/stage.h"
#include "stages/image_ops.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"probability", OptionType::number, "1", "fraction of images that are blurred", 0, 1},
    {"sigma_min", OptionType::number, "0.1", "smallest standard deviation of the blur", 0.01, 50,
     "pixels"},
    {"sigma_max", OptionType::number, "2", "largest standard deviation of the blur", 0.01, 50,
     "pixels"},
};

class GaussianBlur final : public MapStage {
 public:
  GaussianBlur(const Options& options, const StageContext& context)
      : probability_(static_cast<float>(options.number("probability"))),
        sigma_min_(static_cast<float>(options.number("sigma_min"))),
        sigma_max_(static_cast<float>(options.number("sigma_max"))),
        context_(context) {
    if (sigma_min_ > sigma_max_)
      fail(Code::invalid_argument, "gaussian_blur: 'sigma_min' is above 'sigma_max'");
  }

  void process(Item& item, uint64_t epoch) const override {
    const Tensor& image = require_image(item, "image");
    Rng rng = item_rng(context_, epoch, item);
    if (rng.uniform() >= probability_) return;
    const float sigma = rng.uniform(sigma_min_, sigma_max_);
    item.set("image", image.dtype() == DType::u8    ? blur<uint8_t>(image, sigma)
                      : image.dtype() == DType::u16 ? blur<uint16_t>(image, sigma)
                                                    : blur<float>(image, sigma));
  }

 private:
  template <typename T>
  static Tensor blur(const Tensor& image, float sigma) {
    const int64_t h = image.shape()[0], w = image.shape()[1], c = image.shape()[2];
    const auto radius = static_cast<int64_t>(std::ceil(3 * sigma));
    std::vector<float> weights;
    float sum = 0;
    for (int64_t i = -radius; i <= radius; ++i) {
      weights.push_back(std::exp(-0.5f * static_cast<float>(i * i) / (sigma * sigma)));
      sum += weights.back();
    }
    const T* from = static_cast<const T*>(image.data());
    const auto row = static_cast<size_t>(w * c);
    std::vector<float> rows(static_cast<size_t>(h) * row, 0.0f);
    for (int64_t y = 0; y < h; ++y)
      for (int64_t k = -radius; k <= radius; ++k) {
        const float weight = weights[static_cast<size_t>(k + radius)] / sum;
        const T* line = from + static_cast<size_t>(std::clamp<int64_t>(y + k, 0, h - 1)) * row;
        float* out = rows.data() + static_cast<size_t>(y) * row;
        for (size_t i = 0; i < row; ++i) out[i] += weight * static_cast<float>(line[i]);
      }
    Tensor result(image.dtype(), image.shape());
    T* to = static_cast<T*>(result.mutable_data());
    for (int64_t y = 0; y < h; ++y)
      for (int64_t x = 0; x < w; ++x)
        for (int64_t channel = 0; channel < c; ++channel) {
          const float* line = rows.data() + static_cast<size_t>(y) * row;
          float value = 0;
          for (int64_t k = -radius; k <= radius; ++k)
            value += weights[static_cast<size_t>(k + radius)] / sum *
                     line[std::clamp<int64_t>(x + k, 0, w - 1) * c + channel];
          *to++ =
              static_cast<T>(std::is_integral_v<T> ? std::min(value + 0.5f, kFullScale<T>) : value);
        }
    return result;
  }

  const float probability_, sigma_min_, sigma_max_;
  const StageContext context_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec gaussian_blur_stage;
const StageSpec gaussian_blur_stage{
    "gaussian_blur",  "blurs images at random",         StageKind::map,
    stages::kOptions, make_stage<stages::GaussianBlur>, /*random=*/true};

}  // namespace etr::pipeline

// RandAugment (Cubuk et al. 2020): applies `num_ops` of fourteen distortions in turn, all with the
// same magnitude.
#include <algorithm>
#include <array>
#include <cmath>

#include "stages/box_ops.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"num_ops", OptionType::integer, "2", "number of distortions applied to each image", 0, 14, "",
     "", "picks"},
    {"magnitude", OptionType::number, "9", "strength of the distortions, 0 to 10", 0, 10},
    {"fill", OptionType::number, "0.5",
     "value of pixels outside the image, as a fraction of full scale", 0, 1},
};

class RandAugment final : public MapStage {
 public:
  RandAugment(const Options& options, const StageContext& context)
      : num_ops_(options.integer("num_ops")),
        strength_(static_cast<float>(options.number("magnitude") / 10)),
        fill_(static_cast<float>(options.number("fill"))),
        context_(context) {}

  void process(Item& item, uint64_t epoch) const override {
    refuse_boxes(item);
    require_image(item, "image");
    Rng rng = item_rng(context_, epoch, item);
    Tensor image = item.take_writable("image");
    for (int64_t i = 0; i < num_ops_; ++i) {
      const uint32_t kind = rng.below(14);
      const float sign = rng.below(2) ? 1.0f : -1.0f;
      image = distort(std::move(image), kind, sign);
    }
    item.set("image", std::move(image));
  }

 private:
  // The ranges at full magnitude are those of the paper.
  Tensor distort(Tensor image, uint32_t kind, float sign) const {
    const float s = sign * strength_;
    switch (kind) {
      case 0: return image;
      case 1: return moved(image, 30 * s, 0, 0, 0);
      case 2: return moved(image, 0, 17 * s, 0, 0);
      case 3: return transposed_shear(image, 17 * s);
      case 4: return moved(image, 0, 0, 0.45f * s, 0);
      case 5: return moved(image, 0, 0, 0, 0.45f * s);
      case 6: return stretch(std::move(image), 1 + 0.9f * s, 0);
      case 7: {
        const float mean = mean_luma(image);
        return stretch(std::move(image), 1 + 0.9f * s, mean);
      }
      case 8: {
        const Tensor gray = to_gray(image);
        return blend(std::move(image), gray, 1 + 0.9f * s);
      }
      case 9: return sharpened(std::move(image), 1 + 0.9f * s);
      case 10: return stretched(std::move(image));
      case 11: {
        const float limit = 1 - strength_;
        return per_value(std::move(image), [&](float v) { return v >= limit ? 1 - v : v; });
      }
      case 12: {
        const float levels = std::exp2(8 - std::round(4 * strength_));
        return per_value(std::move(image), [&](float v) {
          return std::floor(v * (levels - 1) + 0.5f) / (levels - 1);
        });
      }
      default: return equalized(std::move(image));
    }
  }

  Tensor moved(const Tensor& image, float degrees, float shear, float y, float x) const {
    const int64_t h = image.shape()[0], w = image.shape()[1];
    return warp(
        image,
        affine(h, w, degrees, 1, shear, y * static_cast<float>(h), x * static_cast<float>(w)),
        fill_);
  }

  // Shear along y: swaps x and y in the matrix.
  Tensor transposed_shear(const Tensor& image, float shear) const {
    const auto m = affine(image.shape()[1], image.shape()[0], 0, 1, shear, 0, 0);
    return warp(image, {m[4], m[3], m[5], m[1], m[0], m[2]}, fill_);
  }

  static Tensor sharpened(Tensor image, float factor) {
    const auto h = static_cast<double>(image.shape()[0]), w = static_cast<double>(image.shape()[1]);
    const auto half = [](int64_t n) { return std::max<int64_t>(n / 2, 1); };
    const Tensor small =
        resample(image, {0, 0, h, w}, half(image.shape()[0]), half(image.shape()[1]), Filter::area);
    const Tensor soft = resample(
        small, {0, 0, static_cast<double>(small.shape()[0]), static_cast<double>(small.shape()[1])},
        image.shape()[0], image.shape()[1], Filter::bilinear);
    return blend(std::move(image), soft, factor);
  }

  // Autocontrast: maps the darkest value to 0 and the brightest to full scale.
  static Tensor stretched(Tensor image) {
    float low = 1, high = 0;
    each(image, [&](float v) {
      low = std::min(low, v);
      high = std::max(high, v);
    });
    if (high <= low) return image;
    return per_value(std::move(image), [=](float v) { return (v - low) / (high - low); });
  }

  // Histogram equalisation with 256 levels, over all channels together. The darkest level that
  // occurs becomes 0, so that a dark background stays dark.
  static Tensor equalized(Tensor image) {
    std::array<double, 256> share{};
    double total = 0;
    const auto level = [](float v) { return static_cast<size_t>(std::clamp(v, 0.0f, 1.0f) * 255); };
    each(image, [&](float v) {
      ++share[level(v)];
      ++total;
    });
    const auto darkest = std::find_if(share.begin(), share.end(), [](double s) { return s > 0; });
    if (darkest == share.end() || *darkest == total) return image;
    const double others = total - *darkest;
    double sum = -*darkest;
    for (double& s : share) s = std::max(sum += s, 0.0) / others;
    return per_value(std::move(image),
                     [&](float v) { return static_cast<float>(share[level(v)]); });
  }

  template <typename F>
  static void each(const Tensor& image, F&& f) {
    if (image.dtype() == DType::u8)
      for (const uint8_t v : image.view<uint8_t>()) f(static_cast<float>(v) / 255);
    else if (image.dtype() == DType::u16)
      for (const uint16_t v : image.view<uint16_t>()) f(static_cast<float>(v) / 65535);
    else
      for (const float v : image.view<float>()) f(v);
  }

  const int64_t num_ops_;
  const float strength_, fill_;
  const StageContext context_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec rand_augment_stage;
const StageSpec rand_augment_stage{"rand_augment",
                                   "applies randomly chosen distortions, out of fourteen",
                                   StageKind::map,
                                   stages::kOptions,
                                   make_stage<stages::RandAugment>,
                                   /*random=*/true};

}  // namespace etr::pipeline

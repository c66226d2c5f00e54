// u8 -> f32: y[..., c] = (x / 255 - mean[c]) / std[c]. Works on an image and on a batch of images;
// behind `batch` it touches four times fewer bytes on the way there.
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "core/error.h"
#include "core/platform.h"
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"mean", OptionType::numbers, "[0.5]", "mean of each channel, or one for all", 0, 1},
    {"std", OptionType::numbers, "[0.5]", "standard deviation of each channel, or one for all",
     1e-6, 1e6},
};

class Normalize final : public MapStage {
 public:
  Normalize(const Options& options, const StageContext&)
      : mean_(options.numbers("mean")), std_(options.numbers("std")) {
    if (mean_.empty() || mean_.size() != std_.size())
      fail(Code::invalid_argument, "normalize: 'mean' has ", mean_.size(), " values, 'std' ",
           std_.size(), "; they need the same number, at least one");
    for (size_t c = 0; c < mean_.size(); ++c) {
      scale_.push_back(static_cast<float>(1 / (255 * std_[c])));
      shift_.push_back(static_cast<float>(-mean_[c] / std_[c]));
    }
  }

  void process(Item& item, uint64_t) const override {
    const Tensor& image = require_field(item, "image");
    if (image.dtype() != DType::u8 || image.shape().empty())
      fail(Code::invalid_argument, "normalize takes u8 images, not ", dtype_name(image.dtype()),
           " ", shape_text(image.shape()));
    const auto channels = static_cast<size_t>(image.shape().back());
    if (scale_.size() != 1 && scale_.size() != channels)
      fail(Code::invalid_argument, "normalize has ", scale_.size(), " means for images of ",
           channels, " channels");
    Tensor out(DType::f32, image.shape());
    apply(image.view<uint8_t>(), out.mutable_view<float>());
    item.set("image", std::move(out));
  }

 private:
  ETR_VECTOR_CLONES void apply(std::span<const uint8_t> in, std::span<float> out) const {
    // The channels' factors repeated over one block: the inner loop is then free of indices.
    constexpr size_t kBlock = 96;  // a multiple of 1, 2, 3 and 4 channels
    // Batches that are larger would go through the caches for nothing, after the lines they replace were read.
    [[maybe_unused]] constexpr size_t kPastCaches = size_t{4} << 20;
    const size_t n = scale_.size();
    if (kBlock % n != 0) {
      for (size_t i = 0; i < in.size(); ++i)
        out[i] = static_cast<float>(in[i]) * scale_[i % n] + shift_[i % n];
      return;
    }
    float scale[kBlock], shift[kBlock];
    for (size_t i = 0; i < kBlock; ++i) scale[i] = scale_[i % n], shift[i] = shift_[i % n];
    size_t at = 0;
#if defined(__SSE2__)
    if (out.size_bytes() >= kPastCaches) {
      alignas(16) float block[kBlock];
      for (; at + kBlock <= in.size(); at += kBlock) {
        for (size_t i = 0; i < kBlock; ++i)
          block[i] = static_cast<float>(in[at + i]) * scale[i] + shift[i];
        for (size_t i = 0; i < kBlock; i += 4)
          _mm_stream_ps(out.data() + at + i, _mm_load_ps(block + i));
      }
      _mm_sfence();
    }
#endif
    for (; at + kBlock <= in.size(); at += kBlock)
      for (size_t i = 0; i < kBlock; ++i)
        out[at + i] = static_cast<float>(in[at + i]) * scale[i] + shift[i];
    for (size_t i = 0; at + i < in.size(); ++i)
      out[at + i] = static_cast<float>(in[at + i]) * scale[i] + shift[i];
  }

  const std::vector<double> mean_, std_;
  std::vector<float> scale_, shift_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec normalize_stage;
const StageSpec normalize_stage{"normalize", "u8 to f32, mean and standard deviation removed",
                                StageKind::map, stages::kOptions, make_stage<stages::Normalize>};

}  // namespace etr::pipeline

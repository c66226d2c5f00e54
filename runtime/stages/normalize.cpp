// u8 and u16 -> f32: y[..., c] = (x / full - mean[c]) / std[c] = x * scale[c] + shift[c], where
// full is 255 or 65535. Works on images and on batches of images; after `batch`, u8 samples are a
// quarter of the size up to here.
#include "tensor/normalize.h"

#include "core/error.h"
#include "core/text.h"
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"mean", OptionType::numbers, "[0.5]", "mean of each channel, or one value for all", 0, 1},
    {"std", OptionType::numbers, "[0.5]",
     "standard deviation of each channel, or one value for all", 1e-6, 1e6},
    {"deferred", OptionType::boolean, "false",
     "leave the images u8 and store in the fields image_scale and image_shift what the device has "
     "to compute: image * scale + shift (jobs do this anyway if this is the last stage)"},
};

class Normalize final : public MapStage {
 public:
  Normalize(const Options& options, const StageContext& context)
      : deferred_(options.boolean("deferred")), may_defer_(context.defers && context.is_last) {
    const std::vector<double> mean = options.numbers("mean"), std = options.numbers("std");
    if (mean.empty() || mean.size() != std.size())
      fail(Code::invalid_argument, "normalize: 'mean' has ", counted(mean.size(), "value"),
           ", 'std' ", std.size(), "; they need the same number, at least one");
    const Shape channels{static_cast<int64_t>(mean.size())};
    scale_ = Tensor(DType::f32, channels);
    shift_ = Tensor(DType::f32, channels);
    for (size_t c = 0; c < mean.size(); ++c) {
      scale_.mutable_view<float>()[c] = static_cast<float>(1 / (255 * std[c]));
      scale_u16_.push_back(static_cast<float>(1 / (65535 * std[c])));
      shift_.mutable_view<float>()[c] = static_cast<float>(-mean[c] / std[c]);
    }
  }

  ViewStep view_step() const override { return ViewStep::any; }

  void process(Item& item, uint64_t) const override {
    if (item.views) return defer(item, item.views->front().image->shape().back());
    const Tensor& image = require_field(item, "image");
    const bool deep = image.dtype() == DType::u16;
    if ((image.dtype() != DType::u8 && !deep) || image.shape().empty())
      fail(Code::invalid_argument, "normalize takes images of u8 or u16, not ",
           dtype_name(image.dtype()), " ", shape_text(image.shape()));
    if (deep && deferred_)
      fail(Code::invalid_argument,
           "the device normalises only u8 images, not u16: leave out 'deferred'");
    if (!deep && (deferred_ || (may_defer_ && item.batch.size > 0)))
      return defer(item, image.shape().back());
    check_channels(image.shape().back());
    Tensor out(DType::f32, image.shape());
    auto* const to = static_cast<float*>(out.mutable_data());
    if (deep)
      normalize_u16(image.view<uint16_t>(), scale_u16_, shift_.view<float>(), to);
    else
      normalize_u8(image.view<uint8_t>(), scale_.view<float>(), shift_.view<float>(), to);
    item.set("image", std::move(out));
  }

 private:
  void check_channels(int64_t channels) const {
    if (scale_.count() != 1 && scale_.count() != channels)
      fail(Code::invalid_argument, "normalize has ", counted(scale_.count(), "mean"),
           " for images of ", counted(channels, "channel"));
  }
  void defer(Item& item, int64_t channels) const {
    check_channels(channels);
    if (item.batch.size == 0)
      fail(  // the fields below belong to a batch
          Code::invalid_argument,
          "a normalize stage that is left to the device ('deferred', or after an echo with "
          "'device') works on whole batches: put it after the batch stage");
    item.set("image_scale", scale_);
    item.set("image_shift", shift_);
  }

  const bool deferred_, may_defer_;
  Tensor scale_, shift_;  // f32 [C]
  std::vector<float> scale_u16_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec normalize_stage;
const StageSpec normalize_stage{"normalize",
                                "converts u8 or u16 to f32, subtracts the mean and divides by the "
                                "standard deviation, on the host or on the device",
                                StageKind::map,
                                stages::kOptions,
                                make_stage<stages::Normalize>,
                                /*random=*/false,
                                /*prepares=*/true};

}  // namespace etr::pipeline

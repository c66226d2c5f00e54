// Scales images to a height and a width, or to a length of the shorter side.
#include <algorithm>
#include <cmath>
#include <memory>

#include "codec/image_codec.h"
#include "core/byte_gate.h"
#include "core/error.h"
#include "pipeline/stage.h"
#include "stages/image_ops.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"height", OptionType::integer, "0", "height of the result; 0: keep the aspect ratio", 0,
     1 << 16, "pixels"},
    {"width", OptionType::integer, "0", "width of the result; 0: keep the aspect ratio", 0, 1 << 16,
     "pixels"},
    {"shorter_side", OptionType::integer, "0",
     "length of the shorter side, instead of height and width", 0, 1 << 16, "pixels", "",
     "shorter"},
    {"filter", OptionType::string, "\"bilinear\"",
     "interpolation; bilinear and area are antialiased when shrinking", 0, 0, "",
     "bilinear|area|nearest"},
};

class Resize final : public MapStage {
 public:
  Resize(const Options& options, const StageContext& context)
      : height_(options.integer("height")),
        width_(options.integer("width")),
        shorter_side_(options.integer("shorter_side")),
        filter_(filter_named(options.string("filter"))),
        budget_(static_cast<int64_t>(budget_bytes(context))),
        // One image may take the whole budget; several at a time share half of it.
        memory_(budget_ > 0 ? std::make_unique<ByteGate>(budget_ / 2, budget_) : nullptr) {
    if ((shorter_side_ > 0) == (height_ > 0 || width_ > 0))
      fail(Code::invalid_argument,
           "resize: give 'height', 'width' or both, or else 'shorter_side'");
  }

  void process(Item& item, uint64_t) const override {
    const Tensor& image = require_image(item, "image");
    const auto h = static_cast<double>(image.shape()[0]), w = static_cast<double>(image.shape()[1]);
    if (h < 1 || w < 1) fail(Code::invalid_argument, "an image without pixels cannot be resized");
    double out_h = static_cast<double>(height_), out_w = static_cast<double>(width_);
    if (shorter_side_ > 0) {
      const double scale = static_cast<double>(shorter_side_) / std::min(h, w);
      out_h = h * scale;
      out_w = w * scale;
    }
    if (out_h == 0) out_h = h * out_w / w;
    if (out_w == 0) out_w = w * out_h / h;
    out_h = std::max(std::round(out_h), 1.0);
    out_w = std::max(std::round(out_w), 1.0);
    // Keeping the shape of a narrow image of a few hundred bytes can take gigabytes.
    const auto refuse = [&](const auto&... why) {
      fail(Code::unsupported, "an image of ", image.shape()[0], " x ", image.shape()[1],
           " pixels would become one of ", static_cast<int64_t>(out_h), " x ",
           static_cast<int64_t>(out_w), ", ", why...);
    };
    if (out_h * out_w > static_cast<double>(codec::kMaxPixels))
      refuse("and ", codec::kMaxPixels, " pixels are the most");
    const double bytes = out_h * out_w * static_cast<double>(image.shape()[2]) *
                         static_cast<double>(dtype_size(image.dtype()));
    if (budget_ > 0 && bytes > static_cast<double>(budget_))
      refuse("which takes ", static_cast<int64_t>(bytes),
             " bytes of memory, more than the pipeline's budget_bytes (", budget_, ")");
    const auto hold =
        memory_ ? ByteGate::Hold(*memory_, static_cast<int64_t>(bytes)) : ByteGate::Hold();
    item.set("image", resample(image, {0, 0, h, w}, static_cast<int64_t>(out_h),
                               static_cast<int64_t>(out_w), filter_));
  }

  std::optional<int64_t> sufficient_side() const override {
    if (filter_ == Filter::nearest) return std::nullopt;
    return kReducingGap * std::max({height_, width_, shorter_side_});
  }

 private:
  const int64_t height_, width_, shorter_side_;
  const Filter filter_;
  const int64_t budget_;  // 0: none
  const std::unique_ptr<ByteGate> memory_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec resize_stage;
const StageSpec resize_stage{"resize",         "resizes images",           StageKind::map,
                             stages::kOptions, make_stage<stages::Resize>,
                             /*random=*/false,
                             /*prepares=*/true};

}  // namespace etr::pipeline

// Puts a border around images.
#include "core/error.h"
#include "stages/box_ops.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"pixels", OptionType::integers, nullptr,
     "width of the border: one for all sides, or top, left, bottom and right", 0, 1 << 14,
     "pixels"},
    {"fill", OptionType::number, "0", "value of the border, as a fraction of full scale", 0, 1},
};

class Pad final : public MapStage {
 public:
  Pad(const Options& options, const StageContext&)
      : sides_(options.integers("pixels")), fill_(static_cast<float>(options.number("fill"))) {
    if (sides_.size() == 1) sides_.resize(4, sides_[0]);
    if (sides_.size() != 4)
      fail(Code::invalid_argument, "pad: 'pixels' has ", sides_.size(),
           " numbers; give one, or four");
  }

  void process(Item& item, uint64_t) const override {
    const Tensor& image = require_image(item, "image");
    const int64_t h = image.shape()[0], w = image.shape()[1];
    const int64_t out_h = h + sides_[0] + sides_[2], out_w = w + sides_[1] + sides_[3];
    item.set("image", crop(image, -sides_[0], -sides_[1], out_h, out_w, fill_));
    crop_boxes(item, h, w, box_of(-sides_[0], -sides_[1], out_h, out_w));
  }

 private:
  std::vector<int64_t> sides_;  // top, left, bottom, right
  const float fill_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec pad_stage;
const StageSpec pad_stage{"pad",
                          "adds a border around images",
                          StageKind::map,
                          stages::kOptions,
                          make_stage<stages::Pad>,
                          /*random=*/false,
                          /*prepares=*/true};

}  // namespace etr::pipeline

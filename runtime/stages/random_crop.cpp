// Crops a random window of an image after padding it with zeros on each side.
#include "core/error.h"
#include "stages/box_ops.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"height", OptionType::integer, "0", "height of the window; 0: that of the image", 0, 1 << 16,
     "pixels"},
    {"width", OptionType::integer, "0", "width of the window; 0: that of the image", 0, 1 << 16,
     "pixels"},
    {"pad", OptionType::integer, "0", "zeros added on each side before cropping", 0, 1 << 12,
     "pixels"},
};

class RandomCrop final : public MapStage {
 public:
  RandomCrop(const Options& options, const StageContext& context)
      : height_(options.integer("height")),
        width_(options.integer("width")),
        pad_(options.integer("pad")),
        context_(context) {}

  void process(Item& item, uint64_t epoch) const override {
    const Tensor* image = item.views ? nullptr : &require_image(item, "image");
    const int64_t height = image ? image->shape()[0] : item.views->front().height;
    const int64_t width = image ? image->shape()[1] : item.views->front().width;
    const Window to = draw(height, width, item, epoch);
    if (image)
      item.set("image", crop(*image, to.y, to.x, to.height, to.width));
    else
      item.change_view([&](ImageView& view) { view.crop(to.y, to.x, to.height, to.width); });
    crop_boxes(item, height, width, box_of(to.y, to.x, to.height, to.width));
  }

  ViewStep view_step() const override { return ViewStep::place; }

 private:
  struct Window {
    int64_t y, x, height, width;
  };
  Window draw(int64_t h, int64_t w, const Item& item, uint64_t epoch) const {
    const int64_t out_h = height_ ? height_ : h, out_w = width_ ? width_ : w;
    const int64_t room_y = h + 2 * pad_ - out_h, room_x = w + 2 * pad_ - out_w;
    if (room_y < 0 || room_x < 0)
      fail(Code::invalid_argument, "an image of ", h, " x ", w, " with ", pad_,
           " pixels of padding is smaller than the window of ", out_h, " x ", out_w);
    Rng rng = item_rng(context_, epoch, item);
    const int64_t y0 = rng.below(static_cast<uint32_t>(room_y + 1)) - pad_;
    const int64_t x0 = rng.below(static_cast<uint32_t>(room_x + 1)) - pad_;
    return {y0, x0, out_h, out_w};
  }

  const int64_t height_, width_, pad_;
  const StageContext context_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec random_crop_stage;
const StageSpec random_crop_stage{"random_crop",
                                  "crops a random window, after zero padding",
                                  StageKind::map,
                                  stages::kOptions,
                                  make_stage<stages::RandomCrop>,
                                  /*random=*/true};

}  // namespace etr::pipeline

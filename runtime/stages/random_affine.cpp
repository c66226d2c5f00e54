// Randomly rotates, translates, scales and shears images about their centre.
#include "core/error.h"
#include "stages/box_ops.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"degrees", OptionType::number, "0", "largest rotation in either direction", 0, 180, "degrees"},
    {"translate", OptionType::number, "0",
     "largest translation along each axis, as a fraction of the image's size", 0, 1},
    {"scale_min", OptionType::number, "1", "smallest scale factor", 0.01, 100},
    {"scale_max", OptionType::number, "1", "largest scale factor", 0.01, 100},
    {"shear", OptionType::number, "0", "largest shear angle along x in either direction", 0, 80,
     "degrees"},
    {"fill", OptionType::number, "0",
     "value of pixels outside the image, as a fraction of full scale", 0, 1},
};

class RandomAffine final : public MapStage {
 public:
  RandomAffine(const Options& options, const StageContext& context)
      : degrees_(share(options, "degrees")),
        translate_(share(options, "translate")),
        scale_min_(share(options, "scale_min")),
        scale_max_(share(options, "scale_max")),
        shear_(share(options, "shear")),
        fill_(share(options, "fill")),
        context_(context) {
    if (scale_min_ > scale_max_)
      fail(Code::invalid_argument, "random_affine: 'scale_min' is above 'scale_max'");
  }

  void process(Item& item, uint64_t epoch) const override {
    refuse_boxes(item);
    const Tensor& image = require_image(item, "image");
    const int64_t h = image.shape()[0], w = image.shape()[1];
    Rng rng = item_rng(context_, epoch, item);
    const double degrees = rng.uniform(-degrees_, degrees_),
                 scale = rng.uniform(scale_min_, scale_max_);
    const double shear = rng.uniform(-shear_, shear_);
    const double y = static_cast<double>(h) * rng.uniform(-translate_, translate_);
    const double x = static_cast<double>(w) * rng.uniform(-translate_, translate_);
    item.set("image", warp(image, affine(h, w, degrees, scale, shear, y, x), fill_));
  }

 private:
  static float share(const Options& options, const char* name) {
    return static_cast<float>(options.number(name));
  }

  const float degrees_, translate_, scale_min_, scale_max_, shear_, fill_;
  const StageContext context_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec random_affine_stage;
const StageSpec random_affine_stage{"random_affine",
                                    "rotates, moves, scales and shears images at random",
                                    StageKind::map,
                                    stages::kOptions,
                                    make_stage<stages::RandomAffine>,
                                    /*random=*/true};

}  // namespace etr::pipeline

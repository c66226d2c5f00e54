// Converts colour images to gray: ITU-R BT.601 luma in every channel.
#include "pipeline/stage.h"
#include "stages/image_ops.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"probability", OptionType::number, "1", "fraction of images that are converted", 0, 1},
};

class Grayscale final : public MapStage {
 public:
  Grayscale(const Options& options, const StageContext& context)
      : probability_(static_cast<float>(options.number("probability"))), context_(context) {}

  void process(Item& item, uint64_t epoch) const override {
    const Tensor& image = require_image(item, "image");
    if (item_rng(context_, epoch, item).uniform() < probability_) item.set("image", to_gray(image));
  }

 private:
  const float probability_;
  const StageContext context_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec grayscale_stage;
const StageSpec grayscale_stage{
    "grayscale",      "converts images to gray at random", StageKind::map,
    stages::kOptions, make_stage<stages::Grayscale>,       /*random=*/true,
    /*prepares=*/true};

}  // namespace etr::pipeline

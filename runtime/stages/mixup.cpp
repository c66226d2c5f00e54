// mixup (Zhang et al. 2018): each sample of a batch is blended with another one of it, and so are the labels; the share
// is drawn from Beta(alpha, alpha), once for the batch. Behind batch; labels are one-hot, f32 [N, classes].
#include "core/error.h"
#include "pipeline/stage.h"
#include "stages/batch_mix.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"alpha", OptionType::number, "0.2",
     "of the Beta distribution: small values leave most samples nearly whole", 0.001, 1000},
    {"probability", OptionType::number, "1", "share of batches that are mixed", 0, 1},
};

class Mixup final : public BatchMix {
 public:
  using BatchMix::BatchMix;

 protected:
  void mix(Item& item, Rng& rng, float share, const std::vector<size_t>& partner) const override {
    (void)rng;
    item.set("image", blended(require_field(item, "image"), partner, share));
    item.set("label", blended(require_field(item, "label"), partner, share));
  }
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec mixup_stage;
const StageSpec mixup_stage{"mixup", "blends each sample of a batch with another", StageKind::map,
                            stages::kOptions, make_stage<stages::Mixup>};

}  // namespace etr::pipeline

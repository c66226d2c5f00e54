// mixup (Zhang et al. 2018): each sample of a batch is blended with another one, and so are the
// labels. The share is drawn from Beta(alpha, alpha) once per batch. Must follow batch; labels are
// one-hot, f32 [N, classes].
#include "stages/batch_mix.h"

namespace etr::stages {
namespace {

using namespace pipeline;

class Mixup final : public BatchMix {
 public:
  using BatchMix::BatchMix;

 protected:
  void mix(Item& item, Rng&, float share, const std::vector<size_t>& partner) const override {
    item.set("image", blended(require_field(item, "image"), partner, share));
    item.set("label", blended(require_field(item, "label"), partner, share));
  }
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec mixup_stage;
const StageSpec mixup_stage{"mixup",
                            "blends each sample of a batch with another one",
                            StageKind::map,
                            stages::kBatchMixOptions,
                            make_stage<stages::Mixup>,
                            /*random=*/true};

}  // namespace etr::pipeline

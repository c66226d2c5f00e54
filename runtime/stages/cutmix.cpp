// CutMix (Yun et al. 2019): a rectangle of each image of a batch is replaced by that of another
// image. Labels are blended by area; the share is drawn from Beta(alpha, alpha) once per batch.
// Must follow batch; labels are one-hot, f32 [N, classes].
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/text.h"
#include "stages/batch_mix.h"

namespace etr::stages {
namespace {

using namespace pipeline;

class Cutmix final : public BatchMix {
 public:
  using BatchMix::BatchMix;

 protected:
  void mix(Item& item, Rng& rng, float share, const std::vector<size_t>& partner) const override {
    const Tensor& images = require_field(item, "image");
    if (images.shape().size() != 4)
      fail(Code::invalid_argument, "cutmix takes images [N, H, W, C]; 'image' is ",
           shape_text(images.shape()));
    if (images.shape()[0] != static_cast<int64_t>(partner.size()))
      fail(Code::invalid_argument, "cutmix: 'image' is ", shape_text(images.shape()),
           ", and 'label' has ", counted(partner.size(), "row"), "; each image needs one");
    const int64_t h = images.shape()[1], w = images.shape()[2], c = images.shape()[3];
    const float side = std::sqrt(1 - share);
    const auto bh = static_cast<int64_t>(side * static_cast<float>(h)),
               bw = static_cast<int64_t>(side * static_cast<float>(w));
    const int64_t y = rng.below(static_cast<uint32_t>(h - bh + 1)),
                  x = rng.below(static_cast<uint32_t>(w - bw + 1));
    Tensor out(images.dtype(), images.shape());
    const size_t pixel = static_cast<size_t>(c) * dtype_size(images.dtype());
    const size_t image = static_cast<size_t>(h * w) * pixel, row = static_cast<size_t>(w) * pixel;
    const auto* from = static_cast<const std::byte*>(images.data());
    auto* to = static_cast<std::byte*>(out.mutable_data());
    std::memcpy(to, from, images.size_bytes());
    for (size_t i = 0; i < partner.size(); ++i)
      for (int64_t line = y; line < y + bh; ++line) {
        const size_t at = static_cast<size_t>(line) * row + static_cast<size_t>(x) * pixel;
        std::memcpy(to + i * image + at, from + partner[i] * image + at,
                    static_cast<size_t>(bw) * pixel);
      }
    item.set("image", std::move(out));
    const float kept =
        1 - static_cast<float>(bh * bw) / static_cast<float>(std::max<int64_t>(h * w, 1));
    item.set("label", blended(require_field(item, "label"), partner, kept));
  }
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec cutmix_stage;
const StageSpec cutmix_stage{
    "cutmix",
    "replaces a rectangle of each sample of a batch by one of another sample",
    StageKind::map,
    stages::kBatchMixOptions,
    make_stage<stages::Cutmix>,
    /*random=*/true};

}  // namespace etr::pipeline

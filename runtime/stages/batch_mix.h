// The base of stages after `batch` that mix each sample with a partner from the batch.
#pragma once

#include <vector>

#include "pipeline/stage.h"

namespace etr::stages {

inline constexpr OptionSpec kBatchMixOptions[] = {
    {"alpha", OptionType::number, "0.2",
     "parameter of the Beta distribution from which the mixing ratio is drawn; small values leave "
     "most samples almost unmixed",
     0.001, 1000},
    {"probability", OptionType::number, "1", "fraction of batches that are mixed", 0, 1},
};

// Derived stages have these options and no others.
class BatchMix : public pipeline::MapStage {
 public:
  BatchMix(const Options& options, const pipeline::StageContext& context);

  void process(pipeline::Item& batch, uint64_t epoch) const final;

 protected:
  // Each sample keeps `share` of itself, in (0, 1); partner[i] contributes the rest.
  virtual void mix(pipeline::Item& batch, Rng& rng, float share,
                   const std::vector<size_t>& partner) const = 0;

  // share * x[i] + (1 - share) * x[partner[i]] along the first axis; u8 is rounded.
  static Tensor blended(const Tensor& x, const std::vector<size_t>& partner, float share);

 private:
  const double alpha_;
  const float probability_;
  const pipeline::StageContext context_;
};

}  // namespace etr::stages

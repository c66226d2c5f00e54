#include "stages/batch_mix.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/text.h"
#include "stages/box_ops.h"

namespace etr::stages {
namespace {

struct Gamma {
  double value, log;  // the value of a small alpha may be too small for a double
};

// Draws from Gamma(alpha, 1): Marsaglia and Tsang, "A simple method for generating gamma
// variables", 2000. For alpha below 1 uses Gamma(alpha + 1) * U^(1 / alpha).
Gamma draw_gamma(Rng& rng, double alpha) {
  const auto uniform = [&] { return static_cast<double>(rng.uniform()) + 0x1.0p-25; };  // never 0
  if (alpha < 1) {
    const Gamma larger = draw_gamma(rng, alpha + 1);
    const double u = uniform();
    return {larger.value * std::pow(u, 1 / alpha), larger.log + std::log(u) / alpha};
  }
  const double d = alpha - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = rng.normal(), v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(uniform()) < 0.5 * x * x + d - d * v + d * std::log(v))
      return {d * v, std::log(d * v)};
  }
}

// Draws from Beta(alpha, alpha).
double draw_beta(Rng& rng, double alpha) {
  const Gamma a = draw_gamma(rng, alpha), b = draw_gamma(rng, alpha);
  const double sum = a.value + b.value;
  if (sum >= std::numeric_limits<double>::min()) return a.value / sum;
  return 1 / (1 + std::exp(b.log - a.log));
}

template <typename T>
void blend_rows(const Tensor& x, const std::vector<size_t>& partner, float share, Tensor& out) {
  const auto from = x.view<T>();
  const auto to = out.mutable_view<T>();
  const size_t row = from.size() / partner.size();
  for (size_t i = 0; i < partner.size(); ++i)
    for (size_t k = 0; k < row; ++k) {
      const float value = share * static_cast<float>(from[i * row + k]) +
                          (1 - share) * static_cast<float>(from[partner[i] * row + k]);
      to[i * row + k] = static_cast<T>(std::is_integral_v<T> ? value + 0.5f : value);
    }
}

}  // namespace

BatchMix::BatchMix(const Options& options, const pipeline::StageContext& context)
    : alpha_(options.number("alpha")),
      probability_(static_cast<float>(options.number("probability"))),
      context_(context) {}

void BatchMix::process(pipeline::Item& batch, uint64_t epoch) const {
  if (batch.batch.size == 0)
    fail(Code::invalid_argument, "this stage mixes the samples of batches; put it after 'batch'");
  const Tensor& label = pipeline::require_field(batch, "label");
  if (label.dtype() != DType::f32 || label.shape().size() != 2)
    fail(Code::invalid_argument, "labels must be f32 [N, classes] to be mixed; they are ",
         dtype_name(label.dtype()), " ", shape_text(label.shape()),
         ". Use the option one_hot of the stage 'label'");
  refuse_boxes(batch);
  Rng rng = pipeline::item_rng(context_, epoch, batch);
  if (rng.uniform() >= probability_) return;
  const auto share = static_cast<float>(draw_beta(rng, alpha_));
  std::vector<size_t> partner(static_cast<size_t>(label.shape()[0]));
  std::iota(partner.begin(), partner.end(), size_t{0});
  shuffle(partner, rng);
  mix(batch, rng, share, partner);
}

Tensor BatchMix::blended(const Tensor& x, const std::vector<size_t>& partner, float share) {
  if (x.shape().empty() || static_cast<size_t>(x.shape()[0]) != partner.size())
    fail(Code::invalid_argument, "a field of shape ", shape_text(x.shape()), " in a batch of ",
         counted(partner.size(), "sample"), " cannot be mixed");
  Tensor out(x.dtype(), x.shape());
  if (x.dtype() == DType::u8)
    blend_rows<uint8_t>(x, partner, share, out);
  else if (x.dtype() == DType::u16)
    blend_rows<uint16_t>(x, partner, share, out);
  else if (x.dtype() == DType::f32)
    blend_rows<float>(x, partner, share, out);
  else
    fail(Code::invalid_argument, "fields of i32 cannot be mixed");
  return out;
}

}  // namespace etr::stages

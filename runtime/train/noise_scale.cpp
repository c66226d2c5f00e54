#include "train/noise_scale.h"

#include "core/error.h"
#include "core/json.h"

namespace etr::train {

void GradientSum::add(std::span<const float> gradients, double divisor) {
  if (count_ == 0) sum_.resize(gradients.size());
  if (gradients.size() != sum_.size())
    fail(Code::internal, "noise scale: ", gradients.size(), " gradients after ", sum_.size());
  for (size_t i = 0; i < gradients.size(); ++i) {
    const double g = static_cast<double>(gradients[i]) / divisor;
    sum_[i] += g;
    squares_ += g * g;
  }
  ++count_;
}

GradientSquares GradientSum::squares(double rows_each) const {
  if (count_ < 2) fail(Code::internal, "noise scale: it takes the gradients of two batches");
  const auto n = static_cast<double>(count_);
  double large = 0;
  for (const double sum : sum_) large += sum / n * (sum / n);
  return {rows_each, n * rows_each, squares_ / n, large};
}

void NoiseScale::add(const GradientSquares& m) {
  const double b = m.small_rows, B = m.large_rows;
  gradient_square_ = keep_ * gradient_square_ + (B * m.large - b * m.small) / (B - b);
  variance_ = keep_ * variance_ + (m.small - m.large) / (1 / b - 1 / B);
  weight_ = keep_ * weight_ + 1;
  ++count_;
}

double NoiseScale::gradient_square() const { return count_ ? gradient_square_ / weight_ : 0; }
double NoiseScale::variance() const { return count_ ? variance_ / weight_ : 0; }

std::optional<double> NoiseScale::value() const {
  if (gradient_square_ <= 0 || variance_ < 0) return std::nullopt;
  return variance_ / gradient_square_;
}

Json NoiseScale::json() const {
  return {{"count", count_},
          {"gradient_square", gradient_square_},
          {"variance", variance_},
          {"weight", weight_}};
}

void NoiseScale::load(const JsonMembers& state) {
  count_ = state.count("count");
  gradient_square_ = state.real_or_nan("gradient_square");
  variance_ = state.real_or_nan("variance");
  weight_ = state.number("weight");
}

}  // namespace etr::train

// The gradient noise scale (McCandlish et al. 2018, arXiv 1812.06162): the batch size, in examples,
// above which larger batches save hardly any steps. It gives only an order of magnitude.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/json_fwd.h"
#include "core/json_members.h"

namespace etr::train {

// Squared norms of gradients at the same weights, from batches of two sizes.
struct GradientSquares {
  double small_rows = 0, large_rows = 0;
  double small = 0;  // G_b|^2, the mean over batches of `small_rows`
  double large = 0;  // G_B|^2, of the gradient over all their rows
};

// Sums the gradients of several batches with equal numbers of rows.
class GradientSum {
 public:
  // `divisor`: the factor by which the gradients were multiplied. All gradients have the same
  // length.
  void add(std::span<const float> gradients, double divisor = 1);
  int64_t count() const { return count_; }

  GradientSquares squares(double rows_each) const;  // needs at least two batches

 private:
  std::vector<double> sum_;
  double squares_ = 0;
  int64_t count_ = 0;
};

// With G the true gradient and S the covariance of one example's gradient, E|G_b|^2 = |G|^2 + tr(S)
// / b. Two batch sizes give both:
//
//   |G|^2 = (B |G_B|^2 - b |G_b|^2) / (B - b)      tr(S) = (|G_b|^2 - |G_B|^2) / (1/b - 1/B)
//
// Each estimate is noisy and may be negative, so both are averaged over measurements before the
// division.
class NoiseScale {
 public:
  // `keep`: the factor on earlier measurements with each new one; below 1 the mean follows a run.
  explicit NoiseScale(double keep = 1) : keep_(keep) {}

  void add(const GradientSquares& measured);
  uint64_t count() const { return count_; }

  double gradient_square() const;  // the mean of |G|^2
  double variance() const;         // the mean of tr(S)
  // tr(S) / |G|^2 in examples; none without measurements, or if noise makes one of the means
  // non-positive.
  std::optional<double> value() const;

  // For checkpoints.
  Json json() const;
  void load(const JsonMembers& state);

 private:
  double keep_;
  double gradient_square_ = 0, variance_ = 0, weight_ = 0;  // sums
  uint64_t count_ = 0;
};

}  // namespace etr::train

#include "nn/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace etr::nn {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;
constexpr double kNear = 1e-5;  // of frequencies that are known as floats

double rounded(double value, int digits) {
  const double unit = std::pow(10.0, std::floor(std::log10(value)) + 1 - digits);
  // Powers of ten below 1 are not exact, their inverses are.
  return unit < 1 ? std::round(value / unit) / std::round(1 / unit)
                  : std::round(value / unit) * unit;
}

// Bases of which the angles, or those at either end, are the powers: scaling divides the last ones
// by its factor, and leaves the first ones as they are.
std::vector<double> bases(std::span<const double> angles) {
  const size_t pairs = angles.size();
  if (pairs == 1) return {10000};  // the only angle is 1, whatever the base is
  const auto base = [&](size_t from, size_t to) {
    return std::pow(angles[from] / angles[to],
                    static_cast<double>(pairs) / static_cast<double>(to - from));
  };
  const auto equal = [&](size_t i, size_t other) {  // the ratios behind them
    const double a = angles[i] / angles[i + 1], b = angles[other] / angles[other + 1];
    return std::abs(a - b) <= kNear * b;
  };
  size_t begin = pairs - 2, end = 1;
  while (begin > 0 && equal(begin - 1, pairs - 2)) --begin;
  while (end + 1 < pairs && equal(end, 0)) ++end;
  return {base(begin, pairs - 1), base(0, end)};
}

// Returns the scaling that makes these angles of those of the base; {} if there is none. Only the
// context's ratios to the low and high factor have an effect: the low one is 1, and the high one 4,
// as Llama's are, if the angles leave it open.
std::vector<double> scaling_of(std::span<const double> angles, double base) {
  constexpr double kHigh = 4, kBeta = 1 / (kHigh - 1);
  const auto pairs = static_cast<int64_t>(angles.size());
  std::vector<double> plain, kept;  // kept: 1 for a pair that is not scaled, 0 for one that is
  for (int64_t i = 0; i < pairs; ++i) plain.push_back(rotary_frequency({base, {}}, 2 * pairs, i));
  const double least = angles.back() / plain.back();
  if (!(least < 1 - kNear)) return {};
  for (size_t i = 0; i < angles.size(); ++i)
    kept.push_back((angles[i] / plain[i] - least) / (1 - least));
  // Between them `kept` is alpha plain - beta.
  size_t begin = 0;
  while (kept[begin] > 1 - kNear) ++begin;
  size_t end = begin;
  while (kept[end] > kNear) ++end;
  double alpha = kBeta / plain[0], beta = kBeta;  // all are scaled
  if (end - begin >= 2) {
    alpha = (kept[begin] - kept[end - 1]) / (plain[begin] - plain[end - 1]);
    beta = alpha * plain[begin] - kept[begin];
  } else if (end - begin == 1) {
    alpha =
        std::max((kept[begin] + kBeta) / plain[begin], kept[begin] / (plain[begin] - plain[end]));
    if (begin > 0) alpha = std::max(alpha, (1 - kept[begin]) / (plain[begin - 1] - plain[begin]));
    beta = alpha * plain[begin] - kept[begin];
  } else if (begin > 0 && plain[begin - 1] >= kHigh * plain[end]) {
    alpha = kBeta * std::sqrt(kHigh / (plain[begin - 1] * plain[end]));
  } else if (begin > 0) {
    alpha = 1 / (plain[begin - 1] - plain[end]);
    beta = alpha * plain[end];
  }
  return {1 / least, 1, 1 + 1 / beta, kTurn * alpha / beta};
}

}  // namespace

double rotary_frequency(const Rotary& rotary, int64_t head, int64_t i) {
  const double plain =
      std::pow(rotary.base, -2 * static_cast<double>(i) / static_cast<double>(head));
  if (rotary.scaling.empty()) return plain;
  const double factor = rotary.scaling[0], low = rotary.scaling[1], high = rotary.scaling[2],
               context = rotary.scaling[3];
  const double turns = context * plain / kTurn;  // within the context
  if (turns > high) return plain;
  if (turns < low) return plain / factor;
  const double smooth = (turns - low) / (high - low);
  return (1 - smooth) * plain / factor + smooth * plain;
}

std::optional<Rotary> rotary_of(std::span<const double> angles,
                                const std::function<bool(const Rotary&)>& fits) {
  constexpr int kMostDigits = 9;
  for (size_t i = 0; i < angles.size(); ++i)  // each pair turns more slowly than the one before
    if (!(angles[i] > 0 && angles[i] <= (i == 0 ? 1 + kNear : angles[i - 1]))) return std::nullopt;
  for (const bool scaled : {false, true})
    for (const double base : bases(angles))
      for (int digits = 1; digits <= kMostDigits; ++digits) {
        Rotary out{rounded(base, digits), {}};
        if (scaled) {
          out.scaling = scaling_of(angles, out.base);
          if (out.scaling.empty()) continue;
          for (double& each : out.scaling) each = rounded(each, digits);
          if (out.scaling[2] <= out.scaling[1]) continue;
        }
        if (fits(out)) return out;
      }
  return std::nullopt;
}

}  // namespace etr::nn

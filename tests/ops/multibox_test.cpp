// box_match, multibox_loss.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "support/op_check.h"

namespace etr::test {
namespace {

constexpr size_t kClasses = 4, kColumns = kClasses + 8, kAnchors = 67, kMost = 5, kSamples = 3;

// Anchors of several sizes all over the image; the same for reference and device.
std::array<double, 4> anchor(size_t a) {
  const double side = a % 3 == 0 ? 0.5 : 0.25;
  return {0.1 + 0.8 * static_cast<double>(a % 8) / 8, 0.1 + 0.8 * static_cast<double>(a / 8) / 8,
          side, a % 2 ? side : side / 2};
}

double overlap(const double* box, const std::array<double, 4>& a) {
  const double w = std::min(box[3], a[0] + a[2] / 2) - std::max(box[1], a[0] - a[2] / 2);
  const double h = std::min(box[4], a[1] + a[3] / 2) - std::max(box[2], a[1] - a[3] / 2);
  if (box[0] < 0 || w <= 0 || h <= 0) return 0;
  return w * h / ((box[3] - box[1]) * (box[4] - box[2]) + a[2] * a[3] - w * h);
}

// Sample 0 has boxes everywhere, sample 1 two, of which one lies where no anchor is, sample 2 none.
void make_sensible(std::vector<Doubles>& in) {
  for (size_t r = 0; r < kSamples * kAnchors; ++r) {
    const auto a = anchor(r % kAnchors);
    std::copy(a.begin(), a.end(), in[0].begin() + static_cast<ptrdiff_t>((r + 1) * kColumns - 4));
    for (size_t k = 0; k < kColumns - 4; ++k) in[0][r * kColumns + k] *= 3;
  }
  for (size_t b = 0; b < kSamples * kMost; ++b) {
    double* box = &in[1][5 * b];
    const bool there = b / kMost == 0 || (b / kMost == 1 && b % kMost < 2);
    box[0] = there ? static_cast<double>(b % (kClasses - 1)) : -1;
    const double x = std::abs(box[1]), y = std::abs(box[2]);
    box[1] = 0.6 * x, box[2] = 0.6 * y;
    box[3] = box[1] + 0.15 + 0.2 * std::abs(box[3]),
    box[4] = box[2] + 0.15 + 0.2 * std::abs(box[4]);
    if (b == kMost + 1) box[1] = 0.001, box[2] = 0.001, box[3] = 0.002, box[4] = 0.002;
  }
}

Doubles match(const Doubles& boxes, double threshold) {
  Doubles out(kSamples * kAnchors);
  for (size_t n = 0; n < kSamples; ++n) {
    for (size_t a = 0; a < kAnchors; ++a) {
      double top = 0;
      size_t found = 0;
      for (size_t m = 0; m < kMost; ++m) {
        const double value = overlap(&boxes[5 * (n * kMost + m)], anchor(a));
        if (value > top) top = value, found = m + 1;
      }
      out[n * kAnchors + a] = top >= threshold ? static_cast<double>(found) : 0;
    }
    for (size_t m = 0; m < kMost; ++m) {
      double top = 0;
      size_t best = kAnchors;
      for (size_t a = 0; a < kAnchors; ++a)
        if (overlap(&boxes[5 * (n * kMost + m)], anchor(a)) > top)
          top = overlap(&boxes[5 * (n * kMost + m)], anchor(a)), best = a;
      if (best < kAnchors) out[n * kAnchors + best] = static_cast<double>(m + 1);
    }
  }
  return out;
}

TEST(BoxMatch, GivesEachAnchorItsBoxAndEachBoxAnAnchor) {
  for (const double threshold : {0.5, 0.3, 0.95})
    check_op({.op = "box_match",
              .options = R"({"iou_threshold": )" + std::to_string(threshold) + "}",
              .inputs = {{kSamples, kAnchors, kColumns}, {kSamples, kMost, 5}},
              .reference =
                  [&](const auto& in) {
                    const Doubles found = match(in[1], threshold);
                    // What the case is about: many anchors a box, one at least, samples without
                    // boxes.
                    EXPECT_GE(
                        std::count_if(found.begin(), found.end(), [](double v) { return v > 0; }),
                        4);
                    EXPECT_EQ(std::count(found.end() - kAnchors, found.end(), 0.0), kAnchors);
                    return found;
                  },
              .gradient = false,
              .adjust = make_sensible});
}

// A box in the middle between two anchors finds the first one, however the device rounds.
TEST(BoxMatch, OfEqualOverlapsTheFirstWins) {
  constexpr size_t kPlaces = 180;
  check_op({.op = "box_match",
            .options = R"({"iou_threshold": 0.95})",
            .inputs = {{kPlaces, 2, kColumns}, {kPlaces, 1, 5}},
            .reference =
                [&](const auto&) {
                  Doubles found(2 * kPlaces);
                  for (size_t place = 0; place < kPlaces; ++place) found[2 * place] = 1;
                  return found;
                },
            .gradient = false,
            .adjust =
                [&](auto& in) {
                  for (size_t place = 0; place < kPlaces; ++place) {
                    const double x = static_cast<double>(60 + place) / 300;
                    const double box[] = {0, x - 0.1, 0.41, x + 0.1, 0.57};
                    std::copy(std::begin(box), std::end(box),
                              in[1].begin() + static_cast<ptrdiff_t>(5 * place));
                    for (const size_t right : {size_t{0}, size_t{1}}) {
                      const double anchor[] = {right ? x + 0.07 : x - 0.07, 0.5, 0.23, 0.19};
                      std::copy(std::begin(anchor), std::end(anchor),
                                in[0].begin() +
                                    static_cast<ptrdiff_t>((2 * place + right + 1) * kColumns - 4));
                    }
                  }
                }});
}

// The loss with sorting, as the paper has it.
Doubles multibox(const std::vector<Doubles>& in, double negatives) {
  Doubles loss(kSamples * kAnchors), entropy(loss.size());
  for (size_t n = 0; n < kSamples; ++n) {
    std::vector<size_t> background;
    for (size_t r = n * kAnchors; r < (n + 1) * kAnchors; ++r) {
      const double* x = &in[0][r * kColumns];
      const auto found = static_cast<size_t>(in[2][r]);
      double sum = 0;
      for (size_t k = 0; k < kClasses; ++k) sum += std::exp(x[k]);
      if (found == 0) {
        entropy[r] = std::log(sum) - x[0];
        background.push_back(r);
        continue;
      }
      const double* box = &in[1][5 * (n * kMost + found - 1)];
      loss[r] = std::log(sum) - x[static_cast<size_t>(box[0]) + 1];
      const auto a = anchor(r % kAnchors);
      const double aim[] = {((box[1] + box[3]) / 2 - a[0]) / (0.1 * a[2]),
                            ((box[2] + box[4]) / 2 - a[1]) / (0.1 * a[3]),
                            std::log((box[3] - box[1]) / a[2]) / 0.2,
                            std::log((box[4] - box[2]) / a[3]) / 0.2};
      for (size_t i = 0; i < 4; ++i) {
        const double d = std::abs(x[kClasses + i] - aim[i]);
        loss[r] += d < 1 ? d * d / 2 : d - 0.5;
      }
    }
    std::stable_sort(background.begin(), background.end(),
                     [&](size_t a, size_t b) { return entropy[a] > entropy[b]; });
    const auto found = static_cast<double>(kAnchors - background.size());
    const auto wanted = std::min(background.size(), static_cast<size_t>(negatives * found));
    for (size_t i = 0; i < wanted; ++i) loss[background[i]] = entropy[background[i]];
  }
  return loss;
}

void check_loss(double negatives, const std::function<void(std::vector<Doubles>&)>& change) {
  check_op({.op = "multibox_loss",
            .options = R"({"negative_ratio": )" + std::to_string(negatives) + "}",
            .inputs = {{kSamples, kAnchors, kColumns}, {kSamples, kMost, 5}, {kSamples, kAnchors}},
            .reference = [&](const auto& in) { return multibox(in, negatives); },
            .gradient_tolerance = 5e-4,
            .adjust =
                [&](auto& in) {
                  make_sensible(in);
                  in[2] = match(in[1], 0.3);
                  change(in);
                }});
}

TEST(MultiboxLoss, CountsTheHardestBackground) {
  for (const double negatives : {3.0, 0.0, 1.5, 1000.0}) check_loss(negatives, [](auto&) {});
}

// Of equals the first ones count: all rows of an untrained model may be the same.
TEST(MultiboxLoss, CountsAsManyWhereAllAreAlike) {
  const auto alike = [](std::vector<Doubles>& in) {
    for (size_t r = 0; r < kSamples * kAnchors; ++r)
      for (size_t k = 0; k < kClasses; ++k) in[0][r * kColumns + k] = 0.5 * static_cast<double>(k);
  };
  // Differences of equals change which one counts: the forward pass alone can be compared.
  check_op({.op = "multibox_loss",
            .inputs = {{kSamples, kAnchors, kColumns}, {kSamples, kMost, 5}, {kSamples, kAnchors}},
            .reference = [](const auto& in) { return multibox(in, 3); },
            .gradient = false,
            .adjust =
                [&](auto& in) {
                  make_sensible(in);
                  in[2] = match(in[1], 0.3);
                  alike(in);
                }});
}

// One anchor, and as many boxes and classes as it goes over in 65,535 iterations.
TEST(LongLoops, OfBoxesAndClassesAreCounted) {
  constexpr size_t kBoxes = 32'766, kLongest = 21'842;
  // Puts the anchor, and the only box where it is. The last class counts most.
  const auto adjust = [](std::vector<Doubles>& in, size_t box, double label) {
    std::ranges::fill(in[0], 0);
    *(in[0].end() - 9) = 8;
    std::ranges::fill(in[0].end() - 4, in[0].end(), 0.5);
    std::ranges::fill(in[1], -1);
    const double found[] = {label, 0.25, 0.25, 0.75, 0.75};
    std::copy(std::begin(found), std::end(found),
              in[1].begin() + static_cast<ptrdiff_t>(5 * box));
    if (in.size() > 2) in[2][0] = 1;
  };
  check_op({.op = "box_match",
            .inputs = {{1, 1, kColumns}, {1, kBoxes, 5}},
            .reference = [](const auto&) { return Doubles{kBoxes}; },
            .gradient = false,
            .adjust = [&](auto& in) { adjust(in, kBoxes - 1, 0); }});
  const double sum = std::exp(8) + kLongest - 1;
  check_op({.op = "multibox_loss",
            .inputs = {{1, 1, kLongest + 8}, {1, 1, 5}, {1, 1}},
            .reference = [&](const auto&) { return Doubles{std::log(sum) - 8}; },
            .tolerance = 1e-3,  // all classes but one add the same, and round alike
            .adjust = [&](auto& in) { adjust(in, 0, kLongest - 2); },
            .gradients =
                [&](const auto& in, const Doubles& dy) {
                  Doubles dx(in[0].size());
                  for (size_t k = 0; k < kLongest; ++k) dx[k] = std::exp(in[0][k]) / sum * dy[0];
                  dx[kLongest - 1] -= dy[0];
                  return std::vector<Doubles>{dx};
                }});
}

}  // namespace
}  // namespace etr::test

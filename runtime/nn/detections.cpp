#include "nn/detections.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"

namespace etr::nn {
namespace {

struct Found {
  int32_t label;
  float left, top, right, bottom, score;
};

float area(float width, float height) { return std::max(width, 0.0f) * std::max(height, 0.0f); }

float overlap(const Found& a, const Found& b) {
  const float both = area(std::min(a.right, b.right) - std::max(a.left, b.left),
                          std::min(a.bottom, b.bottom) - std::max(a.top, b.top));
  const float either =
      area(a.right - a.left, a.bottom - a.top) + area(b.right - b.left, b.bottom - b.top) - both;
  return either > 0 ? both / either : 0;
}

// Decodes a row of the output, which ends with its anchor; see shaders/multibox_loss.comp.
Found box_of(std::span<const float> row) {
  const std::span<const float> d = row.last(8), anchor = row.last(4);
  const float x = anchor[0] + 0.1f * d[0] * anchor[2], y = anchor[1] + 0.1f * d[1] * anchor[3];
  const float w = anchor[2] * std::exp(0.2f * d[2]), h = anchor[3] * std::exp(0.2f * d[3]);
  const auto inside = [](float v) { return std::clamp(v, 0.0f, 1.0f); };
  return {-1, inside(x - w / 2), inside(y - h / 2), inside(x + w / 2), inside(y + h / 2), 0};
}

void add_found(std::span<const float> row, float score_threshold, std::vector<Found>& to) {
  const std::span<const float> logits = row.first(row.size() - 8);
  const float top = *std::max_element(logits.begin(), logits.end());
  float sum = 0;
  for (const float v : logits) sum += std::exp(v - top);
  for (size_t k = 1; k < logits.size(); ++k) {  // 0 is background
    const float score = std::exp(logits[k] - top) / sum;
    if (!(score >= score_threshold)) continue;  // nor is NaN found
    Found found = box_of(row);
    found.label = static_cast<int32_t>(k) - 1;
    found.score = score;
    to.push_back(found);
  }
}

}  // namespace

Tensor detections(const Tensor& output, const DetectionOptions& options) {
  const Shape& shape = output.shape();
  if (output.dtype() != DType::f32 || shape.size() != 3 || shape[2] < 10)
    fail(Code::invalid_argument,
         "detections are made from a detector's output, f32 [N, anchors, 1 + classes + "
         "8], not ",
         dtype_name(output.dtype()), " ", shape_text(shape));
  constexpr int64_t kMost = 1 << 20;
  if (options.max_detections < 1 || options.max_detections > kMost)
    fail(Code::invalid_argument, "detections: 'max_detections' is ", options.max_detections,
         "; it must lie in [1, ", kMost, "]");
  const auto columns = static_cast<size_t>(shape[2]);
  const auto anchors = static_cast<size_t>(shape[1]);
  Tensor out(DType::f32, {shape[0], options.max_detections, 6});
  std::ranges::fill(out.mutable_view<float>(), 0.0f);
  for (size_t n = 0; n < static_cast<size_t>(shape[0]); ++n) {
    std::vector<Found> candidates, kept;
    for (size_t a = 0; a < anchors; ++a)
      add_found(output.view<float>().subspan((n * anchors + a) * columns, columns),
                options.score_threshold, candidates);
    std::ranges::stable_sort(candidates, std::greater(), &Found::score);
    for (const Found& found : candidates) {
      if (kept.size() == static_cast<size_t>(options.max_detections)) break;
      if (std::ranges::none_of(kept, [&](const Found& better) {
            return better.label == found.label && overlap(better, found) > options.iou_threshold;
          }))
        kept.push_back(found);
    }
    const auto most = static_cast<size_t>(options.max_detections);
    auto rows = out.mutable_view<float>().subspan(n * most * 6, most * 6);
    for (size_t i = 0; i < most; ++i) {
      if (i >= kept.size()) {
        rows[i * 6] = -1;
        continue;
      }
      const Found& f = kept[i];
      const float row[] = {static_cast<float>(f.label), f.left, f.top, f.right, f.bottom, f.score};
      std::ranges::copy(row, rows.subspan(i * 6).begin());
    }
  }
  return out;
}

}  // namespace etr::nn

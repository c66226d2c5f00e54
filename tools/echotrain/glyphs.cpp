#include "glyphs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace digits {
namespace {

struct Point {
  float x, y;
};
using Stroke = std::vector<Point>;
using Glyph = std::vector<Stroke>;  // in a box of 1 by 1, y down

constexpr float kPi = std::numbers::pi_v<float>;

// Part of an ellipse, angles in turns: 0 is right, 0.25 is down.
Stroke arc(float cx, float cy, float rx, float ry, float from, float to) {
  Stroke out;
  constexpr int kPieces = 18;
  for (int i = 0; i <= kPieces; ++i) {
    const float t = 2 * kPi * (from + (to - from) * static_cast<float>(i) / kPieces);
    out.push_back({cx + rx * std::cos(t), cy + ry * std::sin(t)});
  }
  return out;
}

Stroke join(Stroke a, const Stroke& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The variants of each digit.
const std::array<std::vector<Glyph>, 10>& styles() {
  static const std::array<std::vector<Glyph>, 10> all = {{
      {{arc(.5f, .5f, .3f, .45f, 0, 1)},
       {arc(.5f, .5f, .22f, .45f, 0, 1)},
       {arc(.5f, .5f, .3f, .42f, 0, 1), {{.68f, .2f}, {.32f, .8f}}}},
      {{{{.5f, .05f}, {.5f, .95f}}},
       {{{.3f, .25f}, {.52f, .05f}, {.52f, .95f}}},
       {{{.3f, .25f}, {.52f, .05f}, {.52f, .95f}}, {{.28f, .95f}, {.76f, .95f}}}},
      {{join(arc(.5f, .3f, .27f, .25f, .5f, 1.08f), {{.2f, .95f}, {.8f, .95f}})},
       {join(arc(.48f, .28f, .25f, .23f, .55f, 1.12f),
             {{.3f, .8f}, {.22f, .93f}, {.5f, .85f}, {.8f, .95f}})},
       {{{.22f, .1f}, {.75f, .1f}, {.75f, .5f}, {.25f, .5f}, {.25f, .93f}, {.78f, .93f}}}},
      {{arc(.45f, .28f, .25f, .23f, .6f, 1.25f), arc(.45f, .72f, .29f, .23f, .75f, 1.4f)},
       {{{.2f, .07f}, {.75f, .07f}, {.45f, .42f}}, arc(.45f, .68f, .28f, .26f, .75f, 1.4f)},
       {{{.22f, .08f}, {.72f, .08f}, {.72f, .92f}, {.22f, .92f}}, {{.32f, .5f}, {.72f, .5f}}}},
      {{{{.62f, .95f}, {.62f, .05f}, {.15f, .65f}, {.85f, .65f}}},
       {{{.25f, .05f}, {.22f, .55f}, {.78f, .55f}}, {{.7f, .05f}, {.66f, .95f}}},
       {{{.3f, .05f}, {.18f, .5f}, {.8f, .5f}}, {{.62f, .3f}, {.62f, .95f}}}},
      {{join({{.75f, .06f}, {.3f, .06f}, {.26f, .45f}}, arc(.47f, .67f, .28f, .27f, .7f, 1.4f))},
       {join({{.32f, .08f}, {.28f, .42f}}, arc(.46f, .68f, .27f, .26f, .7f, 1.38f)),
        {{.3f, .08f}, {.78f, .06f}}},
       {{{.75f, .08f}, {.25f, .08f}, {.25f, .5f}, {.74f, .5f}, {.74f, .92f}, {.24f, .92f}}}},
      {{join({{.68f, .06f}, {.35f, .35f}}, arc(.5f, .7f, .26f, .24f, .55f, 1.55f))},
       {join(arc(.62f, .5f, .4f, .45f, .72f, .5f), arc(.47f, .7f, .25f, .24f, .5f, 1.5f))},
       {{{.72f, .08f}, {.28f, .08f}, {.26f, .92f}, {.74f, .92f}, {.74f, .5f}, {.27f, .5f}}}},
      {{{{.2f, .07f}, {.8f, .07f}, {.42f, .95f}}},
       {{{.2f, .07f}, {.8f, .07f}, {.42f, .95f}}, {{.35f, .5f}, {.72f, .5f}}},
       {{{.22f, .2f}, {.22f, .07f}, {.78f, .07f}, {.6f, .5f}, {.55f, .95f}}}},
      {{arc(.5f, .28f, .21f, .22f, 0, 1), arc(.5f, .72f, .26f, .23f, 0, 1)},
       {join(arc(.5f, .28f, .22f, .22f, .25f, -.75f), arc(.5f, .72f, .25f, .22f, -.25f, .75f))},
       {{{.27f, .08f}, {.73f, .08f}, {.73f, .92f}, {.27f, .92f}, {.27f, .08f}},
        {{.27f, .5f}, {.73f, .5f}}}},
      {{join(arc(.5f, .3f, .25f, .24f, .05f, 1.05f), {{.66f, .95f}})},
       {arc(.5f, .3f, .24f, .23f, 0, 1), arc(.4f, .45f, .34f, .48f, -.05f, .22f)},
       {{{.73f, .5f}, {.27f, .5f}, {.27f, .08f}, {.73f, .08f}, {.73f, .92f}, {.3f, .92f}}}},
  }};
  return all;
}

float uniform(std::mt19937& random, float lo, float hi) {
  return std::uniform_real_distribution<float>(lo, hi)(random);
}

float distance_to_segment(Point p, Point a, Point b) {
  const float dx = b.x - a.x, dy = b.y - a.y, length = dx * dx + dy * dy;
  const float t =
      length > 0 ? std::clamp(((p.x - a.x) * dx + (p.y - a.y) * dy) / length, 0.0f, 1.0f) : 0.0f;
  return std::hypot(p.x - a.x - t * dx, p.y - a.y - t * dy);
}

// A random bend, rotation, shear, scale and shift from the unit box to pixels.
class Warp {
 public:
  explicit Warp(std::mt19937& random) {
    const float angle = uniform(random, -.4f, .4f), shear = uniform(random, -.25f, .25f);
    const float sx = uniform(random, .55f, .95f) * 21, sy = uniform(random, .65f, 1.0f) * 21;
    a_ = {sx * std::cos(angle), -sy * std::sin(angle) + sx * shear * std::cos(angle)};
    b_ = {sx * std::sin(angle), sy * std::cos(angle) + sx * shear * std::sin(angle)};
    center_ = {kImageSize / 2.0f + uniform(random, -2.5f, 2.5f),
               kImageSize / 2.0f + uniform(random, -2.5f, 2.5f)};
    for (float& v : bend_) v = uniform(random, -.07f, .07f);
    for (float& v : phase_) v = uniform(random, 0, 2 * kPi);
  }
  Point operator()(Point p) const {
    const float x = p.x - .5f + bend_[0] * std::sin(5 * p.y + phase_[0]) +
                    bend_[1] * std::sin(9 * p.y + phase_[1]);
    const float y = p.y - .5f + bend_[2] * std::sin(5 * p.x + phase_[2]) +
                    bend_[3] * std::sin(9 * p.x + phase_[3]);
    return {center_.x + a_.x * x + a_.y * y, center_.y + b_.x * x + b_.y * y};
  }

 private:
  Point a_{}, b_{}, center_{};
  std::array<float, 4> bend_{}, phase_{};
};

using Canvas = std::array<float, kImageSize * kImageSize>;

// Keeps the strongest ink at each pixel; the edge is one pixel soft.
void ink(Canvas& canvas, const Stroke& stroke, float half_width, float strength) {
  for (int y = 0; y < kImageSize; ++y)
    for (int x = 0; x < kImageSize; ++x) {
      float nearest = 1e9f;
      for (size_t i = 0; i + 1 < stroke.size(); ++i)
        nearest = std::min(
            nearest, distance_to_segment({static_cast<float>(x) + .5f, static_cast<float>(y) + .5f},
                                         stroke[i], stroke[i + 1]));
      float& pixel = canvas[static_cast<size_t>(y * kImageSize + x)];
      pixel = std::max(pixel, strength * std::clamp(half_width + .5f - nearest, 0.0f, 1.0f));
    }
}

void blur(Canvas& canvas, float sigma) {
  std::array<float, 7> kernel;
  float sum = 0;
  for (int i = -3; i <= 3; ++i)
    sum += kernel[static_cast<size_t>(i + 3)] =
        std::exp(-static_cast<float>(i * i) / (2 * sigma * sigma));
  for (const bool horizontal : {true, false}) {
    const Canvas before = canvas;
    for (int y = 0; y < kImageSize; ++y)
      for (int x = 0; x < kImageSize; ++x) {
        float value = 0;
        for (int i = -3; i <= 3; ++i) {
          const int sx = std::clamp(horizontal ? x + i : x, 0, kImageSize - 1);
          const int sy = std::clamp(horizontal ? y : y + i, 0, kImageSize - 1);
          value += kernel[static_cast<size_t>(i + 3)] *
                   before[static_cast<size_t>(sy * kImageSize + sx)];
        }
        canvas[static_cast<size_t>(y * kImageSize + x)] = value / sum;
      }
  }
}

}  // namespace

std::vector<uint8_t> draw_digit(int digit, std::mt19937& random) {
  const auto& variants = styles()[static_cast<size_t>(digit)];
  const Glyph& glyph = variants[random() % variants.size()];
  const Warp warp(random);
  const float half_width = uniform(random, .7f, 1.7f), strength = uniform(random, .65f, 1.0f);
  Canvas canvas{};
  for (Stroke stroke : glyph) {
    std::transform(stroke.begin(), stroke.end(), stroke.begin(), warp);
    ink(canvas, stroke, half_width, strength);
  }
  for (int stray = static_cast<int>(random() % 2); stray > 0; --stray) {
    const Point from{uniform(random, 0, kImageSize), uniform(random, 0, kImageSize)};
    ink(canvas, {from, {from.x + uniform(random, -8, 8), from.y + uniform(random, -8, 8)}},
        uniform(random, .3f, .8f), uniform(random, .3f, .8f));
  }
  blur(canvas, uniform(random, .3f, 1.1f));
  const float base = uniform(random, 0, .3f), slope = uniform(random, -.15f, .15f);
  std::normal_distribution<float> noise(0, uniform(random, .03f, .12f));
  std::vector<uint8_t> out;
  for (int y = 0; y < kImageSize; ++y)
    for (int x = 0; x < kImageSize; ++x) {
      const float background = base + slope * static_cast<float>(x - y) / kImageSize;
      const float value =
          background + (1 - base) * canvas[static_cast<size_t>(y * kImageSize + x)] + noise(random);
      out.push_back(static_cast<uint8_t>(std::clamp(value, 0.0f, 1.0f) * 255));
    }
  return out;
}

}  // namespace digits

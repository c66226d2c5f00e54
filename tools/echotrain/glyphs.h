// Draws digits that look hand-written.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace digits {

constexpr int kImageSize = 28;

// One gray image of `digit` (0 to 9), kImageSize squared, row by row: a random style, bent,
// rotated, scaled, blurred and noisy, with a stray stroke here and there.
std::vector<uint8_t> draw_digit(int digit, std::mt19937& random);

}  // namespace digits

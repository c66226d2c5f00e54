// Weights in 8 or 4 bits: frozen ones, which training only reads. They are made f32 again on the
// device, one at a time, in front of each use.
//
// 32 consecutive elements share a scale d = m / -2^(bits - 1), where m is the one of the largest
// magnitude; an element w is kept as the integer next to w / d, from -2^(bits - 1) to
// 2^(bits - 1) - 1. The division is exact, so m is kept as it is, and quantising what was read
// gives the same bits again. (llama.cpp's formats Q8_0 and Q4_0 are alike, with scales of 16 bits.)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/op.h"

namespace etr::graph {

// The number of 32-bit words of `count` elements: a scale for each block, then the integers.
uint64_t quantized_words(int64_t count, int bits);

// `values` must be finite.
std::vector<uint32_t> quantize(std::span<const float> values, int bits);
void dequantize(std::span<const uint32_t> words, int bits, std::span<float> values);

// Emits `to` = the elements of `words`, as dequantize() gives them.
void emit_dequantize(ops::Emitter& emit, const gpu::Buffer& words, int bits,
                     const ops::DeviceTensor& to);

}  // namespace etr::graph

#include "graph/quantized.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace etr::graph {
namespace {

constexpr size_t kBlock = 32;  // elements that share a scale; as in shaders/dequantize.comp

size_t blocks_of(size_t count) { return (count + kBlock - 1) / kBlock; }

}  // namespace

uint64_t quantized_words(int64_t count, int bits) {
  const auto elements = static_cast<size_t>(count);
  const auto per_word = static_cast<size_t>(32 / bits);
  return blocks_of(elements) + (elements + per_word - 1) / per_word;
}

std::vector<uint32_t> quantize(std::span<const float> values, int bits) {
  const auto per_word = static_cast<size_t>(32 / bits);
  const size_t first = blocks_of(values.size());
  const float least = -std::ldexp(1.0f, bits - 1), most = -least - 1;
  const uint32_t mask = (1u << bits) - 1;
  std::vector<uint32_t> words(quantized_words(static_cast<int64_t>(values.size()), bits), 0);
  for (size_t block = 0; block < first; ++block) {
    const auto part =
        values.subspan(block * kBlock, std::min(kBlock, values.size() - block * kBlock));
    const float largest = *std::max_element(
        part.begin(), part.end(), [](float a, float b) { return std::abs(a) < std::abs(b); });
    const float scale = largest / least;
    if (scale == 0) continue;  // all are +0.0
    words[block] = std::bit_cast<uint32_t>(scale);
    for (size_t i = 0; i < part.size(); ++i) {
      const float code = std::clamp(std::nearbyint(part[i] / scale), least, most);
      const size_t at = block * kBlock + i;
      words[first + at / per_word] |= (static_cast<uint32_t>(static_cast<int32_t>(code)) & mask)
                                      << (at % per_word * static_cast<size_t>(bits));
    }
  }
  return words;
}

void dequantize(std::span<const uint32_t> words, int bits, std::span<float> values) {
  const auto per_word = static_cast<size_t>(32 / bits);
  const size_t first = blocks_of(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const uint32_t above = words[first + i / per_word]
                           << (32 - static_cast<size_t>(bits) * (i % per_word + 1));
    const int32_t code = static_cast<int32_t>(above) >> (32 - bits);
    values[i] = std::bit_cast<float>(words[i / kBlock]) * static_cast<float>(code);
  }
}

void emit_dequantize(ops::Emitter& emit, const gpu::Buffer& words, int bits,
                     const ops::DeviceTensor& to) {
  const struct {
    uint32_t count, first, bits;
  } push{to.count(), static_cast<uint32_t>(blocks_of(to.count())), static_cast<uint32_t>(bits)};
  emit.for_each("dequantize", {{words, gpu::Access::read}, ops::writes(to)}, push, push.count);
}

}  // namespace etr::graph

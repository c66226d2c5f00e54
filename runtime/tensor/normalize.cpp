#include "tensor/normalize.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "core/platform.h"

namespace etr {
namespace {

// Inlined into each caller to use that caller's instruction set.
template <typename T>
[[gnu::always_inline]] inline void normalize(std::span<const T> in, std::span<const float> scale,
                                             std::span<const float> shift, float* out) {
  // Repeats the channels' factors over one block, so that the inner loop needs no index arithmetic.
  constexpr size_t kBlock = 96;  // divisible by 1, 2, 3 and 4 channels
  const size_t n = scale.size();
  if (kBlock % n != 0) {
    for (size_t i = 0; i < in.size(); ++i)
      out[i] = static_cast<float>(in[i]) * scale[i % n] + shift[i % n];
    return;
  }
  float scales[kBlock], shifts[kBlock];
  for (size_t i = 0; i < kBlock; ++i) scales[i] = scale[i % n], shifts[i] = shift[i % n];
  size_t at = 0;
#if defined(__SSE2__)
  // Ordinary stores would first read each line into the caches and evict other data.
  constexpr size_t kPastCaches = size_t{1} << 20;  // values
  if (in.size() >= kPastCaches && reinterpret_cast<uintptr_t>(out) % 16 == 0) {
    alignas(16) float block[kBlock];
    for (; at + kBlock <= in.size(); at += kBlock) {
      for (size_t i = 0; i < kBlock; ++i)
        block[i] = static_cast<float>(in[at + i]) * scales[i] + shifts[i];
      for (size_t i = 0; i < kBlock; i += 4) _mm_stream_ps(out + at + i, _mm_load_ps(block + i));
    }
    _mm_sfence();
  }
#endif
  for (; at + kBlock <= in.size(); at += kBlock)
    for (size_t i = 0; i < kBlock; ++i)
      out[at + i] = static_cast<float>(in[at + i]) * scales[i] + shifts[i];
  for (size_t i = 0; at + i < in.size(); ++i)
    out[at + i] = static_cast<float>(in[at + i]) * scales[i] + shifts[i];
}

}  // namespace

ETR_VECTOR_CLONES void normalize_u8(std::span<const uint8_t> in, std::span<const float> scale,
                                    std::span<const float> shift, float* out) {
  normalize(in, scale, shift, out);
}

ETR_VECTOR_CLONES void normalize_u16(std::span<const uint16_t> in, std::span<const float> scale,
                                     std::span<const float> shift, float* out) {
  normalize(in, scale, shift, out);
}

}  // namespace etr

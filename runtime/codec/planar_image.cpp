#include "codec/planar_image.h"

#include <array>
#include <cstring>
#include <memory>
#include <new>

#if defined(__SSE2__)
#include <tmmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include "codec/decoding.h"
#include "core/error.h"
#include "core/per_thread.h"
#include "core/zstd.h"
#include "core/zstd_limit.h"

namespace etr::codec {
namespace {

// The frame's content: this header, then the planes, each H rows of W bytes.
//   0  'E' 'I' 1   3  transform   4  width   8  height   12  channels (1 or 3); little endian
constexpr size_t kHeader = 16;

// Bits of the transform byte. Bits 0 and 1: subtract the left pixel, subtract the pixel above;
// both: first above, then left. Bit 2: red and blue are stored as differences to green.
constexpr unsigned kLeft = 1, kAbove = 2, kGreen = 4;

void put_u32(std::byte* at, uint32_t value) {
  for (int i = 0; i < 4; ++i) at[i] = static_cast<std::byte>(value >> (8 * i));
}
uint32_t get_u32(const std::byte* at) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value |= std::to_integer<uint32_t>(at[i]) << (8 * i);
  return value;
}

// Encoding --------------------------------------------------------------------------------------

// Appends one plane of the image after the colour transform.
void take_plane(std::span<const uint8_t> pixels, size_t channels, size_t plane, bool green,
                std::vector<uint8_t>& out) {
  const bool differs = green && plane != 1;
  for (size_t i = plane, base = 1; i < pixels.size(); i += channels, base += channels)
    out.push_back(static_cast<uint8_t>(pixels[i] - (differs ? pixels[base] : 0)));
}

void subtract_above(uint8_t* plane, size_t height, size_t width) {
  for (size_t y = height; y-- > 1;)
    for (size_t x = 0; x < width; ++x)
      plane[y * width + x] =
          static_cast<uint8_t>(plane[y * width + x] - plane[(y - 1) * width + x]);
}

void subtract_left(uint8_t* plane, size_t height, size_t width) {
  for (size_t y = 0; y < height; ++y)
    for (size_t x = width; x-- > 1;)
      plane[y * width + x] = static_cast<uint8_t>(plane[y * width + x] - plane[y * width + x - 1]);
}

constexpr int kFewMatches = 7;  // zstd's longest minimum for a match

std::vector<std::byte> compress(const std::vector<uint8_t>& content, int level, int least_match) {
  const ZstdCompressor zstd = zstd_compressor(level);
  ZSTD_CCtx_setParameter(zstd.get(), ZSTD_c_checksumFlag, 1);
  ZSTD_CCtx_setParameter(zstd.get(), ZSTD_c_minMatch, least_match);
  std::vector<std::byte> out(ZSTD_compressBound(content.size()));
  const size_t size = zstd_result(
      ZSTD_compress2(zstd.get(), out.data(), out.size(), content.data(), content.size()));
  if (ZSTD_isError(size)) fail(Code::internal, "zstd: ", ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

struct Frame {
  std::vector<std::byte> bytes;
  bool keep_smaller(std::vector<std::byte> other) {
    if (!bytes.empty() && other.size() >= bytes.size()) return false;
    bytes = std::move(other);
    return true;
  }
};

// Decoding --------------------------------------------------------------------------------------

// Prefix sums of each row, the inverse of subtract_left.
void add_left(uint8_t* row, size_t width) {
  size_t x = 0;
  uint8_t carry = 0;
  // Prefix sums of 16 bytes in four steps, then adds the sum so far.
#if defined(__SSE2__)
  __m128i before = _mm_setzero_si128();
  for (; x + 16 <= width; x += 16) {
    auto* at = reinterpret_cast<__m128i*>(row + x);
    __m128i v = _mm_loadu_si128(at);
    v = _mm_add_epi8(v, _mm_slli_si128(v, 1));
    v = _mm_add_epi8(v, _mm_slli_si128(v, 2));
    v = _mm_add_epi8(v, _mm_slli_si128(v, 4));
    v = _mm_add_epi8(v, _mm_slli_si128(v, 8));
    v = _mm_add_epi8(v, before);
    _mm_storeu_si128(at, v);
    const __m128i last = _mm_unpackhi_epi8(v, v);
    before = _mm_unpackhi_epi64(_mm_shufflehi_epi16(last, 0xFF), _mm_shufflehi_epi16(last, 0xFF));
  }
#elif defined(__ARM_NEON)
  const uint8x16_t zero = vdupq_n_u8(0);
  uint8x16_t before = zero;
  for (; x + 16 <= width; x += 16) {
    uint8x16_t v = vld1q_u8(row + x);
    v = vaddq_u8(v, vextq_u8(zero, v, 15));
    v = vaddq_u8(v, vextq_u8(zero, v, 14));
    v = vaddq_u8(v, vextq_u8(zero, v, 12));
    v = vaddq_u8(v, vextq_u8(zero, v, 8));
    v = vaddq_u8(v, before);
    vst1q_u8(row + x, v);
    before = vdupq_laneq_u8(v, 15);
  }
#endif
  if (x > 0) carry = row[x - 1];
  for (; x < width; ++x) row[x] = carry = static_cast<uint8_t>(carry + row[x]);
}

void add_above(uint8_t* __restrict row, const uint8_t* __restrict above, size_t width) {
  for (size_t x = 0; x < width; ++x) row[x] = static_cast<uint8_t>(row[x] + above[x]);
}

// Interleaves pixels of one row. `mask` is 255 if red and blue are differences to green, else 0.
void interleave_some(const uint8_t* r, const uint8_t* g, const uint8_t* b, uint8_t* out,
                     size_t pixels, uint8_t mask) {
  for (size_t i = 0; i < pixels; ++i) {
    const uint8_t base = g[i] & mask;
    *out++ = static_cast<uint8_t>(r[i] + base);
    *out++ = g[i];
    *out++ = static_cast<uint8_t>(b[i] + base);
  }
}

#if defined(__SSE2__)
// Shuffle masks: byte i of the 16-byte block `block` of the result is byte (16 block + i) / 3 of
// plane (16 block + i) % 3.
struct Spread {
  alignas(16) int8_t from[3][3][16];  // by block and plane; -1 gives zero
  constexpr Spread() : from() {
    for (int block = 0; block < 3; ++block)
      for (int plane = 0; plane < 3; ++plane)
        for (int i = 0; i < 16; ++i)
          from[block][plane][i] =
              static_cast<int8_t>((16 * block + i) % 3 == plane ? (16 * block + i) / 3 : -1);
  }
};
constexpr Spread kSpread;

__attribute__((target("ssse3"))) size_t interleave_16s(const uint8_t* r, const uint8_t* g,
                                                       const uint8_t* b, uint8_t* out,
                                                       size_t pixels, uint8_t mask) {
  const auto load = [](const void* at) __attribute__((target("ssse3"))) {
    return _mm_loadu_si128(static_cast<const __m128i*>(at));
  };
  const __m128i keep = _mm_set1_epi8(static_cast<char>(mask));
  size_t i = 0;
  for (; i + 16 <= pixels; i += 16) {
    const __m128i green = load(g + i), base = _mm_and_si128(green, keep);
    const __m128i planes[3] = {_mm_add_epi8(load(r + i), base), green,
                               _mm_add_epi8(load(b + i), base)};
    for (int block = 0; block < 3; ++block) {
      __m128i bytes = _mm_setzero_si128();
      for (int plane = 0; plane < 3; ++plane)
        bytes =
            _mm_or_si128(bytes, _mm_shuffle_epi8(planes[plane], load(kSpread.from[block][plane])));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 3 * i + 16 * block), bytes);
    }
  }
  return i;
}
#endif

void interleave(const uint8_t* r, const uint8_t* g, const uint8_t* b, uint8_t* out, size_t pixels,
                bool green) {
  const uint8_t mask = green ? 255 : 0;
  size_t done = 0;
#if defined(__SSE2__)
  static const bool kShuffles = __builtin_cpu_supports("ssse3");
  if (kShuffles) done = interleave_16s(r, g, b, out, pixels, mask);
#endif
  interleave_some(r + done, g + done, b + done, out + 3 * done, pixels - done, mask);
}

struct Header {
  unsigned transform = 0;
  size_t width = 0, height = 0, channels = 0;
  size_t plane() const { return width * height; }
};

[[noreturn]] void bad(const std::string& why) {
  fail(Code::corrupt_data, "bad planar image: ", why);
}

// Rejects a stated size that no frame of this length could hold.
void check_proportion(uint64_t size, uint64_t packed) {
  if (size / kMostOfZstd > packed) bad(cat(packed, " bytes cannot make ", size));
}

Header read_image_header(const std::byte* at) {
  Header h;
  if (at[0] != std::byte{'E'} || at[1] != std::byte{'I'} || at[2] != std::byte{1})
    bad("the zstd frame holds something else");
  h.transform = std::to_integer<unsigned>(at[3]);
  h.width = get_u32(at + 4);
  h.height = get_u32(at + 8);
  h.channels = get_u32(at + 12);
  if (h.transform > (h.channels == 3 ? 7u : 3u) || h.width == 0 || h.height == 0 ||
      (h.channels != 1 && h.channels != 3))
    bad("a header that makes no sense");
  return h;
}

// A thread's decompression context, and its memory for the planes.
struct Scratch {
  Scratch() {
    if (!zstd) throw std::bad_alloc();  // the thread's next image tries again
  }

  std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> zstd{ZSTD_createDCtx(), ZSTD_freeDCtx};
  std::unique_ptr<std::byte[]> bytes;
  size_t capacity = 0;

  std::byte* reserve(size_t size) {
    constexpr size_t kKept = size_t{8} << 20;
    if (size > capacity || capacity > kKept) {
      bytes.reset(new std::byte[size]);
      capacity = size;
    }
    return bytes.get();
  }
};

}  // namespace

std::vector<std::byte> encode_planar(const Tensor& image, int level) {
  const Shape& shape = image.shape();
  const auto height = static_cast<size_t>(shape[0]), width = static_cast<size_t>(shape[1]),
             channels = static_cast<size_t>(shape[2]);
  const auto pixels = image.view<uint8_t>();
  std::array<std::byte, kHeader> header{std::byte{'E'}, std::byte{'I'}, std::byte{1}};
  put_u32(&header[4], static_cast<uint32_t>(width));
  put_u32(&header[8], static_cast<uint32_t>(height));
  put_u32(&header[12], static_cast<uint32_t>(channels));
  const auto content_of = [&](unsigned transform) {
    std::vector<uint8_t> content(kHeader);
    header[3] = static_cast<std::byte>(transform);
    std::memcpy(content.data(), header.data(), kHeader);
    for (size_t plane = 0; plane < channels; ++plane)
      take_plane(pixels, channels, plane, transform & kGreen, content);
    for (size_t plane = 0; plane < channels; ++plane) {
      uint8_t* at = content.data() + kHeader + plane * width * height;
      if (transform & kAbove) subtract_above(at, height, width);
      if (transform & kLeft) subtract_left(at, height, width);
    }
    return content;
  };
  // Pixel differences repeat only by chance, so searching for short matches takes more time than it
  // saves bytes. Drawn images do repeat and gain from a search.
  Frame best;
  unsigned best_transform = 0;
  for (unsigned transform = 0; transform < (channels == 3 ? 8u : 4u); ++transform)
    if (best.keep_smaller(compress(content_of(transform), 1, kFewMatches)))
      best_transform = transform;
  best.keep_smaller(compress(content_of(best_transform), level, 0));
  return std::move(best.bytes);
}

bool looks_planar(std::span<const std::byte> bytes) {
  return bytes.size() >= 4 && get_u32(bytes.data()) == ZSTD_MAGICNUMBER;
}

Tensor decode_planar(std::span<const std::byte> bytes, const ImageOptions& options) {
  Scratch& scratch = per_thread<Scratch>();
  const uint64_t size = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
  if (size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN || size < kHeader)
    bad("not a zstd frame of known size");
  if (size - kHeader > 3 * static_cast<uint64_t>(options.max_pixels))
    fail(Code::unsupported, "an image of ", size - kHeader, " bytes; the limit is ",
         options.max_pixels, " pixels (max_pixels)");
  check_proportion(size, bytes.size());
  // The planes and the result, whose number of channels is not known yet.
  const uint64_t most = options.channels == Channels::rgb ? 4 : 2;
  const auto hold = reserve(static_cast<int64_t>(most * size), options);
  std::byte* content = scratch.reserve(size);
  const size_t got = zstd_result(
      ZSTD_decompressDCtx(scratch.zstd.get(), content, size, bytes.data(), bytes.size()));
  if (ZSTD_isError(got)) bad(ZSTD_getErrorName(got));
  const Header h = read_image_header(content);
  check_pixels(static_cast<int64_t>(h.width), static_cast<int64_t>(h.height), options);
  check_cancelled(options);
  if (got != kHeader + h.plane() * h.channels) bad("its size is not that of its planes");
  auto* planes = reinterpret_cast<uint8_t*>(content + kHeader);
  const bool wide = options.channels == Channels::rgb || h.channels == 3;
  Tensor out(DType::u8,
             {static_cast<int64_t>(h.height), static_cast<int64_t>(h.width), wide ? 3 : 1});
  auto* to = static_cast<uint8_t*>(out.mutable_data());
  const size_t g = h.channels == 3 ? h.plane() : 0, b = 2 * g;
  for (size_t y = 0; y < h.height; ++y) {  // by row: a row of all planes stays in the cache
    for (size_t c = 0; c < h.channels; ++c) {
      uint8_t* row = planes + c * h.plane() + y * h.width;
      if (h.transform & kLeft) add_left(row, h.width);
      if (h.transform & kAbove && y > 0) add_above(row, row - h.width, h.width);
    }
    const uint8_t* row = planes + y * h.width;
    if (wide)
      interleave(row, row + g, row + b, to + 3 * y * h.width, h.width, h.transform & kGreen);
    else
      std::memcpy(to + y * h.width, row, h.width);
  }
  return out;
}

}  // namespace etr::codec

#include "codec/png_decoder.h"

#include <libdeflate.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

#include "codec/decoding.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/per_thread.h"
#include "core/platform.h"

namespace etr::codec {
namespace {

constexpr size_t kSignature = 8, kChunkHead = 8, kChunkTail = 4;

uint32_t big_endian(const std::byte* p) {
  return std::to_integer<uint32_t>(p[0]) << 24 | std::to_integer<uint32_t>(p[1]) << 16 |
         std::to_integer<uint32_t>(p[2]) << 8 | std::to_integer<uint32_t>(p[3]);
}

constexpr uint32_t type(const char (&name)[5]) {
  return static_cast<uint32_t>(name[0]) << 24 | static_cast<uint32_t>(name[1]) << 16 |
         static_cast<uint32_t>(name[2]) << 8 | static_cast<uint32_t>(name[3]);
}

enum Colour : int { kGray = 0, kRgb = 2, kPalette = 3 };

struct Png {
  int64_t width = 0, height = 0;
  int colour = -1;
  std::span<const std::byte> palette;
  std::span<const std::byte> data;  // of the only IDAT chunk
  std::vector<std::byte> joined;    // of several IDAT chunks
};

[[noreturn]] void corrupt(const char* why) { fail(Code::corrupt_data, "bad PNG: ", why); }

// Parses the chunks. Returns false if the image is not one of the common kinds.
bool parse(std::span<const std::byte> bytes, Png& png) {
  size_t at = kSignature;
  for (bool ended = false; !ended;) {
    if (bytes.size() - at < kChunkHead + kChunkTail) corrupt("the file ends early");
    const uint32_t length = big_endian(bytes.data() + at), kind = big_endian(bytes.data() + at + 4);
    if (length > bytes.size() - at - kChunkHead - kChunkTail)
      corrupt("the file ends inside a chunk");
    const auto body = bytes.subspan(at + kChunkHead, length);
    const uint32_t stored = big_endian(body.data() + length);
    if (libdeflate_crc32(0, bytes.data() + at + 4, length + 4) != stored)
      corrupt("a chunk's checksum does not match");
    at += kChunkHead + length + kChunkTail;
    if (png.colour < 0 && kind != type("IHDR")) corrupt("its first chunk is not IHDR");
    switch (kind) {
      case type("IHDR"): {
        if (length != 13 || png.colour >= 0) corrupt("its IHDR is damaged");
        png.width = big_endian(body.data());
        png.height = big_endian(body.data() + 4);
        png.colour = std::to_integer<int>(body[9]);
        check_not_empty(png.width, png.height);
        const bool common = std::to_integer<int>(body[8]) == 8 &&
                            std::to_integer<int>(body[12]) == 0 &&
                            (png.colour == kGray || png.colour == kRgb || png.colour == kPalette);
        if (!common) return false;
        break;
      }
      case type("PLTE"): png.palette = body; break;
      case type("IDAT"):
        if (png.data.empty()) {
          png.data = body;
        } else {
          if (png.joined.empty()) png.joined.assign(png.data.begin(), png.data.end());
          png.joined.insert(png.joined.end(), body.begin(), body.end());
        }
        break;
      case type("IEND"): ended = true; break;
      case type("tRNS"): return false;
      default:
        if (!(kind >> 29 & 1)) corrupt("it has a critical chunk that is not known");
    }
  }
  if (!png.joined.empty()) png.data = png.joined;
  return true;
}

// Undoes the Paeth filter of RGB pixels, of which each depends on the previous one of its row, so a
// row is a dependency chain. Two rows are therefore processed at once, in the two halves of a
// vector, the second one pixel behind the first; the channels are side by side, without branches.
#if defined(__SSE2__)
#define ETR_PAETH_RGB
struct PaethRgb {
  using Pixels = __m128i;  // of the first row in bytes 0 to 3, of the second in bytes 4 to 7
  static Pixels none() { return _mm_setzero_si128(); }
  static Pixels load(const uint8_t* at) {
    int32_t bytes;
    std::memcpy(&bytes, at, sizeof bytes);
    return _mm_cvtsi32_si128(bytes);
  }
  static Pixels pair(Pixels first, Pixels second) { return _mm_unpacklo_epi32(first, second); }
  static Pixels second(Pixels both) { return _mm_srli_si128(both, 4); }
  static void store(Pixels pixel, uint8_t* at) {
    const int32_t bytes = _mm_cvtsi128_si32(pixel);
    std::memcpy(at, &bytes, 3);
  }

  // `up_first`: the pixel above the first row's. Above the second row's is `left`'s first half.
  Pixels step(Pixels up_first, Pixels filtered) {
    const __m128i zero = _mm_setzero_si128();
    const auto absolute = [&](__m128i v) { return _mm_max_epi16(v, _mm_sub_epi16(zero, v)); };
    const auto choose = [](__m128i mask, __m128i yes, __m128i no) {
      return _mm_or_si128(_mm_and_si128(mask, yes), _mm_andnot_si128(mask, no));
    };
    const __m128i up = _mm_unpacklo_epi64(_mm_unpacklo_epi8(up_first, zero), left);
    const __m128i a = _mm_sub_epi16(up, corner), b = _mm_sub_epi16(left, corner);
    const __m128i to_left = absolute(a), to_up = absolute(b);
    const __m128i least =
        _mm_min_epi16(absolute(_mm_add_epi16(a, b)), _mm_min_epi16(to_left, to_up));
    const __m128i best = choose(_mm_cmpeq_epi16(least, to_left), left,
                                choose(_mm_cmpeq_epi16(least, to_up), up, corner));
    left = _mm_add_epi8(_mm_unpacklo_epi8(filtered, zero), best);
    corner = up;
    return _mm_packus_epi16(left, left);
  }

  __m128i left = none(), corner = none();
};
#elif defined(__ARM_NEON)
#define ETR_PAETH_RGB
struct PaethRgb {
  using Pixels = uint8x8_t;
  static Pixels none() { return vdup_n_u8(0); }
  static Pixels load(const uint8_t* at) {
    uint32_t bytes;
    std::memcpy(&bytes, at, sizeof bytes);
    return vcreate_u8(bytes);
  }
  static Pixels pair(Pixels first, Pixels second) {
    return vreinterpret_u8_u32(vzip1_u32(vreinterpret_u32_u8(first), vreinterpret_u32_u8(second)));
  }
  static Pixels second(Pixels both) { return vext_u8(both, both, 4); }
  static void store(Pixels pixel, uint8_t* at) {
    const uint32_t bytes = vget_lane_u32(vreinterpret_u32_u8(pixel), 0);
    std::memcpy(at, &bytes, 3);
  }

  Pixels step(Pixels up_first, Pixels filtered) {
    const int16x8_t up =
        vcombine_s16(vget_low_s16(vreinterpretq_s16_u16(vmovl_u8(up_first))), vget_low_s16(left));
    const int16x8_t a = vsubq_s16(up, corner), b = vsubq_s16(left, corner);
    const int16x8_t to_left = vabsq_s16(a), to_up = vabsq_s16(b);
    const int16x8_t least = vminq_s16(vabsq_s16(vaddq_s16(a, b)), vminq_s16(to_left, to_up));
    const int16x8_t best =
        vbslq_s16(vceqq_s16(least, to_left), left, vbslq_s16(vceqq_s16(least, to_up), up, corner));
    const Pixels sum = vadd_u8(filtered, vmovn_u16(vreinterpretq_u16_s16(best)));
    left = vreinterpretq_s16_u16(vmovl_u8(sum));
    corner = up;
    return sum;
  }

  int16x8_t left = vdupq_n_s16(0), corner = vdupq_n_s16(0);
};
#endif

#if defined(ETR_PAETH_RGB)
// Reads, but does not write, one byte after the rows. If `second` is null, only the first row is
// processed.
#if !defined(__clang__)  // Zig's does not inline intrinsics into clones
ETR_VECTOR_CLONES
#endif
void unfilter_paeth_rgb(uint8_t* first, uint8_t* second, const uint8_t* above, size_t size) {
  using P = PaethRgb;
  P rows;
  if (!second) {
    for (size_t i = 0; i < size; i += 3)
      P::store(rows.step(P::load(above + i), P::load(first + i)), first + i);
    return;
  }
  P::store(rows.step(P::load(above), P::load(first)), first);
  for (size_t i = 3; i < size; i += 3) {
    const P::Pixels both =
        rows.step(P::load(above + i), P::pair(P::load(first + i), P::load(second + i - 3)));
    P::store(both, first + i);
    P::store(P::second(both), second + i - 3);
  }
  const P::Pixels last = rows.step(P::none(), P::pair(P::none(), P::load(second + size - 3)));
  P::store(P::second(last), second + size - 3);
}
#endif

// Undoes a row's filter in place. `above` is the previous, unfiltered row (PNG specification,
// section 9.2).
template <size_t kPixel>
void unfilter(uint8_t filter, uint8_t* row, const uint8_t* above, size_t size) {
  switch (filter) {
    case 0: return;
    case 1:
      for (size_t i = kPixel; i < size; ++i)
        row[i] = static_cast<uint8_t>(row[i] + row[i - kPixel]);
      return;
    case 2:
      for (size_t i = 0; i < size; ++i) row[i] = static_cast<uint8_t>(row[i] + above[i]);
      return;
    case 3:
      for (size_t i = 0; i < kPixel; ++i) row[i] = static_cast<uint8_t>(row[i] + above[i] / 2);
      for (size_t i = kPixel; i < size; ++i)
        row[i] = static_cast<uint8_t>(row[i] + (row[i - kPixel] + above[i]) / 2);
      return;
    case 4: {
#if defined(ETR_PAETH_RGB)
      if constexpr (kPixel == 3) return unfilter_paeth_rgb(row, nullptr, above, size);
#endif
      int left[kPixel] = {}, corner[kPixel] = {};
      for (size_t i = 0; i < size; i += kPixel)
        for (size_t c = 0; c < kPixel; ++c) {
          const int up = above[i + c];
          const int to_left = std::abs(up - corner[c]), to_up = std::abs(left[c] - corner[c]);
          const int to_corner = std::abs(left[c] + up - 2 * corner[c]);
          int best = to_up <= to_corner ? up : corner[c];
          if (to_left <= to_up && to_left <= to_corner) best = left[c];
          left[c] = (row[i + c] + best) & 0xFF;
          corner[c] = up;
          row[i + c] = static_cast<uint8_t>(left[c]);
        }
      return;
    }
    default: corrupt("a row has an unknown filter");
  }
}

// Undoes the filters of rows of 1 + `row` bytes; the first byte is the filter type.
template <size_t kPixel>
void unfilter_all(uint8_t* rows, size_t row, int64_t height) {
  const std::vector<uint8_t> zeros(row + 1);
  const uint8_t* above = zeros.data();
  for (int64_t y = 0; y < height; ++y) {
    uint8_t* line = rows + static_cast<size_t>(y) * (row + 1);
#if defined(ETR_PAETH_RGB)
    if (kPixel == 3 && y + 1 < height && line[0] == 4 && line[row + 1] == 4) {
      unfilter_paeth_rgb(line + 1, line + row + 2, above, row);
      above = line + row + 2;
      ++y;
      continue;
    }
#endif
    unfilter<kPixel>(line[0], line + 1, above, row);
    above = line + 1;
  }
}

// One decompressor per thread, because creating one costs more than a small image.
struct Inflater {
  Inflater() {
    if (!made) throw std::bad_alloc();  // the thread's next image tries again
  }

  std::unique_ptr<libdeflate_decompressor, void (*)(libdeflate_decompressor*)> made{
      libdeflate_alloc_decompressor(), libdeflate_free_decompressor};
};

// Memory for the filtered rows. Each thread keeps enough for images of common sizes.
class Scratch {
 public:
  explicit Scratch(size_t size) {
    constexpr size_t kKept = size_t{8} << 20;
    std::vector<uint8_t>& kept = per_thread<Kept>().rows;
    if (size > kKept) large_ = allocate_bytes(size);
    if (size <= kKept && kept.size() < size) kept.resize(size);
    rows_ = large_ ? reinterpret_cast<uint8_t*>(large_.get()) : kept.data();
  }
  uint8_t* rows() const { return rows_; }

 private:
  struct Kept {
    std::vector<uint8_t> rows;
  };
  std::shared_ptr<std::byte> large_;
  uint8_t* rows_;
};

void copy_row(const Png& png, const uint8_t* row, uint8_t* out, bool rgb) {
  const auto width = static_cast<size_t>(png.width);
  if (png.colour == kRgb) {
    std::memcpy(out, row, 3 * width);
  } else if (png.colour == kPalette) {
    const auto* palette = reinterpret_cast<const uint8_t*>(png.palette.data());
    for (size_t x = 0; x < width; ++x) {
      if (3u * row[x] + 3 > png.palette.size()) corrupt("a pixel is not in its palette");
      std::memcpy(out + 3 * x, palette + 3 * row[x], 3);
    }
  } else if (rgb) {
    for (size_t x = 0; x < width; ++x) std::memset(out + 3 * x, row[x], 3);
  } else {
    std::memcpy(out, row, width);
  }
}

}  // namespace

PngOutline outline_png(std::span<const std::byte> bytes, int64_t max_chunk_bytes) {
  PngOutline out;
  for (size_t at = kSignature; at + kChunkHead <= bytes.size();) {
    const uint64_t length = big_endian(bytes.data() + at);
    if (length > static_cast<uint64_t>(max_chunk_bytes))
      fail(Code::unsupported, "a PNG with a chunk of ", length, " bytes; the limit is ",
           max_chunk_bytes, " (max_chunk_bytes)");
    const auto body = bytes.subspan(at + kChunkHead);
    const uint32_t kind = big_endian(bytes.data() + at + 4);
    if (kind == type("IDAT")) out.data_bytes += length;
    if (kind == type("eXIf") && out.exif.empty() && length <= body.size())
      out.exif = body.first(length);
    at += kChunkHead + length + kChunkTail;
  }
  return out;
}

void check_png_size(int64_t width, int64_t height, int64_t bits, const PngOutline& outline,
                    const ImageOptions& options) {
  check_pixels(width, height, options);
  constexpr uint64_t kMostRatio = 1032;  // deflate's maximum: 258 bytes from two bits
  const auto least = static_cast<uint64_t>(width * height / 8 * bits);
  if (least / kMostRatio > outline.data_bytes)
    fail(Code::corrupt_data, "bad PNG: ", outline.data_bytes,
         " bytes of compressed pixels are too few for ", width, " x ", height, " pixels");
}

std::optional<Tensor> decode_common_png(std::span<const std::byte> bytes, bool rgb,
                                        const PngOutline& outline, const ImageOptions& options) {
  if (bytes.size() < kSignature) return std::nullopt;
  Png png;
  if (!parse(bytes, png)) return std::nullopt;
  const size_t pixel = png.colour == kRgb ? 3 : 1, row = static_cast<size_t>(png.width) * pixel;
  const size_t out_pixel = png.colour != kGray || rgb ? 3 : 1;
  check_png_size(png.width, png.height, static_cast<int64_t>(8 * pixel), outline, options);
  const size_t size = (row + 1) * static_cast<size_t>(png.height);
  const Orientation orientation = orientation_of(outline, options);
  const int64_t band = OrientedRows::band_bytes(orientation, png.width, png.height, out_pixel);
  const auto pixels = static_cast<size_t>(png.width * png.height);
  const auto hold =
      reserve(static_cast<int64_t>(size + out_pixel * pixels + png.joined.size()) + band, options);
  const Scratch scratch(size + 1);
  const libdeflate_result result =
      libdeflate_zlib_decompress(per_thread<Inflater>().made.get(), png.data.data(),
                                 png.data.size(), scratch.rows(), size, nullptr);
  if (result != LIBDEFLATE_SUCCESS) corrupt("its compressed pixels are damaged or too few");
  check_cancelled(options);
  const bool turned = swaps_sides(orientation);
  Tensor out(DType::u8, {turned ? png.width : png.height, turned ? png.height : png.width,
                         static_cast<int64_t>(out_pixel)});
  if (pixel == 3)
    unfilter_all<3>(scratch.rows(), row, png.height);
  else
    unfilter_all<1>(scratch.rows(), row, png.height);
  check_cancelled(options);
  OrientedRows rows(orientation, png.width, png.height, out_pixel, out.mutable_data());
  for (int64_t y = 0; y < png.height; ++y) {
    copy_row(png, scratch.rows() + static_cast<size_t>(y) * (row + 1) + 1, rows.row(y),
             out_pixel == 3);
    rows.done(y + 1);
  }
  return out;
}

}  // namespace etr::codec

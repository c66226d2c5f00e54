#include "codec/png_rows.h"

#include <png.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <vector>

#include "codec/decoding.h"
#include "codec/luma.h"
#include "core/error.h"

namespace etr::codec {
namespace {

template <typename T>
constexpr uint32_t kFull = std::numeric_limits<T>::max();

// Composites over black.
template <typename T>
T compose(T value, T alpha) {
  return static_cast<T>((uint32_t{value} * alpha + kFull<T> / 2) / kFull<T>);
}

template <typename Out, typename In>
Out narrow(In value) {
  if constexpr (sizeof(Out) == sizeof(In))
    return value;
  else
    return static_cast<Out>((value * kFull<Out> + kFull<In> / 2) / kFull<In>);
}

// Converts `count` pixels of kColours samples, plus alpha if kAlpha, to pixels of kChannels that
// are `step` elements apart.
template <typename In, typename Out, int kColours, bool kAlpha, int kChannels>
void put_pixels(const uint8_t* row, int64_t count, Out* out, ptrdiff_t step) {
  constexpr size_t kSize = (kColours + kAlpha) * sizeof(In);
  const auto put = [&](ptrdiff_t apart) {
    for (int64_t x = 0; x < count; ++x, row += kSize, out += apart) {
      In pixel[kColours + kAlpha];
      std::memcpy(pixel, row, kSize);
      Out value[kColours];
      for (size_t c = 0; c < kColours; ++c)
        value[c] = narrow<Out>(kAlpha ? compose(pixel[c], pixel[kColours + kAlpha - 1]) : pixel[c]);
      if constexpr (kChannels == kColours)
        std::memcpy(out, value, sizeof value);
      else if constexpr (kChannels == 1)
        *out = luma(value);
      else
        out[0] = out[1] = out[2] = value[0];
    }
  };
  if (step == kChannels)
    put(kChannels);  // a compile-time constant
  else
    put(step);
}

template <typename Out>
using PutPixels = void (*)(const uint8_t* row, int64_t count, Out* out, ptrdiff_t step);

template <typename In, typename Out>
PutPixels<Out> put_pixels_of(bool colour, bool alpha, bool rgb) {
  if (colour && alpha)
    return rgb ? put_pixels<In, Out, 3, true, 3> : put_pixels<In, Out, 3, true, 1>;
  if (colour) return rgb ? put_pixels<In, Out, 3, false, 3> : put_pixels<In, Out, 3, false, 1>;
  if (alpha) return rgb ? put_pixels<In, Out, 1, true, 3> : put_pixels<In, Out, 1, true, 1>;
  return rgb ? put_pixels<In, Out, 1, false, 3> : put_pixels<In, Out, 1, false, 1>;
}

// Decodes one image. libpng's simplified interface is not used: it is wrong for interlaced 16-bit
// images and composites alpha in linear light.
class PngRows {
 public:
  PngRows(std::span<const std::byte> bytes, const PngOutline& outline, const ImageOptions& options)
      : left_(bytes), outline_(outline), options_(options) {
    png_ = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, this, on_error, on_warning, this,
                                    allocate, release);
    if (png_) info_ = png_create_info_struct(png_);
    if (!info_) {
      png_destroy_read_struct(&png_, &info_, nullptr);
      throw std::bad_alloc();
    }
  }
  ~PngRows() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngRows(const PngRows&) = delete;
  PngRows& operator=(const PngRows&) = delete;

  Tensor decode() {
    read_header();
    const bool rgb =
        options_.channels == Channels::rgb || (options_.channels == Channels::as_stored && colour_);
    const DType dtype = deep_ && options_.keep_u16 ? DType::u16 : DType::u8;
    const Orientation orientation = orientation_of(outline_, options_);
    Shape shape{height_, width_, rgb ? 3 : 1};
    if (swaps_sides(orientation)) std::swap(shape[0], shape[1]);
    const auto hold =
        reserve(element_count(shape) * static_cast<int64_t>(dtype_size(dtype)), options_);
    Tensor out(dtype, shape);
    const Placement place = placement_of(orientation, width_, height_);
    if (!deep_)
      read_rows<uint8_t, uint8_t>(place, out);
    else if (dtype == DType::u8)
      read_rows<uint16_t, uint8_t>(place, out);
    else
      read_rows<uint16_t, uint16_t>(place, out);
    return out;
  }

 private:
  void read_header() {
    call([this] {
      // Skip chunks about display properties and compressed text.
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
      png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
      png_set_read_fn(png_, this, read);
      png_read_info(png_, info_);
    });
    width_ = png_get_image_width(png_, info_);
    height_ = png_get_image_height(png_, info_);
    interlaced_ = png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE;
    const int64_t stored = int64_t{png_get_bit_depth(png_, info_)} * png_get_channels(png_, info_);
    check_png_size(width_, height_, stored, outline_, options_);
    call([this] {
      png_set_expand(png_);
      if (std::endian::native == std::endian::little) png_set_swap(png_);
      png_read_update_info(png_, info_);
    });
    deep_ = png_get_bit_depth(png_, info_) == 16;
    const int channels = png_get_channels(png_, info_);
    colour_ = channels >= 3;
    alpha_ = channels % 2 == 0;
  }

  // Reads the rows of each Adam7 pass, or of the whole image, and writes pixels to their final
  // places.
  template <typename In, typename Out>
  void read_rows(const Placement& place, Tensor& out) {
    const int64_t channels = out.shape().back();
    const PutPixels<Out> put = put_pixels_of<In, Out>(colour_, alpha_, channels == 3);
    Out* const pixels = out.mutable_view<Out>().data();
    std::vector<uint8_t> row(png_get_rowbytes(png_, info_));
    for (int pass = 0; pass < (interlaced_ ? PNG_INTERLACE_ADAM7_PASSES : 1); ++pass) {
      const int64_t x0 = interlaced_ ? PNG_PASS_START_COL(pass) : 0;
      const int64_t y0 = interlaced_ ? PNG_PASS_START_ROW(pass) : 0;
      const int64_t dx = interlaced_ ? PNG_PASS_COL_OFFSET(pass) : 1;
      const int64_t dy = interlaced_ ? PNG_PASS_ROW_OFFSET(pass) : 1;
      const int64_t count = (width_ - x0 + dx - 1) / dx;
      if (count <= 0) continue;
      for (int64_t y = y0; y < height_; y += dy) {
        check_cancelled(options_);
        call([&] { png_read_row(png_, row.data(), nullptr); });
        put(row.data(), count, pixels + place.at(x0, y) * channels, place.along * dx * channels);
      }
    }
  }

  // libpng goes on without a chunk for which it has no memory: other pixels, no error.
  template <typename Part>
  void call(const Part& part) {
    jump_.call(part);
    if (no_memory_) throw std::bad_alloc();
  }

  static void* allocate(png_structp png, png_alloc_size_t size) {
    void* const memory = std::malloc(size);
    if (!memory) static_cast<PngRows*>(png_get_mem_ptr(png))->no_memory_ = true;
    return memory;
  }
  static void release(png_structp, void* memory) { std::free(memory); }

  static void on_error(png_structp png, png_const_charp message) {
    auto& own = *static_cast<PngRows*>(png_get_error_ptr(png));
    own.jump_.raise(own.no_memory_ ? Code::out_of_memory : Code::corrupt_data, "bad PNG: %s",
                    message);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void read(png_structp png, png_bytep to, size_t size) {
    auto& left = static_cast<PngRows*>(png_get_io_ptr(png))->left_;
    if (size > left.size()) png_error(png, "the file ends early");
    std::memcpy(to, left.data(), size);
    left = left.subspan(size);
  }

  std::span<const std::byte> left_;
  const PngOutline& outline_;
  const ImageOptions& options_;
  ErrorJump jump_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int64_t width_ = 0, height_ = 0;
  bool interlaced_ = false, deep_ = false, colour_ = false, alpha_ = false, no_memory_ = false;
};

}  // namespace

Tensor decode_any_png(std::span<const std::byte> bytes, const PngOutline& outline,
                      const ImageOptions& options) {
  return PngRows(bytes, outline, options).decode();
}

}  // namespace etr::codec

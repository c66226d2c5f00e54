#include "codec/jpeg_decoder.h"

#include <algorithm>
#include <cstdio>
#include <vector>

// Must be included after <cstdio>.
#include <jerror.h>
#include <jpeglib.h>

#include "codec/decoding.h"
#include "codec/luma.h"
#include "codec/orientation.h"
#include "core/error.h"

namespace etr::codec {
namespace {

// Converts CMYK as stored by Adobe's programs, where 255 means no ink.
void put_inks(const uint8_t* cmyk, int64_t width, bool rgb, uint8_t* out) {
  for (int64_t x = 0; x < width; ++x, cmyk += 4) {
    uint8_t pixel[3];
    for (size_t c = 0; c < 3; ++c) pixel[c] = static_cast<uint8_t>((cmyk[c] * cmyk[3] + 127) / 255);
    if (rgb)
      out = std::copy(pixel, pixel + 3, out);
    else
      *out++ = luma(pixel);
  }
}

// Decodes one image. Each image gets a new decoder: a reused one keeps the previous image's tables
// and would use them for a damaged image that lacks its own. Creating one costs half a microsecond.
class Jpeg {
 public:
  Jpeg(std::span<const std::byte> bytes, const ImageOptions& options)
      : bytes_(bytes), options_(options) {
    info_.err = jpeg_std_error(&errors_);
    info_.client_data = this;
    errors_.error_exit = [](j_common_ptr info) { of(info).raise(info); };
    errors_.emit_message = [](j_common_ptr info, int level) { of(info).note(info, level); };
    progress_.progress_monitor = [](j_common_ptr info) { of(info).look_around(); };
  }
  ~Jpeg() { jpeg_destroy_decompress(&info_); }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;

  Tensor decode() {
    read_header();
    choose_output();
    const Orientation orientation =
        options_.upright ? jpeg_orientation(bytes_) : Orientation::upright;
    const int64_t width = info_.output_width, height = info_.output_height;
    const auto pixel = static_cast<size_t>(rgb_ ? 3 : 1);
    Shape shape{height, width, static_cast<int64_t>(pixel)};
    if (swaps_sides(orientation)) std::swap(shape[0], shape[1]);
    const auto hold = reserve(element_count(shape) + coefficient_bytes() +
                                  OrientedRows::band_bytes(orientation, width, height, pixel),
                              options_);
    Tensor out = Tensor::off_boundary(DType::u8, shape);
    OrientedRows rows(orientation, width, height, pixel, out.mutable_data());
    read_rows(rows);
    check_complete();
    return out;
  }

  // libjpeg's first warning about the data, other than of a premature end; "" if none.
  const char* warning() const { return warning_; }

 private:
  static Jpeg& of(j_common_ptr info) { return *static_cast<Jpeg*>(info->client_data); }

  void read_header() {
    jump_.call([this] {
      jpeg_create_decompress(&info_);
      info_.progress = &progress_;
      jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes_.data()),
                   static_cast<unsigned long>(bytes_.size()));
      jpeg_read_header(&info_, TRUE);
      several_scans_ = jpeg_has_multiple_scans(&info_);
    });
    check_pixels(info_.image_width, info_.image_height, options_);
    // Huffman codes take at least one bit per block. This check makes the memory that is allocated
    // proportional to the file. For arithmetic coding, which hardly any program writes, there is
    // no such bound.
    if (info_.arith_code)
      fail(Code::unsupported, "a JPEG with arithmetic coding; save it with Huffman coding");
    if (blocks() > 8 * static_cast<int64_t>(bytes_.size()))
      fail(Code::corrupt_data, "bad JPEG: ", bytes_.size(), " bytes are too few for ",
           info_.image_width, " x ", info_.image_height, " pixels");
  }

  std::span<const jpeg_component_info> components() const {
    return {info_.comp_info, static_cast<size_t>(info_.num_components)};
  }

  int64_t blocks() const {
    int64_t sum = 0;
    for (const jpeg_component_info& c : components())
      sum += int64_t{c.width_in_blocks} * c.height_in_blocks;
    return sum;
  }

  // For several scans libjpeg keeps all coefficients, in whole MCUs, until the last scan is read.
  int64_t coefficient_bytes() const {
    if (!several_scans_) return 0;
    const auto whole = [](int64_t n, int64_t factor) { return (n + factor - 1) / factor * factor; };
    int64_t sum = 0;
    for (const jpeg_component_info& c : components())
      sum += whole(c.width_in_blocks, c.h_samp_factor) * whole(c.height_in_blocks, c.v_samp_factor);
    return sum * static_cast<int64_t>(sizeof(JBLOCK));
  }

  void choose_output() {
    const J_COLOR_SPACE stored = info_.jpeg_color_space;
    inks_ = stored == JCS_CMYK || stored == JCS_YCCK;
    if (stored == JCS_UNKNOWN)
      fail(Code::unsupported, "a JPEG of ", info_.num_components,
           " components that are neither gray, RGB nor CMYK");
    rgb_ = options_.channels == Channels::rgb ||
           (options_.channels == Channels::as_stored && stored != JCS_GRAYSCALE);
    info_.out_color_space = inks_ ? JCS_CMYK : rgb_ ? JCS_RGB : JCS_GRAYSCALE;
    info_.scale_num = 1;
    info_.scale_denom = shrinking();
    jump_.call([this] { jpeg_calc_output_dimensions(&info_); });
  }

  // The largest factor that leaves at least the requested pixels on the shorter side.
  unsigned shrinking() const {
    unsigned best = 1;
    const unsigned side = std::min(info_.image_width, info_.image_height);
    for (const unsigned by : {2u, 4u, 8u})
      if (options_.min_side > 0 && (side + by - 1) / by >= options_.min_side) best = by;
    return best;
  }

  void read_rows(OrientedRows& rows) {
    const int64_t height = info_.output_height;
    const int at_once = info_.max_v_samp_factor;  // libjpeg never returns more
    std::vector<uint8_t> inks(inks_ ? 4 * size_t{info_.output_width} : 0);
    jump_.call([&] {
      jpeg_start_decompress(&info_);
      while (info_.output_scanline < height) {
        const int64_t y = info_.output_scanline;
        JSAMPROW to[OrientedRows::kBand];
        const int64_t count = inks_ ? 1 : std::min<int64_t>(rows.together(y), at_once);
        for (int64_t i = 0; i < count; ++i) to[i] = inks_ ? inks.data() : rows.row(y + i);
        jpeg_read_scanlines(&info_, to, static_cast<JDIMENSION>(count));
        if (inks_) put_inks(inks.data(), info_.output_width, rgb_, rows.row(y));
        rows.done(info_.output_scanline);
      }
    });
  }

  // libjpeg fills missing rows with gray. If the file ends within a single scan, the scan's bits
  // may still be complete. If there are several scans, whole scans may be missing.
  void check_complete() const {
    if (ended_early_ && (several_scans_ || lacked_bits_))
      fail(Code::corrupt_data, "bad JPEG: the file ends early");
  }

  [[noreturn]] void raise(j_common_ptr info) {
    char text[JMSG_LENGTH_MAX];
    info->err->format_message(info, text);
    const bool memory = info->err->msg_code == JERR_OUT_OF_MEMORY;
    jump_.raise(memory ? Code::out_of_memory : Code::corrupt_data, "bad JPEG: %s", text);
  }

  void note(j_common_ptr info, int level) {
    if (level >= 0) return;  // only a trace message
    const int code = info->err->msg_code;
    if (code == JWRN_JPEG_EOF) ended_early_ = true;
    if (code == JWRN_HIT_MARKER && ended_early_) lacked_bits_ = true;
    if (warning_[0] == 0 && code != JWRN_JPEG_EOF) info->err->format_message(info, warning_);
  }

  // Called for every row of MCUs that is read or written.
  void look_around() {
    if (is_cancelled(options_)) jump_.raise(Code::cancelled, "decoding was cancelled");
    if (info_.input_scan_number > options_.max_scans)
      jump_.raise(Code::unsupported, "a JPEG of more than %lld scans (max_scans)",
                  static_cast<long long>(options_.max_scans));
  }

  const std::span<const std::byte> bytes_;
  const ImageOptions& options_;
  ErrorJump jump_;
  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  // The first warning. Not a string, because allocating one could fail within libjpeg.
  char warning_[JMSG_LENGTH_MAX] = "";
  bool several_scans_ = false, ended_early_ = false, lacked_bits_ = false;
  bool rgb_ = false, inks_ = false;
};

}  // namespace

Tensor decode_jpeg(std::span<const std::byte> bytes, const ImageOptions& options,
                   std::string* warning) {
  Jpeg jpeg(bytes, options);
  Tensor out = jpeg.decode();
  if (warning) *warning = jpeg.warning();
  return out;
}

}  // namespace etr::codec

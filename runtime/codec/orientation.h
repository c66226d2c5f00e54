// How an image lies in its file, and decoded rows put where they belong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace etr::codec {

// The orientations of EXIF (tag 0x0112): what is to be done to the stored pixels. Above rotate_180 and flip the sides change places.
enum class Orientation : int {
  upright = 1,
  mirror = 2,  // left and right change places
  rotate_180 = 3,
  flip = 4,       // top and bottom change places
  transpose = 5,  // rows become columns
  rotate_right = 6,
  transverse = 7,  // rows become columns, then turned by half
  rotate_left = 8,
};

inline bool swaps_sides(Orientation orientation) { return orientation >= Orientation::transpose; }

// Of a block of EXIF data, which is a TIFF file. Upright where it has none, or none that makes sense.
Orientation exif_orientation(std::span<const std::byte> tiff);

// Of the first EXIF block in a JPEG's headers.
Orientation jpeg_orientation(std::span<const std::byte> jpeg);

// Where stored pixel (x, y) comes to lie: at origin + x * along + y * down, in pixels.
struct Placement {
  ptrdiff_t origin, along, down;

  ptrdiff_t at(int64_t x, int64_t y) const { return origin + x * along + y * down; }
};
Placement placement_of(Orientation orientation, int64_t width, int64_t height);  // as stored

// Takes an image's rows as they are stored, from the first to the last, and puts them where they belong. Rows that stay rows
// are written in place; of others a band is collected, so that both sides of the copy are in the cache.
class OrientedRows {
 public:
  static constexpr int64_t kBand = 16;  // rows

  // `pixel`: bytes of one. `out` holds the whole result.
  OrientedRows(Orientation orientation, int64_t width, int64_t height, size_t pixel, void* out);

  // Memory beside the result.
  static int64_t band_bytes(Orientation orientation, int64_t width, int64_t height, size_t pixel);

  // Where row y is to be written; the address is good until the row is done.
  uint8_t* row(int64_t y);

  // How many rows from y on can be written at once.
  int64_t together(int64_t y) const;

  // All rows before `end` are written.
  void done(int64_t end);

 private:
  void place_band(int64_t end);

  const Placement place_;
  const int64_t width_, height_;
  const size_t pixel_, stride_;  // bytes; of a row in the band
  uint8_t* const out_;
  std::shared_ptr<std::byte> memory_;
  uint8_t* band_ = nullptr;  // kBand rows; nullptr: rows are written in place
};

}  // namespace etr::codec

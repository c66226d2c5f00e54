// EXIF orientations, and writing decoded rows in upright orientation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace etr::codec {

// EXIF orientations (tag 0x0112): the operation to apply to the stored pixels. Those from transpose
// on swap width and height.
enum class Orientation : int {
  upright = 1,
  mirror = 2,  // swap left and right
  rotate_180 = 3,
  flip = 4,       // swap top and bottom
  transpose = 5,  // swap rows and columns
  rotate_right = 6,
  transverse = 7,  // transpose, then rotate by 180 degrees
  rotate_left = 8,
};

inline bool swaps_sides(Orientation orientation) { return orientation >= Orientation::transpose; }

// Parses a block of EXIF data, which is a TIFF file. Returns upright if the orientation is missing
// or invalid.
Orientation exif_orientation(std::span<const std::byte> tiff);

// Parses the first EXIF block in a JPEG's headers.
Orientation jpeg_orientation(std::span<const std::byte> jpeg);

// Maps stored pixel (x, y) to the index origin + x * along + y * down, in pixels.
struct Placement {
  ptrdiff_t origin, along, down;

  ptrdiff_t at(int64_t x, int64_t y) const { return origin + x * along + y * down; }
};
Placement placement_of(Orientation orientation, int64_t width, int64_t height);  // stored size

// Takes an image's rows in stored order and writes them to their final places. If rows remain rows,
// they are written in place. Otherwise bands of rows are collected first, so that both sides of the
// copy stay in the cache.
class OrientedRows {
 public:
  static constexpr int64_t kBand = 16;  // rows

  // `pixel`: bytes per pixel. `out` holds the whole result.
  OrientedRows(Orientation orientation, int64_t width, int64_t height, size_t pixel, void* out);

  // The memory needed besides the result.
  static int64_t band_bytes(Orientation orientation, int64_t width, int64_t height, size_t pixel);

  // Returns where to write row y. Valid until the row is done.
  uint8_t* row(int64_t y);

  // The number of rows from y on that can be written at once.
  int64_t together(int64_t y) const;

  // To be called when all rows before `end` are written.
  void done(int64_t end);

 private:
  void place_band(int64_t end);

  const Placement place_;
  const int64_t width_, height_;
  const size_t pixel_, stride_;  // bytes per pixel; bytes per row of the band
  uint8_t* const out_;
  std::shared_ptr<std::byte> memory_;
  uint8_t* band_ = nullptr;  // kBand rows; nullptr: write in place
};

}  // namespace etr::codec

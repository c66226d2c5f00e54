// Writes tar archives, zstd-compressed where the name ends in .zst.
#pragma once

#include <memory>
#include <span>
#include <string>

namespace etr::io {

// Members are written as they come (ustar, with a pax header for names over 100 bytes; mode 0644, time 0: the same input gives
// the same bytes).
class TarWriter {
 public:
  // `level` is the zstd level (1 to 19). Throws Error(io).
  TarWriter(const std::string& path, int level);
  ~TarWriter();  // without finish(), the partial file is removed
  TarWriter(const TarWriter&) = delete;
  TarWriter& operator=(const TarWriter&) = delete;

  // Error(invalid_argument) for an empty name and one with a line break or a NUL.
  void add(const std::string& name, std::span<const std::byte> bytes);

  void finish();  // writes the end of the archive, flushes, renames into place

 private:
  void add_member(const std::string& name, char type, std::span<const std::byte> bytes);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace etr::io

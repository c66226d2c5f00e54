// Writes tar archives, compressed with zstd if the name ends in .zst.
#pragma once

#include <memory>
#include <span>
#include <string>

namespace etr::io {

// Writes members in the order of the calls (ustar, with a pax header for names over 100 bytes).
// Mode 0644 and time 0 make the output reproducible.
class TarWriter {
 public:
  // `level` is the zstd level (1 to 19). Throws Error(io).
  TarWriter(const std::string& path, int level);
  ~TarWriter();  // without finish(), the partial file is removed
  TarWriter(const TarWriter&) = delete;
  TarWriter& operator=(const TarWriter&) = delete;

  // Throws Error(invalid_argument) if the name is empty or contains a line break or a NUL.
  void add(const std::string& name, std::span<const std::byte> bytes);

  // Writes the end of the archive, flushes it to the disk and renames it into place.
  void finish();

 private:
  void add_member(const std::string& name, char type, std::span<const std::byte> bytes);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace etr::io

// Reads tar archives (ustar, GNU and pax long names) front to back.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/byte_stream.h"

namespace etr::io {

struct TarMember {
  std::string name;
  Block data;           // shares the mapped file, or the decompressed block that holds it
  uint64_t offset = 0;  // of the member's header in the (uncompressed) archive
};

// Zero-copy: a member's bytes lie in the mapped file, or in the block that decompression filled;
// only a member that straddles two blocks is moved, once, to the head of the next.
struct TarLimits {
  uint64_t member_bytes = uint64_t{1} << 31;
  uint64_t name_bytes = 4096;
  uint64_t members = 100'000'000;
};

class TarReader {
 public:
  // Takes over `stream`; `path` names the archive in errors.
  TarReader(std::unique_ptr<ByteStream> stream, std::string path, TarLimits limits = {});

  // The next regular file; false at the end. Throws Error(corrupt_data) that names the archive, the
  // last member and the offset, and Error(unsupported) beyond the limits.
  bool next(TarMember& member);

 private:
  // Makes [position_, position_ + size) readable in one block; false if the archive ends before it.
  bool ensure(size_t size);
  [[noreturn]] void corrupt(const std::string& why) const;
  [[noreturn]] void beyond(const char* what, uint64_t found, uint64_t limit,
                           const char* option) const;
  std::string read_text(uint64_t size);
  std::string pax_path(const std::string& records) const;
  void skip(uint64_t size);
  const char* here() const { return reinterpret_cast<const char*>(block_.data.get()) + position_; }

  std::unique_ptr<ByteStream> stream_;
  std::string path_;
  const TarLimits limits_;
  uint64_t members_ = 0;
  std::string last_member_;
  Block block_;
  bool whole_file_ = false;    // block_ is the entire archive
  size_t position_ = 0;        // in block_
  uint64_t block_offset_ = 0;  // of block_ in the archive
};

}  // namespace etr::io

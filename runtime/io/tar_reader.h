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
class TarReader {
 public:
  // Takes over `stream`; `path` names the archive in errors.
  TarReader(std::unique_ptr<ByteStream> stream, std::string path);

  // The next regular file; false at the end. Throws Error(corrupt_data) that names the archive, the
  // last member and the offset. A member may have at most `kMaxMemberBytes`.
  bool next(TarMember& member);

  static constexpr uint64_t kMaxMemberBytes = uint64_t{1} << 31;

 private:
  // Makes [position_, position_ + size) readable in one block; false if the archive ends before it.
  bool ensure(size_t size);
  [[noreturn]] void corrupt(const std::string& why) const;
  std::string read_text(uint64_t size);
  std::string pax_path(const std::string& records) const;
  void skip(uint64_t size);
  const char* here() const { return reinterpret_cast<const char*>(block_.data.get()) + position_; }

  std::unique_ptr<ByteStream> stream_;
  std::string path_;
  std::string last_member_;
  Block block_;
  bool whole_file_ = false;    // block_ is the entire archive
  size_t position_ = 0;        // in block_
  uint64_t block_offset_ = 0;  // of block_ in the archive
};

}  // namespace etr::io

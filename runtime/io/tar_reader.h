// Reads tar archives (v7, ustar, GNU and pax) front to back, as GNU tar does: long names, sparse
// files, sizes in any notation. Members that cannot be read faithfully (hard links, parts of a
// multi-volume archive) are errors that name the member.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.h"
#include "io/byte_stream.h"
#include "io/tar_format.h"

namespace etr::io {

struct TarMember {
  std::string name;
  Block data;           // shares ownership of its block
  uint64_t offset = 0;  // of the member's first header in the uncompressed archive
};

struct TarLimits {
  SizeLimit member_bytes{uint64_t{1} << 31, "max_member_bytes"};
  uint64_t name_bytes = 4096;
  uint64_t members = 100'000'000;
  double max_ratio = kMaxRatio;  // ratio of a sparse file's size to its stored size
};

// Member data is not copied: it points into the block that was read or decompressed. Only a member
// that crosses the end of a block is moved, once, to the start of the next block.
class TarReader {
 public:
  // `path` names the archive in errors.
  TarReader(std::unique_ptr<ByteStream> stream, std::string path, TarLimits limits = {});

  // Reads the next regular file. Returns false at the end. Throws Error(corrupt_data) that names
  // the archive, the last member and the offset, and Error(unsupported) beyond the limits.
  bool next(TarMember& member);

  // After next() has thrown: whether only that member is bad, so that the next call continues after
  // it.
  bool can_go_on() const { return intact_; }
  const std::string& last_member() const { return last_member_; }  // the bad member after an error
  uint64_t last_offset() const { return begin_; }                  // where that member begins

 private:
  // Makes [position_, position_ + size) contiguous in the block. Returns false if the archive ends
  // first.
  bool ensure(uint64_t size);
  [[noreturn]] void corrupt(const std::string& why) const;
  void check_limit(const char* what, uint64_t found, uint64_t limit, const char* option) const;
  // Reports an error of one member only. The next call continues after its remaining `size` bytes.
  [[noreturn]] void bad_member(Code code, const std::string& name, const std::string& why,
                               uint64_t size);

  bool next_header(tar::Header& header);
  void check_first_bytes();
  void check_rest();
  void warn_of_type(char type, const std::string& name);
  void extend(const tar::Header& header);
  bool read_member(const tar::Header& header, TarMember& member);
  void read_gnu_map(const char* header);
  Block expand(const std::string& name, Block stored);
  std::string read_text(uint64_t size);
  void skip(uint64_t size);
  uint64_t at() const { return block_offset_ + position_; }
  const char* here() const { return reinterpret_cast<const char*>(block_.data.get()) + position_; }

  std::unique_ptr<ByteStream> stream_;
  std::string path_;
  const TarLimits limits_;
  uint64_t members_ = 0, begin_ = 0;  // begin_: start of the current member
  std::string last_member_;
  tar::Extension extension_;  // for the next member
  uint64_t to_skip_ = 0;      // rest of a bad member, or padding
  bool intact_ = true;
  bool begun_ = false, ended_ = false;  // a header was read; the end marker was read
  bool warned_of_type_ = false;
  Block block_;
  size_t position_ = 0;        // offset in block_
  uint64_t block_offset_ = 0;  // offset of block_ in the archive
};

}  // namespace etr::io

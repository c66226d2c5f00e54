// Reads tar archives (v7, ustar, GNU and pax) front to back, as GNU tar does: long names, sparse files, sizes in any notation.
// What cannot be read as it is meant (hard links, parts of a multi-volume archive) is an error that names the member.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.h"
#include "io/byte_stream.h"
#include "io/tar_format.h"

namespace etr::io {

struct TarMember {
  std::string name;
  Block data;           // shares the block that holds it
  uint64_t offset = 0;  // of the member's first header in the (uncompressed) archive
};

struct TarLimits {
  SizeLimit member_bytes{uint64_t{1} << 31, "max_member_bytes"};
  uint64_t name_bytes = 4096;
  uint64_t members = 100'000'000;
  double max_ratio = kMaxRatio;  // of a sparse file's size to what is stored of it
};

// A member's bytes lie in the block that was read from the file or unpacked; only a member that straddles two blocks is moved,
// once, to the head of the next.
class TarReader {
 public:
  // Takes over `stream`; `path` names the archive in errors.
  TarReader(std::unique_ptr<ByteStream> stream, std::string path, TarLimits limits = {});

  // The next regular file; false at the end. Throws Error(corrupt_data) that names the archive, the
  // last member and the offset, and Error(unsupported) beyond the limits.
  bool next(TarMember& member);

  // After next() has thrown: whether only that member is bad, and the next call goes on after it.
  bool can_go_on() const { return intact_; }
  const std::string& last_member() const { return last_member_; }  // the bad one, if one was
  uint64_t last_offset() const { return begin_; }                  // where it begins

 private:
  // Makes [position_, position_ + size) readable in one block; false if the archive ends before it.
  bool ensure(uint64_t size);
  [[noreturn]] void corrupt(const std::string& why) const;
  void check_limit(const char* what, uint64_t found, uint64_t limit, const char* option) const;
  // Of one member only: the next call goes on after its `size` bytes, which are still to come.
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
  uint64_t members_ = 0, begin_ = 0;  // begin_: of the present one
  std::string last_member_;
  tar::Extension extension_;  // for the next member
  uint64_t to_skip_ = 0;      // of a bad member; a member's padding
  bool intact_ = true;
  bool begun_ = false, ended_ = false;  // a header was read; the record that ends the archive
  bool warned_of_type_ = false;
  Block block_;
  size_t position_ = 0;        // in block_
  uint64_t block_offset_ = 0;  // of block_ in the archive
};

}  // namespace etr::io

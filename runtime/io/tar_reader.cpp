#include "io/tar_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/log.h"
#include "core/memory.h"

namespace etr::io {
namespace {

constexpr size_t kBlockBytes = 1 << 20;

}  // namespace

TarReader::TarReader(std::unique_ptr<ByteStream> stream, std::string path, TarLimits limits)
    : stream_(std::move(stream)), path_(std::move(path)), limits_(limits) {}

void TarReader::corrupt(const std::string& why) const {
  fail(Code::corrupt_data, "'", path_, "': ", why, " at byte ", at(),
       last_member_.empty() ? "" : " after member '" + last_member_ + "'");
}

void TarReader::check_limit(const char* what, uint64_t found, uint64_t limit,
                            const char* option) const {
  if (found > limit)
    fail(Code::unsupported, "'", path_, "': ", what, " of ", found, " at byte ", at(),
         "; the limit is ", limit, " (", option, ")");
}

void TarReader::bad_member(Code code, const std::string& name, const std::string& why,
                           uint64_t size) {
  last_member_ = name;
  to_skip_ += tar::padded(size);
  intact_ = true;
  fail(code, "'", path_, "': member '", name.substr(0, 4096), "' at byte ", begin_, " ", why);
}

bool TarReader::ensure(uint64_t size) {
  while (block_.size - position_ < size) {
    // Starts a new block with the rest of the old one, which members read from it keep alive.
    const size_t left = block_.size - position_;
    const size_t capacity = std::max(kBlockBytes, trusted_bytes(*stream_, left, size));
    const auto fresh = allocate_bytes(capacity);
    if (left > 0) std::memcpy(fresh.get(), block_.data.get() + position_, left);
    const size_t got = stream_->read({fresh.get() + left, capacity - left});
    block_offset_ += position_;
    position_ = 0;
    block_ = {fresh, left + got};
    if (block_.size < capacity) break;
  }
  return block_.size - position_ >= size;
}

void TarReader::skip(uint64_t size) {
  while (size > 0) {
    const auto step = static_cast<size_t>(std::min<uint64_t>(size, kBlockBytes));
    if (!ensure(step)) corrupt("the archive is truncated inside a member");
    position_ += step;
    size -= step;
  }
}

std::string TarReader::read_text(uint64_t size) {
  // Headers also hold extended attributes and sparse file maps.
  constexpr uint64_t kMoreThanNames = uint64_t{1} << 20;
  check_limit("an extended header", size, limits_.name_bytes + kMoreThanNames,
              "max_name_bytes and 1 MB");
  if (!ensure(tar::padded(size))) corrupt("the archive is truncated");
  std::string text(here(), static_cast<size_t>(size));
  position_ += static_cast<size_t>(tar::padded(size));
  return text;
}

void TarReader::check_first_bytes() {
  if (block_.size == 0) corrupt("the file is empty; an empty tar archive has 1,024 zero bytes");
  const char* other = tar::other_format({here(), block_.size});
  if (other) fail(Code::corrupt_data, "'", path_, "' is not a tar archive but ", other);
}

// Does not read beyond the first zero record, like GNU tar and Python's tarfile, but checks that
// nothing follows.
void TarReader::check_rest() {
  ended_ = true;
  const bool has_members = members_ > 0 || begun_;
  const uint64_t end = at();
  while (ensure(1)) {
    const char* const last = here() + (block_.size - position_);
    const char* const found = std::find_if(here(), last, [](char c) { return c != 0; });
    position_ += static_cast<size_t>(found - here());
    if (found == last) continue;
    if (!has_members)
      corrupt(cat("the archive begins with zero records, which end it, but it has data"));
    log_line(LogLevel::warning,
             cat("'", path_, "': the archive ends at byte ", end, ", and the data from byte ", at(),
                 " on is not read; if these are archives in one file, write them anew as one"));
    return;
  }
  if (at() % tar::kRecord != 0)
    log_line(LogLevel::warning, cat("'", path_, "' ends inside a record of its end, at byte ", at(),
                                    "; all members were read"));
  if (!has_members) log_line(LogLevel::warning, cat("'", path_, "' holds no member"));
}

// Returns false at the end of the archive.
bool TarReader::next_header(tar::Header& header) {
  const bool whole = ensure(tar::kRecord);
  if (at() == 0) check_first_bytes();
  if (!whole) {
    // Archives end with two zero records, but some writers omit them.
    if (block_.size - position_ == 0) return false;
    corrupt("the archive is truncated inside a header");
  }
  if (tar::is_zero(here())) {
    check_rest();
    return false;
  }
  header = tar::parse_header(here());
  if (header.problem)
    corrupt(std::string(header.problem) + (at() == 0 ? " (not a tar archive?)" : ""));
  return true;
}

// Reads a header that describes the next member.
void TarReader::extend(const tar::Header& header) {
  position_ += tar::kRecord;
  if (header.type == 'K') return skip(tar::padded(header.size));  // a long link target
  const std::string text = read_text(header.size);
  if (header.type == 'L') {
    if (extension_.name.empty()) extension_.name = text.c_str();  // stops at the terminating zero
  } else if (header.type == 'g') {
    const std::string key = tar::refused_global_key(text);
    if (!key.empty())
      fail(Code::unsupported, "'", path_, "': a global pax header sets '", key,
           "' for all members, at byte ", at());
  } else {
    std::string problem;
    const std::string name = std::exchange(extension_.name, "");
    // Parts add up over the extended headers of a member.
    if (!tar::parse_pax(text, extension_, problem) || extension_.parts.size() > tar::kMostParts)
      corrupt("a damaged pax header");
    if (!problem.empty()) fail(Code::unsupported, "'", path_, "': ", problem, ", at byte ", at());
    if (!name.empty()) extension_.name = name;  // the first header with a name wins
  }
}

void TarReader::read_gnu_map(const char* header) {
  bool more = false;
  extension_.sparse = true;
  extension_.parts.clear();
  bool good = tar::parse_gnu_map(header, extension_.parts, extension_.real_size, more);
  position_ += tar::kRecord;
  for (; good && more; position_ += tar::kRecord) {
    if (!ensure(tar::kRecord)) corrupt("the archive is truncated inside the map of a sparse file");
    good = tar::parse_gnu_map_record(here(), extension_.parts, more) &&
           extension_.parts.size() <= tar::kMostParts;
  }
  if (!good) corrupt("a damaged map of a sparse file");
}

// Expands a sparse member to the full file.
Block TarReader::expand(const std::string& name, Block stored) {
  size_t map_bytes = 0;
  const auto stored_text = [&] {
    return std::string_view(reinterpret_cast<const char*>(stored.data.get()), stored.size);
  };
  bool good = true;
  if (extension_.map_in_data)
    good = tar::parse_map_in_data(stored_text(), extension_.parts, map_bytes) && map_bytes > 0;
  const uint64_t size = extension_.real_size;
  if (!good || map_bytes > stored.size ||
      !tar::parts_fit(extension_.parts, size, stored.size - map_bytes))
    bad_member(Code::corrupt_data, name, "is sparse, and its map does not fit what is stored", 0);
  if (size > limits_.member_bytes.bytes || !in_proportion(size, stored.size, limits_.max_ratio))
    bad_member(Code::unsupported, name,
               cat("is sparse, of ", size, " bytes with ", stored.size, " stored; the limit is ",
                   limits_.member_bytes.bytes, " (", limits_.member_bytes.name, "), and ",
                   limits_.max_ratio, " times what is stored (max_ratio)"),
               0);
  const auto bytes = allocate_bytes(static_cast<size_t>(size));
  std::memset(bytes.get(), 0, static_cast<size_t>(size));
  const std::byte* from = stored.data.get() + map_bytes;
  for (const tar::Part& part : extension_.parts) {
    std::memcpy(bytes.get() + part.offset, from, static_cast<size_t>(part.size));
    from += part.size;
  }
  return {bytes, static_cast<size_t>(size)};
}

// Such members are read as files, as POSIX requires and GNU tar does.
void TarReader::warn_of_type(char type, const std::string& name) {
  if (std::exchange(warned_of_type_, true)) return;
  const auto code = static_cast<unsigned>(static_cast<unsigned char>(type));
  log_line(LogLevel::warning,
           cat("'", path_, "': member '", name.substr(0, 4096), "' at byte ", begin_,
               " is of the unknown type ", code, "; it and others like it are read as files"));
}

// Returns false if the header does not describe a regular file.
bool TarReader::read_member(const tar::Header& header, TarMember& member) {
  std::string name = !extension_.sparse_name.empty() ? extension_.sparse_name
                     : !extension_.name.empty()      ? extension_.name
                                                     : header.name;
  const uint64_t size = extension_.has_size ? extension_.size : header.size;
  const bool old_folder = header.type == '\0' && name.ends_with('/');
  if (header.type == 'S')
    read_gnu_map(here());
  else
    position_ += tar::kRecord;
  switch (header.type) {
    case '\0':
    case '0':
    case '7':  // contiguous
    case 'S': break;
    case '1':
      bad_member(Code::unsupported, name,
                 "is a hard link to another member; write the archive with tar --hard-dereference",
                 0);
    case 'M': bad_member(Code::unsupported, name, "is the rest of a file in another volume", size);
    case '2':
    case '3':
    case '4':
    case '5':
    // Links, devices and folders have no data, whatever the size field says.
    case '6': return false;
    case 'V':  // GNU volume label, directory listing
    case 'D': skip(tar::padded(size)); return false;
    default: warn_of_type(header.type, name);
  }
  if (old_folder) return false;
  if (name.size() > limits_.name_bytes)
    bad_member(Code::unsupported, name,
               cat("has a name of ", name.size(), " bytes; the limit is ", limits_.name_bytes,
                   " (max_name_bytes)"),
               size);
  if (size > limits_.member_bytes.bytes)
    bad_member(Code::unsupported, name,
               cat("has ", size, " bytes; the limit is ", limits_.member_bytes.bytes, " (",
                   limits_.member_bytes.name, ")"),
               size);
  check_limit("a member number", ++members_, limits_.members, "max_members");
  last_member_ = name;
  if (!ensure(size)) corrupt("the archive is truncated inside a member");
  member.data = {{block_.data, block_.data.get() + position_}, static_cast<size_t>(size)};
  position_ += static_cast<size_t>(size);
  to_skip_ = tar::padded(size) - size;
  if (extension_.sparse) member.data = expand(name, std::move(member.data));
  member.name = std::move(name);
  return true;
}

bool TarReader::next(TarMember& member) {
  if (ended_) return false;
  intact_ = false;
  skip(std::exchange(to_skip_, 0));
  extension_ = {};
  bool begun = false;  // seen an extended header
  for (tar::Header header; next_header(header);) {
    if (!begun) member.offset = begin_ = at();
    begun = false;
    begun_ = true;
    if (std::strchr("LKxXg", header.type) && header.type) {
      begun = header.type != 'g';
      extend(header);
    } else if (read_member(header, member)) {
      return intact_ = true;
    } else {
      extension_ = {};
    }
  }
  if (begun) corrupt("the archive ends after the extended header of a member");
  intact_ = true;
  return false;
}

}  // namespace etr::io

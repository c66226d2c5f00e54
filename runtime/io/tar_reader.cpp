#include "io/tar_reader.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "core/error.h"
#include "core/memory.h"

namespace etr::io {
namespace {

constexpr size_t kRecord = 512;
constexpr size_t kBlockBytes = 1 << 20;

// Fields of a ustar header: offset and length.
struct FieldAt {
  size_t offset, length;
};
constexpr FieldAt kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kMagic{257, 5},
    kPrefix{345, 155};
constexpr size_t kType = 156;

std::string text_field(const char* header, FieldAt f) {
  const char* begin = header + f.offset;
  return {begin, std::find(begin, begin + f.length, '\0')};
}

// Octal text, or GNU's base-256 (high bit of the first byte set). False when neither.
bool number_field(const char* header, FieldAt f, uint64_t& value) {
  const auto* p = reinterpret_cast<const unsigned char*>(header) + f.offset;
  value = 0;
  if (p[0] & 0x80) {
    for (size_t i = f.length - 8; i < f.length; ++i) value = value << 8 | p[i];
    return true;
  }
  bool any = false;
  for (size_t i = 0; i < f.length && p[i] != 0; ++i) {
    if (p[i] == ' ') continue;
    if (p[i] < '0' || p[i] > '7') return false;
    value = value << 3 | static_cast<uint64_t>(p[i] - '0');
    any = true;
  }
  return any;
}

bool checksum_matches(const char* header) {
  uint64_t expected = 0;
  if (!number_field(header, kChecksum, expected)) return false;
  // The field itself counts as blanks; summed apart, so that the long loop has no branch.
  uint32_t sum = 0;
  for (size_t i = 0; i < kRecord; ++i) sum += static_cast<unsigned char>(header[i]);
  for (size_t i = 0; i < kChecksum.length; ++i)
    sum += ' ' - static_cast<unsigned char>(header[kChecksum.offset + i]);
  return sum == expected;
}

uint64_t padded(uint64_t size) { return (size + kRecord - 1) / kRecord * kRecord; }

}  // namespace

TarReader::TarReader(std::unique_ptr<ByteStream> stream, std::string path, TarLimits limits)
    : stream_(std::move(stream)),
      path_(std::move(path)),
      limits_(limits),
      block_(stream_->mapped()) {
  whole_file_ = block_.data != nullptr;
}

void TarReader::corrupt(const std::string& why) const {
  fail(Code::corrupt_data, "'", path_, "': ", why, " at byte ", block_offset_ + position_,
       last_member_.empty() ? "" : " after member '" + last_member_ + "'");
}

void TarReader::beyond(const char* what, uint64_t found, uint64_t limit, const char* option) const {
  fail(Code::unsupported, "'", path_, "': ", what, " of ", found, " at byte ",
       block_offset_ + position_, "; the limit is ", limit, " (", option, ")");
}

bool TarReader::ensure(size_t size) {
  if (block_.size - position_ >= size) return true;
  if (whole_file_) return false;
  // A new block that begins with what is left of the old one; members of the old one keep it alive.
  const size_t left = block_.size - position_;
  const size_t capacity = std::max(kBlockBytes, size);
  const auto fresh = allocate_bytes(capacity);
  if (left > 0) std::memcpy(fresh.get(), block_.data.get() + position_, left);
  const size_t got = stream_->read({fresh.get() + left, capacity - left});
  block_offset_ += position_;
  position_ = 0;
  block_ = {fresh, left + got};
  return block_.size >= size;
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
  const uint64_t most = limits_.name_bytes + (1 << 16);  // pax headers hold more than the name
  if (size > most) beyond("an extended header", size, most, "max_name_bytes and some");
  if (!ensure(static_cast<size_t>(padded(size)))) corrupt("the archive is truncated");
  std::string text(here(), static_cast<size_t>(size));
  position_ += static_cast<size_t>(padded(size));
  return text;
}

// pax records are "LENGTH KEY=VALUE\n"; only the path matters here.
std::string TarReader::pax_path(const std::string& records) const {
  for (size_t at = 0; at < records.size();) {
    size_t length = 0;
    const auto [end, error] =
        std::from_chars(records.data() + at, records.data() + records.size(), length);
    if (error != std::errc() || length == 0 || at + length > records.size() || *end != ' ')
      corrupt("a damaged pax header");
    const size_t key = static_cast<size_t>(end + 1 - records.data());
    const std::string record = records.substr(key, at + length - key - 1);
    if (record.starts_with("path=")) return record.substr(5);
    at += length;
  }
  return "";
}

bool TarReader::next(TarMember& member) {
  std::string long_name;
  while (true) {
    if (!ensure(kRecord)) {
      // Archives end with two zero records; some writers leave them out.
      if (block_.size - position_ == 0) return false;
      corrupt("the archive is truncated inside a header");
    }
    const char* header = here();
    if (std::all_of(header, header + kRecord, [](char c) { return c == 0; })) return false;
    uint64_t size = 0;
    if (!checksum_matches(header)) corrupt("a header with a wrong checksum (not a tar archive?)");
    if (!number_field(header, kSize, size)) corrupt("a header with an unreadable size");
    if (size > limits_.member_bytes)
      beyond("a member", size, limits_.member_bytes, "max_member_bytes");
    std::string name = text_field(header, kName);
    if (std::memcmp(header + kMagic.offset, "ustar", 5) == 0) {
      const std::string prefix = text_field(header, kPrefix);
      if (!prefix.empty()) name = prefix + "/" + name;
    }
    const char type = header[kType];
    const uint64_t offset = block_offset_ + position_;
    position_ += kRecord;
    if (type == 'L') {
      long_name = read_text(size).c_str();  // stops at the terminating zero
    } else if (type == 'x') {
      long_name = pax_path(read_text(size));
    } else if (type == '0' || type == '\0') {
      member.name = long_name.empty() ? std::move(name) : std::move(long_name);
      if (member.name.size() > limits_.name_bytes)
        beyond("a name", member.name.size(), limits_.name_bytes, "max_name_bytes");
      if (++members_ > limits_.members)
        beyond("a member number", members_, limits_.members, "max_members");
      member.offset = offset;
      last_member_ = member.name;
      if (!ensure(static_cast<size_t>(size))) corrupt("the archive is truncated inside a member");
      member.data = {{block_.data, block_.data.get() + position_}, static_cast<size_t>(size)};
      position_ += static_cast<size_t>(size);
      // Padding that is missing at the very end is harmless.
      const auto padding = static_cast<size_t>(padded(size) - size);
      position_ += ensure(padding) ? padding : block_.size - position_;
      return true;
    } else {
      skip(padded(size));  // directories, links, global headers
      long_name.clear();
    }
  }
}

}  // namespace etr::io

#include "io/tar_format.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <utility>

namespace etr::io::tar {
namespace {

// A header field.
struct FieldAt {
  size_t offset, length;
};
constexpr FieldAt kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kPrefix{345, 155};
constexpr size_t kType = 156, kMagic = 257;
// Offsets in GNU's sparse headers: the map, its number of pairs, and the flag that more records
// follow.
constexpr size_t kMap = 386, kMapPairs = 4, kMapMore = 482, kPairs = 21, kMore = 504;
constexpr FieldAt kRealSize{483, 12};

constexpr uint64_t kLargest = uint64_t{1} << 62;  // keeps sums from overflowing

std::string text_field(const char* header, FieldAt f) {
  const char* begin = header + f.offset;
  return {begin, std::find(begin, begin + f.length, '\0')};
}

// Parses octal digits surrounded by blanks, or GNU's base-256 (0x80, then big-endian). Blanks alone
// are 0.
std::optional<uint64_t> number_field(const char* header, FieldAt f) {
  const auto* p = reinterpret_cast<const unsigned char*>(header) + f.offset;
  const auto* const end = p + f.length;
  uint64_t value = 0;
  if (*p == 0x80) {
    while (++p < end) {
      if (value >> 55) return std::nullopt;
      value = value << 8 | *p;
    }
    return value;
  }
  while (p < end && *p == ' ') ++p;
  for (; p < end && *p >= '0' && *p <= '7'; ++p) {
    if (value >> 60) return std::nullopt;
    value = value << 3 | static_cast<uint64_t>(*p - '0');
  }
  while (p < end && *p == ' ') ++p;
  return p == end || *p == 0 ? std::optional(value) : std::nullopt;
}

// Also accepts sums of signed bytes, which some writers produce.
bool checksum_matches(const char* header) {
  const auto expected = number_field(header, kChecksum);
  if (!expected) return false;
  // The checksum field itself counts as blanks; it is corrected separately to keep branches out of
  // the main loop.
  uint32_t sum = 0, high = 0;
  const auto* p = reinterpret_cast<const unsigned char*>(header);
  for (size_t i = 0; i < kRecord; ++i) {
    sum += p[i];
    high += p[i] >> 7;
  }
  for (size_t i = kChecksum.offset; i < kChecksum.offset + kChecksum.length; ++i) {
    sum += ' ' - uint32_t{p[i]};
    high -= p[i] >> 7;
  }
  return sum == *expected || sum - 256 * high == static_cast<uint32_t>(*expected);
}

std::optional<uint64_t> decimal(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > kLargest)
    return std::nullopt;
  return value;
}

bool decimal_into(std::string_view text, uint64_t& out) {
  const auto value = decimal(text);
  out = value.value_or(0);
  return value.has_value();
}

// Calls `use` with each key and value. Returns false if `use` does, or if the records are damaged.
template <typename Use>
bool each_record(std::string_view records, Use&& use) {
  while (!records.empty() && records[0] != '\0') {  // some writers pad with zeros
    size_t length = 0;
    const auto [end, error] =
        std::from_chars(records.data(), records.data() + records.size(), length);
    const auto head = static_cast<size_t>(end - records.data()) + 1;
    if (error != std::errc() || head >= length || length > records.size() || *end != ' ' ||
        records[length - 1] != '\n')
      return false;
    const std::string_view record = records.substr(head, length - head - 1);
    const size_t equals = record.find('=');
    if (equals == std::string_view::npos || equals == 0) return false;
    if (!use(record.substr(0, equals), record.substr(equals + 1))) return false;
    records.remove_prefix(length);
  }
  return true;
}

// "offset,size,offset,size,..."
bool parse_map_text(std::string_view text, Parts& parts) {
  parts.clear();
  bool is_size = false;
  while (true) {
    const size_t comma = text.find(',');
    const auto value = decimal(text.substr(0, comma));
    if (!value) return false;
    if (is_size)
      parts.back().size = *value;
    else
      parts.push_back({*value, 0});
    is_size = !is_size;
    if (comma == std::string_view::npos) return !is_size;
    text.remove_prefix(comma + 1);
  }
}

bool add_pairs(const char* at, size_t pairs, Parts& parts) {
  for (size_t i = 0; i < pairs && at[24 * i] != '\0'; ++i) {
    const auto offset = number_field(at, {24 * i, 12}), size = number_field(at, {24 * i + 12, 12});
    if (!offset || !size) return false;
    parts.push_back({*offset, *size});
  }
  return true;
}

}  // namespace

Header parse_header(const char* record) {
  Header out;
  if (!checksum_matches(record)) {
    out.problem = "a header with a wrong checksum";
    return out;
  }
  out.type = record[kType];
  const auto size = number_field(record, kSize);
  if (!size || *size > kLargest) {
    out.problem = "a header with an unreadable size";
    return out;
  }
  out.size = *size;
  out.name = text_field(record, kName);
  // Old GNU headers have a blank there and no prefix.
  if (std::memcmp(record + kMagic, "ustar", 6) == 0) {
    const std::string prefix = text_field(record, kPrefix);
    if (!prefix.empty()) out.name = prefix + "/" + out.name;
  }
  return out;
}

bool is_zero(const char* record) {
  return std::all_of(record, record + kRecord, [](char c) { return c == 0; });
}

const char* other_format(std::string_view bytes) {
  static constexpr std::pair<std::string_view, const char*> kMagics[] = {
      {"\x1f\x8b", "gzip data; its name must end in .tar.gz or .tgz"},
      {"\x28\xb5\x2f\xfd", "zstd data; its name must end in .tar.zst or .tzst"},
      {"BZh", "bzip2 data, which is not supported; compress it with zstd or gzip"},
      {"\xfd"
       "7zXZ",
       "xz data, which is not supported; compress it with zstd or gzip"},
      {"PK\x03\x04", "a zip archive, which is not supported; make a tar archive of it"}};
  for (const auto& [magic, name] : kMagics)
    if (bytes.starts_with(magic)) return name;
  return nullptr;
}

bool parse_pax(std::string_view records, Extension& out, std::string& problem) {
  std::string_view major, minor;
  bool numbers = true;
  const bool whole = each_record(records, [&](std::string_view key, std::string_view value) {
    if (key == "path") {
      out.name = value;
    } else if (key == "size") {
      out.has_size = decimal_into(value, out.size);
      numbers = numbers && out.has_size;
    } else if (key == "GNU.sparse.name") {
      out.sparse_name = value;
    } else if (key == "GNU.sparse.size" || key == "GNU.sparse.realsize") {
      out.sparse = true;
      numbers = decimal_into(value, out.real_size) && numbers;
    } else if (key == "GNU.sparse.map") {
      numbers = parse_map_text(value, out.parts) && numbers;
    } else if (key == "GNU.sparse.offset") {
      out.parts.emplace_back();
      numbers = decimal_into(value, out.parts.back().offset) && numbers;
    } else if (key == "GNU.sparse.numbytes") {
      numbers = numbers && !out.parts.empty() && decimal_into(value, out.parts.back().size);
    } else if (key == "GNU.sparse.major") {
      major = value;
    } else if (key == "GNU.sparse.minor") {
      minor = value;
    }
    return true;
  });
  if (!major.empty() && (major != "1" || minor != "0"))
    problem = "a sparse file of version " + std::string(major) + "." + std::string(minor) +
              "; 0.0, 0.1 and 1.0 are known";
  out.map_in_data = out.map_in_data || !major.empty();
  return whole && numbers;
}

std::string refused_global_key(std::string_view records) {
  std::string refused;
  each_record(records, [&](std::string_view key, std::string_view) {
    if (key == "path" || key == "size" || key.starts_with("GNU.sparse.")) refused = key;
    return refused.empty();
  });
  return refused;
}

bool parse_gnu_map(const char* header, Parts& parts, uint64_t& real_size, bool& more) {
  const auto size = number_field(header, kRealSize);
  real_size = size.value_or(0);
  more = header[kMapMore] != 0;
  return size && add_pairs(header + kMap, kMapPairs, parts);
}

bool parse_gnu_map_record(const char* record, Parts& parts, bool& more) {
  more = record[kMore] != 0;
  return add_pairs(record, kPairs, parts);
}

bool parse_map_in_data(std::string_view data, Parts& parts, size_t& used) {
  size_t at = 0;
  bool ended = false;
  const auto line = [&]() -> std::optional<uint64_t> {
    const size_t end = data.find('\n', at);
    ended = ended || end == std::string_view::npos;
    if (ended) return std::nullopt;
    const size_t begin = std::exchange(at, end + 1);
    return decimal(data.substr(begin, end - begin));
  };
  used = 0;
  parts.clear();
  const auto count = line();
  if (count && *count > kMostParts) return false;
  for (uint64_t i = 0; count && i < *count; ++i) {
    const auto offset = line(), size = line();
    if (!offset || !size) return ended;
    parts.push_back({*offset, *size});
  }
  if (!count) return ended;
  used = padded(at);
  return true;
}

bool parts_fit(const Parts& parts, uint64_t real_size, uint64_t stored) {
  uint64_t end = 0, sum = 0;
  for (const Part& part : parts) {
    if (part.offset < end || part.offset > real_size || part.size > real_size - part.offset)
      return false;
    end = part.offset + part.size;
    sum += part.size;
  }
  return sum == stored;
}

}  // namespace etr::io::tar

// Parses the records of a tar archive: headers (v7, ustar, GNU), extended headers (pax) and sparse
// file maps.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace etr::io::tar {

constexpr size_t kRecord = 512;

constexpr uint64_t padded(uint64_t size) { return (size + kRecord - 1) / kRecord * kRecord; }

// A parsed header record. If `problem` is set, it says why the record is unusable, and the other
// members are meaningless.
struct Header {
  std::string name;
  uint64_t size = 0;
  char type = '0';
  const char* problem = nullptr;
};
Header parse_header(const char* record);

bool is_zero(const char* record);

// Names the format of a file that is not an archive by its first bytes ("gzip data", ...), or
// returns nullptr if unknown.
const char* other_format(std::string_view bytes);

// A stored part of a sparse file. The gaps between parts are zeros.
struct Part {
  uint64_t offset = 0, size = 0;
};
using Parts = std::vector<Part>;
constexpr size_t kMostParts = size_t{1} << 20;  // of a sparse file; a map of more is refused

// The properties of the next member that extended headers give.
struct Extension {
  std::string name, sparse_name;
  bool has_size = false, sparse = false;
  bool map_in_data = false;  // sparse format 1.0: the map precedes the parts
  uint64_t size = 0, real_size = 0;
  Parts parts;
};

// Parses the records "LENGTH KEY=VALUE\n" of a pax header. Returns false if they are damaged. Sets
// `problem` if a record asks for something unsupported.
bool parse_pax(std::string_view records, Extension& out, std::string& problem);

// The key of a global pax header that would affect every member, which is not supported; "" if
// there is none.
std::string refused_global_key(std::string_view records);

// Parse GNU's sparse map, from the header of type 'S' and from the records after it. Set `more` if
// another record follows. Return false if the map is damaged.
bool parse_gnu_map(const char* header, Parts& parts, uint64_t& real_size, bool& more);
bool parse_gnu_map_record(const char* record, Parts& parts, bool& more);

// Parses the map at the start of a member's data (sparse format 1.0). Sets `used` to its padded
// size, or to 0 if `data` is too short. Returns false if the map is damaged.
bool parse_map_in_data(std::string_view data, Parts& parts, size_t& used);

// Whether the parts are in order, do not overlap, lie within `real_size` and hold `stored` bytes in
// total.
bool parts_fit(const Parts& parts, uint64_t real_size, uint64_t stored);

}  // namespace etr::io::tar

// What the records of a tar archive say: headers (v7, ustar, GNU), extended headers (pax), maps of sparse files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace etr::io::tar {

constexpr size_t kRecord = 512;

constexpr uint64_t padded(uint64_t size) { return (size + kRecord - 1) / kRecord * kRecord; }

// Of one header record. `problem` says why it cannot be used; then the rest means nothing.
struct Header {
  std::string name;
  uint64_t size = 0;
  char type = '0';
  const char* problem = nullptr;
};
Header parse_header(const char* record);

bool is_zero(const char* record);

// What the first bytes of a file are that is no archive: "gzip data", ...; nullptr where that is not known.
const char* other_format(std::string_view bytes);

// A part of a sparse file that is stored; between the parts are zeros.
struct Part {
  uint64_t offset = 0, size = 0;
};
using Parts = std::vector<Part>;

// What extended headers say about the member after them.
struct Extension {
  std::string name, sparse_name;
  bool has_size = false, sparse = false;
  bool map_in_data = false;  // sparse version 1.0: the map comes before the parts
  uint64_t size = 0, real_size = 0;
  Parts parts;
};

// Takes over the records "LENGTH KEY=VALUE\n" of a pax header. False where they are damaged. `problem` is set to what cannot be
// followed, if there is such.
bool parse_pax(std::string_view records, Extension& out, std::string& problem);

// A key of a global pax header that would have to hold for every member; "" where there is none.
std::string refused_global_key(std::string_view records);

// GNU's sparse map: of the header of type 'S', and of the records after it. Sets `more` where another follows. False where it is
// damaged.
bool parse_gnu_map(const char* header, Parts& parts, uint64_t& real_size, bool& more);
bool parse_gnu_map_record(const char* record, Parts& parts, bool& more);

// The map at the begin of a member's data, version 1.0. Sets `used` to its bytes with padding; 0 where `data` is too short for it.
// False where it is damaged.
bool parse_map_in_data(std::string_view data, Parts& parts, size_t& used);

// Whether the parts lie in order, without overlap, within `real_size`, and hold `stored` bytes.
bool parts_fit(const Parts& parts, uint64_t real_size, uint64_t stored);

}  // namespace etr::io::tar

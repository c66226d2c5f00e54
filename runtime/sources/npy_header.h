// The header of a .npy file: a Python dict of three entries, as NumPy writes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace etr::sources {

struct NpyHeader {
  std::string type;         // 'descr' as it stands there, with its quotes or brackets
  bool structured = false;  // a type of several members
  bool fortran_order = false;
  std::vector<uint64_t> shape;
};

// Takes nothing but {'descr': TYPE, 'fortran_order': True or False, 'shape': (N, ...)}, the entries in any order, and blanks
// after it. Throws Error(corrupt_data) that names `path` and quotes where the text departs from that.
NpyHeader parse_npy_header(std::string_view text, const std::string& path);

// For errors: at most 60 characters, those that no terminal should get as escapes (\x1b).
std::string escaped(std::string_view text);

}  // namespace etr::sources

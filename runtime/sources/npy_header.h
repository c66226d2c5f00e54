// The header of a .npy file, a Python dict with three entries as written by NumPy.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace etr::sources {

struct NpyHeader {
  std::string type;         // the value of 'descr' verbatim, with quotes or brackets
  bool structured = false;  // a structured type
  bool fortran_order = false;
  std::vector<uint64_t> shape;
};

// Parses {'descr': TYPE, 'fortran_order': True or False, 'shape': (N, ...)}, with the entries in
// any order and blanks after it, and nothing else. Throws Error(corrupt_data) that names `path` and
// quotes the text at fault.
NpyHeader parse_npy_header(std::string_view text, const std::string& path);

// For errors: at most 60 characters, with those unsafe for terminals as escapes (\x1b).
std::string escaped(std::string_view text);

}  // namespace etr::sources

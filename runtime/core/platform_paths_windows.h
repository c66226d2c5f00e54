// Included before all else on Windows: paths in char are UTF-8 there, too. Before GCC 13,
// std::filesystem::path takes them for text of the C library's locale, which has no UTF-8 unless
// the program asks for it, while path::string() gives UTF-8. This replaces the conversion by that
// of char8_t. To be removed with GCC 12.
#pragma once

#if __GNUC__ < 13

#include <filesystem>

#ifndef __GLIBCXX__
#error "written for libstdc++, as mingw-w64 has it"
#endif

template <>
inline auto std::filesystem::path::_S_convert<char>(const char* first, const char* last) {
  return __detail::__wstr_from_utf8(std::string_view(first, static_cast<size_t>(last - first)));
}

#endif

// Converts external text to UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace etr {

// Returns `text`, with each byte that is NUL or not part of valid UTF-8 replaced by \xE9 notation.
// Names that leave this library (in JSON, messages and field names) are UTF-8, whatever bytes a
// file uses.
std::string as_utf8(std::string_view text);

// Returns whether `text` is valid UTF-8 without NUL.
inline bool is_utf8(std::string_view text) { return as_utf8(text) == text; }

// The length in bytes of the first character of `text`, which must not be empty, or 0 if it is
// invalid. Follows table 3-7 of the Unicode standard: no overlong forms, no surrogates, nothing
// above U+10FFFF.
size_t character_length(std::string_view text);

}  // namespace etr

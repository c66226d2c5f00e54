// Text that others wrote, as UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace etr {

// The text itself where it is valid UTF-8 without zeros; else with each byte that is not written as \xE9. Names that come out of
// this library (in JSON, in messages, of fields) are UTF-8, whatever a file calls its parts.
std::string as_utf8(std::string_view text);

// Bytes of the character that `text`, which is not empty, begins with; 0 where it begins with none. By the Unicode standard's
// table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF.
size_t character_length(std::string_view text);

}  // namespace etr

// Escaping of text for XML and HTML.
#pragma once

#include <string>
#include <string_view>

namespace etr {

// Escapes text for use as element content or in a quoted attribute (either kind of quote).
// Characters that XML forbids become U+FFFD. Bytes that are not valid UTF-8 are written as \xE9.
std::string escape_markup(std::string_view text);

}  // namespace etr

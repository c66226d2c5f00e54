// Text within XML and HTML.
#pragma once

#include <string>
#include <string_view>

namespace etr {

// As the text of an element, or of an attribute within quotes of either kind. Characters that XML forbids become U+FFFD; bytes
// that are no UTF-8 are written as \xE9.
std::string escape_markup(std::string_view text);

}  // namespace etr

// Text that others wrote, as UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace etr {

// The text itself where it is valid UTF-8 without zeros; else with each byte that is not written as \xE9. Names that come out of
// this library (in JSON, in messages, of fields) are UTF-8, whatever a file calls its parts.
std::string as_utf8(std::string_view text);

}  // namespace etr

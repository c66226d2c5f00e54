// printf() whose numbers do not follow the locale of the program, in which 0.5 may be "0,5".
#pragma once

#include <string>

namespace etr {

// Formats as std::sprintf() does in the locale "C", at any length.
[[gnu::format(printf, 1, 2)]] std::string format_text(const char* format, ...);

}  // namespace etr

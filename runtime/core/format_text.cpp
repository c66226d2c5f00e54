#include "core/format_text.h"

#include <cstdarg>

#include "core/platform.h"

namespace etr {

std::string format_text(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::string out(160, '\0');
  for (bool fits = false; !fits;) {
    std::va_list copy;
    va_copy(copy, arguments);
    const int length = platform::print_in_c_locale(out.data(), out.size() + 1, format, copy);
    va_end(copy);
    fits = length <= static_cast<int>(out.size());
    out.resize(length < 0 ? 0 : static_cast<size_t>(length));
  }
  va_end(arguments);
  return out;
}

}  // namespace etr

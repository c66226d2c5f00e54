#include "core/number_text.h"

#include <cmath>

#include "core/format_text.h"

namespace etr {

std::string number_text(double value, int digits) {
  std::string text = format_text("%.*f", digits, std::abs(value));
  if (const size_t dot = text.find('.'); dot != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.back() == '.') text.pop_back();
  }
  size_t end = text.find('.');
  if (end == std::string::npos) end = text.size();
  for (size_t i = end; i > 3; i -= 3) text.insert(i - 3, ",");
  return (value < 0 && text != "0" ? "-" : "") + text;
}

}  // namespace etr

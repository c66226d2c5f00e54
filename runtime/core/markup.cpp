#include "core/markup.h"

#include "core/utf8.h"

namespace etr {
namespace {

bool is_forbidden(char c) {
  return static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n' && c != '\r';
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string out;
  for (const char c : as_utf8(text)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '\'': out += "&#39;"; break;
      case '"': out += "&quot;"; break;
      default:
        if (is_forbidden(c))
          out += "\uFFFD";
        else
          out += c;
    }
  }
  return out;
}

}  // namespace etr

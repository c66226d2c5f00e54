#include "core/utf8.h"

namespace etr {

size_t character_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const size_t length = first < 0xC2   ? 0
                        : first < 0xE0 ? 2
                        : first < 0xF0 ? 3
                        : first < 0xF5 ? 4
                                       : 0;
  if (length == 0 || text.size() < length) return 0;
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  return length;
}

std::string as_utf8(std::string_view text) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    if (const size_t length = character_length(text); length > 0 && text[0] != 0) {
      out += text.substr(0, length);
      text.remove_prefix(length);
      continue;
    }
    const auto byte = static_cast<unsigned char>(text[0]);
    out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace etr

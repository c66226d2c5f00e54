#include "plot/text.h"

#include <cstdint>

#include "core/format_text.h"
#include "core/markup.h"

namespace etr::plot {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// Widths in hundredths of the font size, for a wide font (DejaVu Sans), rounded up. Whole numbers,
// so that widths add up exactly.
int64_t byte_width(char c) {
  if (continues(c)) return 0;
  if (static_cast<unsigned char>(c) >= 0xe3) return 100;  // of East Asia, from U+3000 on
  if (static_cast<unsigned char>(c) >= 0x80) return 66;
  if (std::string_view("iljI|.,:;'!").find(c) != std::string_view::npos) return 34;
  if (std::string_view("frt()[]{} -\"").find(c) != std::string_view::npos) return 42;
  if (std::string_view("mwMW%@").find(c) != std::string_view::npos) return 98;
  return c >= 'A' && c <= 'Z' ? 72 : 64;
}

int64_t hundredths(std::string_view text) {
  int64_t width = 0;
  for (const char c : text) width += byte_width(c);
  return width;
}

double in_pixels(int64_t hundredths, double size) {
  return static_cast<double>(hundredths) / 100 * size;
}

}  // namespace

double text_width(std::string_view text, double size) { return in_pixels(hundredths(text), size); }

size_t fitting_bytes(std::string_view text, double width, double size) {
  int64_t so_far = 0;
  for (size_t i = 0; i < text.size(); ++i)
    if (so_far += byte_width(text[i]); in_pixels(so_far, size) > width) return i;
  return text.size();
}

std::string shortened(const std::string& text, double width, double size) {
  if (text_width(text, size) <= width) return text;
  const auto width_at = [&](size_t place) { return byte_width(text[place]); };
  size_t head = text.size() / 2, tail = head;
  int64_t left = hundredths(text) + hundredths("…");
  do {
    if (head > 0) left -= width_at(--head);
    while (head > 0 && continues(text[head])) left -= width_at(--head);
    if (tail < text.size()) left -= width_at(tail++);
    while (tail < text.size() && continues(text[tail])) ++tail;
  } while (in_pixels(left, size) > width && (head > 0 || tail < text.size()));
  return text.substr(0, head) + "…" + text.substr(tail);
}

std::string markup_of(const std::string& text) {
  constexpr double kMostWidth = 5000;
  return escape_markup(shortened(text, kMostWidth));
}

std::string coordinate(double value) {
  std::string out = format_text("%.1f", value);
  if (out.ends_with(".0")) out.resize(out.size() - 2);
  return out == "-0" ? "0" : out;
}

std::string csv_field(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

}  // namespace etr::plot

#include "plot/text.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>

namespace etr::plot {
namespace {

// In hundredths of the font's size, of a wide font (DejaVu Sans), rounded up.
double character_width(char c) {
  if (std::string_view("iljI|.,:;'!").find(c) != std::string_view::npos) return 0.34;
  if (std::string_view("frt()[]{} -\"").find(c) != std::string_view::npos) return 0.42;
  if (std::string_view("mwMW%@").find(c) != std::string_view::npos) return 0.98;
  if (c >= 'A' && c <= 'Z') return 0.72;
  return 0.64;
}

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

}  // namespace

double text_width(std::string_view text, double size) {
  double width = 0;
  for (const char c : text)
    if (!continues(c)) width += static_cast<unsigned char>(c) < 0x80 ? character_width(c) : 0.66;
  return width * size;
}

std::string shortened(const std::string& text, double width, double size) {
  if (text_width(text, size) <= width) return text;
  size_t head = text.size() / 2, tail = head;
  std::string out;
  do {
    if (head > 0) --head;
    while (head > 0 && continues(text[head])) --head;
    if (tail < text.size()) ++tail;
    while (tail < text.size() && continues(text[tail])) ++tail;
    out = text.substr(0, head) + "…" + text.substr(tail);
  } while (text_width(out, size) > width && (head > 0 || tail < text.size()));
  return out;
}

std::string coordinate(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1f", value);
  std::string out = text;
  if (out.ends_with(".0")) out.resize(out.size() - 2);
  return out == "-0" ? "0" : out;
}

std::string exact_number(double value) {
  if (std::isnan(value)) return "";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
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

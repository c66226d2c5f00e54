#include "plot/wrap.h"

#include <algorithm>
#include <cstddef>

#include "plot/text.h"

namespace etr::plot {
namespace {

bool begins_letter(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

// Breaks a word that is too wide, with at least three letters on either side.
void add_broken(std::string_view word, double width, std::vector<std::string>& out) {
  constexpr ptrdiff_t kLeast = 3;
  const double beside_dash = width - text_width("-");
  size_t begin = word.size();  // of the last letters
  for (ptrdiff_t letters = 0; begin > 0 && letters < kLeast;)
    letters += begins_letter(word[--begin]);
  const size_t last_bytes = word.size() - begin;
  while (fitting_bytes(word, width) < word.size()) {
    const std::string_view part =
        word.substr(0, std::min(fitting_bytes(word, beside_dash), word.size() - last_bytes));
    if (std::count_if(part.begin(), part.end(), begins_letter) < kLeast) break;
    out.push_back(std::string(part) + "-");
    word.remove_prefix(part.size());
  }
  out.emplace_back(word);
}

// Splits a text into words. Parts between commas stay together if they fit.
std::vector<std::string> words_of(const std::string& text, double width) {
  std::vector<std::string> out;
  std::string part;
  const auto take = [&] {
    const bool whole = text_width(part) <= width;
    for (size_t begin = 0; begin < part.size();) {
      const size_t end = whole ? part.size() : std::min(part.find(' ', begin), part.size());
      add_broken(std::string_view(part).substr(begin, end - begin), width, out);
      begin = end + 1;
    }
    part.clear();
  };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ' && !part.empty() && part.back() == ',')
      take();
    else
      part += text[i];
  }
  take();
  return out;
}

}  // namespace

std::vector<std::string> wrapped(const std::string& text, double width, size_t most) {
  std::vector<std::string> lines{""};
  for (const std::string& word : words_of(text, width)) {
    const std::string longer = lines.back().empty() ? word : lines.back() + " " + word;
    if (text_width(longer) <= width || lines.back().empty())
      lines.back() = longer;
    else
      lines.push_back(word);
  }
  // The rest goes into the last line, shortened.
  for (size_t i = most; i < lines.size(); ++i) lines[most - 1] += " " + lines[i];
  if (lines.size() > most) lines.resize(most);
  for (std::string& line : lines) line = shortened(line, width);
  return lines;
}

}  // namespace etr::plot

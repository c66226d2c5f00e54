// Tables, numbers and clocks for the terminal.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace cli {

// Formats like printf(), up to 95 characters.
template <typename... Values>
std::string text_of(const char* format, Values... values) {
  char text[96];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

// "53,760", "9.1"
std::string number_text(double value);

// Names a study's clock: "fresh examples" for "fresh", others by their own names.
std::string clock_name(const std::string& clock);

// Prints one line for each row, with the first column left-aligned and the others right-aligned.
void print_rows(const std::vector<std::vector<std::string>>& rows);

}  // namespace cli

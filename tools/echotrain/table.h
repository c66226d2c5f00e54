// Tables, numbers and clocks for the terminal.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

namespace cli {

// As printf() has it, up to 95 characters.
template <typename... Values>
std::string text_of(const char* format, Values... values) {
  char text[96];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

// "53,760", "9.1"
std::string number_text(double value);

// What a clock of studies counts: "fresh examples" for "fresh", the others by their names.
std::string clock_name(const std::string& clock);

// One line for each row; the first column begins at the left, the others end at the right.
void print_rows(const std::vector<std::vector<std::string>>& rows);

}  // namespace cli

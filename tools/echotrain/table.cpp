#include "table.h"

#include <algorithm>
#include <cmath>

namespace cli {

std::string number_text(double value) {
  const bool whole = value == std::floor(value) || std::fabs(value) >= 1000;
  if (!whole || std::fabs(value) >= 1e15) return text_of("%.4g", value);
  std::string digits = text_of("%.0f", std::fabs(value));
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return (value < 0 ? "-" : "") + digits;
}

std::string clock_name(const std::string& clock) {
  return clock == "fresh" ? "fresh examples" : clock;
}

void print_rows(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  for (const auto& row : rows) {
    std::string line = row[0] + std::string(widths[0] - row[0].size(), ' ');
    for (size_t i = 1; i < row.size(); ++i)
      line += "  " + std::string(widths[i] - row[i].size(), ' ') + row[i];
    std::printf("%s\n", line.c_str());
  }
}

}  // namespace cli

#include "sources/class_names.h"

#include <set>
#include <span>

#include "core/error.h"
#include "core/platform.h"
#include "core/text.h"

namespace etr::sources {

std::vector<std::string> read_class_names(const std::string& path) {
  const std::string text = platform::read_document(path);
  std::vector<std::string> out;
  std::set<std::string_view> seen;
  auto lines = split(std::string_view(text), '\n');
  if (lines.back().empty()) lines.pop_back();
  for (std::string_view line : lines) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || !seen.insert(line).second)
      fail(Code::corrupt_data, "'", path, "' line ", out.size() + 1, ": ",
           line.empty() ? "an empty line" : cat("the class '", line, "' is listed twice"));
    out.emplace_back(line);
  }
  return out;
}

void check_class_names(const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (name.find_first_of("\r\n") != std::string::npos)
      fail(Code::invalid_argument, "the class '", name, "' has a line break in its name");
}

void write_class_names(const std::string& path, const std::vector<std::string>& names) {
  check_class_names(names);
  std::string text;
  for (const std::string& name : names) text += name + "\n";
  platform::write_file_atomic(path, std::as_bytes(std::span(text)));
}

}  // namespace etr::sources

#include <algorithm>
#include <filesystem>
#include <regex>

#include "core/error.h"
#include "core/platform_pattern.h"

namespace etr::platform {
namespace {

namespace fs = std::filesystem;

constexpr const char* kWildcards = "*?[";

std::string expression_of(const std::string& pattern) {
  std::string out;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    const size_t close = c == '[' ? pattern.find(']', i + 2) : std::string::npos;
    if (c == '*') {
      out += "[^/]*";
    } else if (c == '?') {
      out += "[^/]";
    } else if (close != std::string::npos) {
      std::string set = pattern.substr(i, close - i + 1);
      if (set[1] == '!') set[1] = '^';
      out += set;
      i = close;
    } else {
      if (std::string("\\^$.|+()[]{}").find(c) != std::string::npos) out += '\\';
      out += c;
    }
  }
  return out;
}

// Names of a folder that match one part of a path. A file in the place of a folder has none.
std::vector<std::string> entries(const std::string& folder, const std::string& part) {
  const std::regex expression(expression_of(part));
  std::vector<std::string> out;
  std::error_code error;
  for (const auto& [name, type] : list_folder(folder.empty() ? "." : folder, error)) {
    const bool hidden = name.starts_with('.') && !part.starts_with('.');
    if (!hidden && std::regex_match(name, expression)) out.push_back(folder + name);
  }
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    fail(Code::io, "cannot list '", folder, "': ", error.message());
  return out;
}

}  // namespace

bool matches_pattern(const std::string& name, const std::string& pattern) {
  return std::regex_match(name, std::regex(expression_of(pattern)));
}

std::vector<std::string> matching_paths(const std::string& asked) {
  std::string pattern = asked;
  std::replace(pattern.begin(), pattern.end(), '\\', '/');
  std::vector<std::string> found{""};
  for (size_t begin = 0; begin < pattern.size();) {
    const size_t slash = std::min(pattern.find('/', begin), pattern.size());
    const std::string part = pattern.substr(begin, slash - begin);
    const char* const separator = slash < pattern.size() ? "/" : "";
    std::vector<std::string> next;
    for (const std::string& folder : found) {
      if (part.find_first_of(kWildcards) == std::string::npos)
        next.push_back(folder + part + separator);
      else
        for (const std::string& entry : entries(folder, part)) next.push_back(entry + separator);
    }
    found = std::move(next);
    begin = slash + 1;
  }
  std::error_code error;
  std::erase_if(found, [&](const std::string& path) { return !fs::exists(path, error); });
  for (std::string& path : found)
    if (fs::is_directory(path, error) && !path.ends_with('/')) path += '/';
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace etr::platform

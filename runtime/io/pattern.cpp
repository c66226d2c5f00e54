#include "io/pattern.h"

#include <algorithm>
#include <cctype>

#include "core/error.h"
#include "core/platform_files.h"
#include "core/platform_pattern.h"
#include "io/remote_file.h"
#include "io/s3.h"

namespace etr::io {
namespace {

constexpr size_t kMaxNames = 1'000'000;
constexpr size_t kMaxBytes = size_t{1} << 28;  // of all names
constexpr auto kMaxGroups = 64;                // each is a level of expand_braces()

bool is_number(const std::string& text) {
  return !text.empty() && text.size() <= 9 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

std::vector<std::string> numeric_range(const std::string& first, const std::string& last) {
  const long a = std::stol(first), b = std::stol(last);
  if (b < a || static_cast<size_t>(b - a) >= kMaxNames)
    fail(Code::invalid_argument, "the range {", first, "..", last, "} is empty or too long");
  std::vector<std::string> out;
  for (long i = a; i <= b; ++i) {
    std::string number = std::to_string(i);
    if (number.size() < first.size()) number.insert(0, first.size() - number.size(), '0');
    out.push_back(std::move(number));
  }
  return out;
}

std::vector<std::string> alternatives(const std::string& inside) {
  const size_t dots = inside.find("..");
  if (dots != std::string::npos && is_number(inside.substr(0, dots)) &&
      is_number(inside.substr(dots + 2)))
    return numeric_range(inside.substr(0, dots), inside.substr(dots + 2));
  std::vector<std::string> out;
  size_t begin = 0;
  for (size_t comma; (comma = inside.find(',', begin)) != std::string::npos; begin = comma + 1)
    out.push_back(inside.substr(begin, comma - begin));
  out.push_back(inside.substr(begin));
  return out;
}

std::string excerpt(const std::string& pattern) {
  return pattern.size() <= 200 ? pattern : pattern.substr(0, 200) + "...";
}

std::vector<std::string> expand_braces(const std::string& pattern) {
  const size_t open = pattern.find('{');
  if (open == std::string::npos) {
    if (pattern.find('}') != std::string::npos)
      fail(Code::invalid_argument, "'", pattern, "' has a '}' without a '{'");
    return {pattern};
  }
  const size_t close = pattern.find('}', open);
  if (close == std::string::npos)
    fail(Code::invalid_argument, "'", pattern, "' has a '{' without a '}'");
  std::vector<std::string> out;
  size_t bytes = 0;
  const auto tails = expand_braces(pattern.substr(close + 1));
  for (const std::string& choice : alternatives(pattern.substr(open + 1, close - open - 1)))
    for (const std::string& tail : tails) {
      bytes += open + choice.size() + tail.size();
      if (out.size() >= kMaxNames || bytes > kMaxBytes)
        fail(Code::invalid_argument, "'", excerpt(pattern), "' stands for too many files; at most ",
             kMaxNames, " names of ", kMaxBytes, " bytes in all are allowed");
      out.push_back(pattern.substr(0, open) + choice + tail);
    }
  return out;
}

// Appends matching local files, sorted. Skips folders that a glob matches.
void expand_globs(const std::string& name, const std::string& pattern,
                  std::vector<std::string>& out) {
  const std::vector<std::string> matches = platform::matching_paths(name);
  const bool has_glob = name.find_first_of("*?[") != std::string::npos;
  const size_t before = out.size();
  for (const std::string& path : matches)
    if (!has_glob || !path.ends_with('/')) out.push_back(path);
  if (out.size() == before)
    fail(Code::not_found, matches.empty() ? "no file matches '" : "only folders match '", name, "'",
         name == pattern ? "" : " (of the pattern '" + pattern + "')",
         matches.empty() ? platform::missing_hint(name) : "");
}

}  // namespace

std::vector<std::string> expand_pattern(const std::string& pattern, const RemoteOptions& remote) {
  const auto groups = std::count(pattern.begin(), pattern.end(), '{');
  if (groups > kMaxGroups)
    fail(Code::invalid_argument, "'", excerpt(pattern), "' has ", groups,
         " groups in braces; at most ", kMaxGroups, " are allowed");
  std::vector<std::string> out;
  for (const std::string& name : expand_braces(pattern)) {
    if (is_remote(name)) {
      const bool has_glob = name.find_first_of("*?[") != std::string::npos;
      if (has_glob && name.starts_with("s3://"))
        for (std::string& object : s3_list(name, remote)) out.push_back(std::move(object));
      else if (name.find('*') != std::string::npos)
        fail(Code::invalid_argument, "'", name,
             "': web servers have no listings; name the files by braces, {000..009}");
      else
        out.push_back(name);
      continue;
    }
    expand_globs(name, pattern, out);
  }
  return out;
}

}  // namespace etr::io

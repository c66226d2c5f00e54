#include "server/options.h"

#include <map>
#include <sstream>

namespace etr::server {
namespace {

std::map<std::string, std::string> values_in(const std::string& terms) {
  std::map<std::string, std::string> out;
  std::istringstream lines(terms);
  lines.exceptions(std::ios::badbit);  // otherwise a lack of memory would look like the end
  for (std::string name, value; lines >> name && std::getline(lines >> std::ws, value);)
    out[name] = value;
  return out;
}

}  // namespace

std::optional<Difference> difference(const std::string& one, const std::string& other) {
  constexpr const char* kNone = "(none)";
  const auto ours = values_in(one), theirs = values_in(other);
  for (const auto& [name, value] : ours)
    if (const auto found = theirs.find(name); found == theirs.end() || found->second != value)
      return Difference{name, value, found == theirs.end() ? kNone : found->second};
  for (const auto& [name, value] : theirs)
    if (!ours.contains(name)) return Difference{name, kNone, value};
  return std::nullopt;
}

}  // namespace etr::server

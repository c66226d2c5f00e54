#include "study/labels.h"

#include <algorithm>
#include <vector>

#include "core/json.h"
#include "core/label_text.h"

namespace etr::study {

std::string label_key(const Json& labels) {
  std::vector<std::string> parts;
  for (const auto& [name, value] : labels.items()) parts.push_back(Json{{name, value}}.dump());
  std::sort(parts.begin(), parts.end());
  std::string out;
  for (const std::string& part : parts) out += part;
  return out;
}

std::string shown_key(const Json& labels) {
  Json shown = Json::object();
  for (const auto& [name, value] : labels.items()) shown[name] = label_text(value);
  return label_key(shown);
}

bool has_labels(const Json& labels, const Json& wanted) {
  return std::all_of(wanted.items().begin(), wanted.items().end(), [&](const auto& entry) {
    const auto found = labels.find(entry.key());
    return found != labels.end() && *found == entry.value();
  });
}

}  // namespace etr::study

// The labels of conditions: names with a text or a number each.
#pragma once

#include <string>

#include "core/json_fwd.h"

namespace etr::study {

// One text for the same labels in any order.
std::string label_key(const Json& labels);

// The same of labels that look alike, such as 1 and "1".
std::string shown_key(const Json& labels);

// Whether a condition has all of these labels, with these values.
bool has_labels(const Json& labels, const Json& wanted);

// As the condition's name, reports and "${label}" have it: "none", "0.1", "100000".
std::string label_text(const Json& value);

// "variant=none, factor=1"
std::string labels_text(const Json& labels);

}  // namespace etr::study

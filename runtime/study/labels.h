// The labels of conditions: names, each with a text or a number.
#pragma once

#include <string>

#include "core/json_fwd.h"

namespace etr::study {

// Returns the same text for the same labels in any order.
std::string label_key(const Json& labels);

// The same, but labels that look alike, such as 1 and "1", have the same text.
std::string shown_key(const Json& labels);

// Returns whether a condition has all of these labels with these values.
bool has_labels(const Json& labels, const Json& wanted);

// Returns a value as names of conditions, reports and "${label}" show it: "none", "0.1", "100000".
std::string label_text(const Json& value);

// "variant=none, factor=1"
std::string labels_text(const Json& labels);

}  // namespace etr::study

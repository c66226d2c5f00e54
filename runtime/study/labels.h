// The labels of conditions: names, each with a text or a number. core/label_text.h shows them.
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

}  // namespace etr::study

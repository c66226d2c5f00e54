// Text for drawings and tables.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace etr::plot {

// Estimates the width of a text in a common sans-serif font of that size, rather too wide than too
// narrow.
double text_width(std::string_view text, double size = 12);

// Returns how many leading bytes of the text fit into the width.
size_t fitting_bytes(std::string_view text, double width, double size = 12);

// Returns the text, or its beginning and end around "…" if it is wider.
std::string shortened(const std::string& text, double width, double size = 12);

// Returns markup for an unwrapped text, such as a tooltip; cut to about 700 characters.
std::string markup_of(const std::string& text);

// Formats a coordinate with at most one decimal.
std::string coordinate(double value);

// Returns a field of a CSV file (RFC 4180), quoted if necessary.
std::string csv_field(std::string_view text);

}  // namespace etr::plot

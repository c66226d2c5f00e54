// Text of drawings and tables.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace etr::plot {

// About the width of a text in a common sans-serif font of that size, rather too much than too little.
double text_width(std::string_view text, double size = 12);

// How many bytes of its beginning are no wider than that.
size_t fitting_bytes(std::string_view text, double width, double size = 12);

// The text itself, or its begin and end around "…" where it is wider.
std::string shortened(const std::string& text, double width, double size = 12);

// A text that stands in one piece, such as a tooltip, as markup; cut to about 700 characters.
std::string markup_of(const std::string& text);

// A coordinate: one decimal at most.
std::string coordinate(double value);

// Digits enough to read the same number again: "0.1", "1e-05"; "" for NaN, "inf".
std::string exact_number(double value);

// A field of a CSV file (RFC 4180): quoted where it has to be.
std::string csv_field(std::string_view text);

}  // namespace etr::plot

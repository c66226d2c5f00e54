// Checks that a text is XML for any parser: matching tags, unique quoted attributes, XML's own
// entities.
#pragma once

#include <string>
#include <string_view>

namespace etr::test {

// Returns what is wrong and where; "" for well-formed text. Accepts HTML only if it is also XML.
std::string xml_problem(std::string_view text);

}  // namespace etr::test

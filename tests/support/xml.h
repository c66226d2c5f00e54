// Whether a text is XML that any parser takes: tags that match, attributes once each and in quotes, entities that XML knows.
#pragma once

#include <string>
#include <string_view>

namespace etr::test {

// What is wrong with it and where; "" for well-formed text. Of HTML it takes what is also XML.
std::string xml_problem(std::string_view text);

}  // namespace etr::test

#include "pipeline/names.h"

#include <algorithm>

#include "core/error.h"
#include "core/utf8.h"

namespace etr::pipeline {

void check_name(std::string_view name, std::string_view what) {
  if (name.empty())
    fail(Code::invalid_argument, "the name of ", what, " is empty; give it 1 to ", kMaxNameBytes,
         " bytes");
  if (name.size() > kMaxNameBytes)
    fail(Code::invalid_argument, "the name of ", what, ", '", as_utf8(name.substr(0, 40)),
         "...', has ", name.size(), " bytes; at most ", kMaxNameBytes, " are allowed");
  for (std::string_view rest = name; !rest.empty();) {
    const size_t length = character_length(rest);
    if (length == 0)
      fail(Code::invalid_argument, "the name of ", what, ", '", as_utf8(name), "', is not UTF-8");
    const auto first = static_cast<unsigned char>(rest[0]);
    const bool c1 = first == 0xC2 && static_cast<unsigned char>(rest[1]) < 0xA0;
    if (first < 0x20 || first == 0x7F || c1)
      fail(Code::invalid_argument, "the name of ", what, " has a control character at byte ",
           name.size() - rest.size(), ": choose printable ones");
    rest.remove_prefix(length);
  }
}

}  // namespace etr::pipeline

// Names that nobody else has.
#pragma once

#include <string>

namespace etr::exchange {

std::string new_word();  // of random hexadecimal digits

}  // namespace etr::exchange

// Unique names.
#pragma once

#include <string>

namespace etr::exchange {

std::string new_word();  // random hexadecimal digits

}  // namespace etr::exchange

// Numbers in human-readable form.
#pragma once

#include <string>

namespace etr {

// "12,300.5": at most `digits` decimals, with thousands separators.
std::string number_text(double value, int digits = 0);

}  // namespace etr

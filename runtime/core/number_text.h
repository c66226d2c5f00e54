// Numbers for people.
#pragma once

#include <string>

namespace etr {

// "12,300.5": at most `digits` decimals, thousands separated.
std::string number_text(double value, int digits = 0);

}  // namespace etr

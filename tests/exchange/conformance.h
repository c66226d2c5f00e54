// Conformance checks for every engine, as calls of all ranks of a group.
#pragma once

#include <string>

#include "exchange/group.h"

namespace etr::test {

// Makes every collective call with every type and many sizes, sends messages and splits the group.
// Returns what was wrong; "" for nothing.
std::string every_operation(exchange::Group& group);

}  // namespace etr::test

// A group of threads in one process, for several devices in one process and for tests.
#pragma once

#include <vector>

#include "exchange/group.h"

namespace etr::exchange {

// Returns one group for each rank, each to be used by its own thread. Values are reduced in rank
// order, without an intermediate buffer.
std::vector<Group> local_groups(int size, double timeout_s = kDefaultTimeout);

}  // namespace etr::exchange

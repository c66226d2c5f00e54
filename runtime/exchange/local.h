// A group of threads in one process: for several devices in one process, and for tests.
#pragma once

#include <vector>

#include "exchange/group.h"

namespace etr::exchange {

// One group for each rank, to be used by a thread each. Values are reduced in the order of ranks; nothing is copied to a buffer
// between.
std::vector<Group> local_groups(int size, double timeout_s = kDefaultTimeout);

}  // namespace etr::exchange

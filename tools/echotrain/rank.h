// One of several processes that a launcher has started with the same words, and that share a terminal: the first one speaks for all.
#pragma once

#include <string>

namespace cli {

// "rank 2: " in front of what another process than the first says on standard error, else "".
std::string rank_prefix();

// Processes other than the first print nothing on standard output.
void leave_output_to_first_rank();

// Before this process tells a mistake, which all make: the first one has told it by the time that this returns, and launchers end the
// others when one has failed. False where it is not to be told once more.
bool tells_mistakes();

}  // namespace cli

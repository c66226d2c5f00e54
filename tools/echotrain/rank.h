// What one of several processes prints that a launcher has started with the same command line in one terminal: the first reports for all.
#pragma once

#include <string>

namespace cli {

// The prefix of this process's lines on standard error, such as "rank 2: "; "" for the first process.
std::string rank_prefix();

// Processes other than the first print nothing on standard output.
void leave_output_to_first_rank();

// To be asked before this process reports a mistake that all make. The first one has reported it by the time that this returns, and most
// launchers end the others when one has failed. False if it is not to be reported once more.
bool tells_mistakes();

}  // namespace cli

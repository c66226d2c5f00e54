// Output of several processes that a launcher has started with the same command line in one
// terminal: the first reports for all.
#pragma once

#include <string>

#include "echotrain/echotrain.h"

namespace cli {

// Returns the prefix of this process's lines on standard error, such as "rank 2: "; "" for the
// first process.
std::string rank_prefix();

// Discards the standard output of all processes except the first.
void leave_output_to_first_rank();

// In an elastic run another rank may become the first after a loss. Gives the standard output that
// the launcher gave to all to whichever rank leads now. Call it between two events.
void follow_first_rank(etr_run* run);

// Returns whether a signal to end comes from 'echotrain launch', which has printed the reason
// itself.
bool ended_by_launcher();

// Call it before this process reports a mistake that all processes make. By the time it returns,
// the first process has reported the mistake, and most launchers end the others when one has
// failed. Returns false if this process should not report it again.
bool tells_mistakes();

}  // namespace cli

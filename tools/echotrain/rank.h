// What one of several processes prints that a launcher has started with the same command line in one terminal: the first reports for all.
#pragma once

#include <string>

#include "echotrain/echotrain.h"

namespace cli {

// The prefix of this process's lines on standard error, such as "rank 2: "; "" for the first process.
std::string rank_prefix();

// Processes other than the first print nothing on standard output.
void leave_output_to_first_rank();

// Of an elastic run, whose first rank may be another one after each loss: whoever leads it now has the standard output that the
// launcher gave to all. Call it between two events.
void follow_first_rank(etr_trainer* trainer);

// Whether a signal to end comes from 'echotrain launch', which has told why by itself.
bool ended_by_launcher();

// To be asked before this process reports a mistake that all make. The first one has reported it by the time that this returns, and most
// launchers end the others when one has failed. False if it is not to be reported once more.
bool tells_mistakes();

}  // namespace cli

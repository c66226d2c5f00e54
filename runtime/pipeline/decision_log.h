// What a stage decided by the clock, so that a run can be repeated: a number at some of the places in an epoch. A log has a line of
// JSON for each, a saved position a packed list.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "core/json_fwd.h"

namespace etr::pipeline {

using EpochDecisions = std::map<uint64_t, uint64_t>;   // by place
using DecisionsByEpoch = std::map<uint64_t, EpochDecisions>;  // by epoch

// Adds those of a log, whose lines are {"epoch", "after": the place, `key`: the number}. A restored run appends to the log of the run
// that it replaces, so each line first removes what is known of its place and of all later ones; a line with "restored": true does
// nothing else. Throws Error(io) where there is no such file, and Error(corrupt_data / invalid_argument) that names the file and the
// line; `stage` is whose decisions they should be.
void read_decision_log(const std::string& path, const char* stage, const char* key,
                       DecisionsByEpoch& decisions);

// From what a position has saved with pack_numbers(): of each decision the step from the place before, and the number.
// Error(corrupt_data).
EpochDecisions unpack_decisions(const Json& saved, const char* stage);

}  // namespace etr::pipeline

// Checks that the job's section 'parallel' and the launcher agree about the processes. Otherwise
// each would train on its own, or wait for the others in the wrong place.
#pragma once

#include <string>

#include "exchange/world.h"
#include "train/job.h"

namespace etr::train {

// Returns whether the job says that this process trains on its own, however it was started: "size":
// 1, and no rank.
bool is_alone(const Options& parallel);

// Returns the first set option that says where processes meet ("host"); "" if none is set.
std::string network_option(const Options& parallel);

// Call it before this process trains. Error(invalid_argument) if a launcher has started several
// processes and the job has no section 'parallel': they would train the same and overwrite each
// other's files. Also if the section says how processes meet and there is only one.
void check_processes(const Job& job);

// Throws Error(invalid_argument) for a process without a launcher whose section gives no rank. Says
// what is missing.
[[noreturn]] void fail_without_rank(const Options& parallel);

// Checks that the section's rank and size are both set, or agree with the launcher's; that the
// engine reads the section's network options; and that an elastic run has enough ranks. `processes`
// does not count several devices per process.
void check_world(const Options& parallel, const exchange::World& processes);

}  // namespace etr::train

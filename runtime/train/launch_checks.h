// Checks that the job's section 'parallel' and the launcher agree about the processes: otherwise each would train alone, or wait for the
// others in another place.
#pragma once

#include "exchange/world.h"
#include "train/job.h"

namespace etr::train {

// Whether the job says that this process trains alone, whatever has started it: "size": 1, and no rank.
bool is_alone(const Options& parallel);

// To be called before this process trains. Error(invalid_argument) if a launcher has started several and the job has no section 'parallel':
// they would train the same, and overwrite each other's files. Also if the section says how processes meet and there is only one.
void check_processes(const Job& job);

// Error(invalid_argument) for a process that no launcher has started and whose section does not say which rank it is. Says what is missing.
[[noreturn]] void fail_without_rank(const Options& parallel);

// Checks that the section's rank and size are both set, or agree with the launcher's; that the engine reads the section's network options;
// that there are enough ranks for an elastic run. `processes`: not counting several devices of each.
void check_world(const Options& parallel, const exchange::World& processes);

}  // namespace etr::train

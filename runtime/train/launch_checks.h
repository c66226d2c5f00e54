// Whether what the job's section 'parallel' says of the processes agrees with what the launcher says: otherwise each would train alone,
// or wait for the others in another place.
#pragma once

#include "exchange/world.h"
#include "train/job.h"

namespace etr::train {

// Whether the job says that this process trains alone, whatever has started it: "size": 1, and no rank.
bool is_alone(const Options& parallel);

// Before this process trains. Error(invalid_argument) where a launcher has started several and the job has no section 'parallel': they
// would all train the same, and write over each other's files. Also where the section says how processes meet, and there is one.
void check_processes(const Job& job);

// Error(invalid_argument): no launcher has started this process, and the section does not say which rank it is. Says what is missing.
[[noreturn]] void fail_without_rank(const Options& parallel);

// That the section's rank and size are the launcher's, or whole; that the engine reads what the section says of the network; that
// there are enough ranks for an elastic run. `processes`: without devices.
void check_world(const Options& parallel, const exchange::World& processes);

}  // namespace etr::train

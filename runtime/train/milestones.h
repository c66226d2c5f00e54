// When evaluations, checkpoints and the end of a run are due, according to its job.
#pragma once

#include <cstdint>
#include <optional>

#include "core/options.h"
#include "train/job.h"

namespace etr::train {

struct Milestone {
  uint64_t step = 0, epoch = 0;  // finished
  bool epoch_ended = false;      // with this step
  uint64_t fresh = 0;            // examples so far
  uint64_t latest_fresh = 0;     // of these, in the latest step
};

bool evaluation_falls_on(const Milestone& at, const Options& evaluation);
bool checkpoint_falls_on(const Milestone& at, const Options& output);
bool writes_checkpoints(const Options& output);
// Returns whether the run ends at this point, by its steps, epochs or fresh examples.
bool run_ends_at(const Milestone& at, const Options& train);

// Returns the step at which decaying schedules end, if their clock is steps.
int64_t planned_steps(const Options& train);

// Estimates the number of steps after which the run will have trained on train.fresh examples, if
// it continues as before; 0: unknown.
uint64_t steps_to_fresh(const Options& train, const Milestone& now);

// The finished epochs and steps when an epoch began.
struct EpochStart {
  uint64_t epoch = 0, step = 0;
};

// Returns where the current epoch of a resumed run began, which a checkpoint does not store.
// Assumes that earlier epochs had `epoch_steps` steps, too. If the numbers do not fit, as after a
// change of the number of ranks, returns the resumed step itself.
EpochStart epoch_start(const Milestone& resumed, std::optional<uint64_t> epoch_steps);

// Estimates the step at which the run will end; 0: unknown. `epoch_steps`: steps of an epoch from
// `latest` on, if known. `fresh_steps`: see steps_to_fresh().
uint64_t total_steps(const Options& train, std::optional<uint64_t> epoch_steps,
                     const EpochStart& latest = {}, uint64_t fresh_steps = 0);

}  // namespace etr::train

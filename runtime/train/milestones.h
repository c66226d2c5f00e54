// What falls due in a run, as its job says: evaluations, checkpoints, the end.
#pragma once

#include <cstdint>
#include <optional>

#include "core/options.h"
#include "train/job.h"

namespace etr::train {

struct Milestone {
  uint64_t step = 0, epoch = 0;  // finished ones
  bool epoch_ended = false;      // with this step
  uint64_t fresh = 0;            // examples so far
  uint64_t latest_fresh = 0;     // of these in the latest step
};

bool evaluation_falls_on(const Milestone& at, const Options& evaluation);
bool checkpoint_falls_on(const Milestone& at, const Options& output);
bool writes_checkpoints(const Options& output);
bool run_ends_at(const Milestone& at,
                 const Options& train);  // by its steps, epochs or fresh examples

// What decaying schedules end at, whose clock is steps.
int64_t planned_steps(const Options& train);

// With how many steps the run will have trained on train.fresh examples, if it goes on as it did until now; 0: it cannot be told.
uint64_t steps_to_fresh(const Options& train, const Milestone& now);

// As many epochs and steps were finished when an epoch began.
struct EpochStart {
  uint64_t epoch = 0, step = 0;
};

// Of a run that is resumed: where the epoch that it stands in began. A checkpoint does not say it, and epochs before may have had
// other numbers of steps, as with other numbers of ranks: the step itself where it does not fit.
EpochStart epoch_start(const Milestone& resumed, std::optional<uint64_t> epoch_steps);

// Where the run will end as far as that can be told; 0: it cannot. `epoch_steps`, of an epoch from `latest` on, where that is known.
// `fresh_steps`: steps_to_fresh().
uint64_t total_steps(const Options& train, std::optional<uint64_t> epoch_steps,
                     const EpochStart& latest = {}, uint64_t fresh_steps = 0);

}  // namespace etr::train

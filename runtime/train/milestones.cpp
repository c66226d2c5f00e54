#include "train/milestones.h"

#include <algorithm>
#include <cmath>

namespace etr::train {
namespace {

uint64_t count(const Options& options, const char* name) {
  return static_cast<uint64_t>(options.integer(name));
}

// `every` 0: never.
bool falls_on(const Milestone& at, uint64_t every_epochs, uint64_t every_steps) {
  return (at.epoch_ended && every_epochs && at.epoch % every_epochs == 0) ||
         (every_steps && at.step % every_steps == 0);
}

}  // namespace

bool evaluation_falls_on(const Milestone& at, const Options& evaluation) {
  const uint64_t every = count(evaluation, "every_fresh");
  const bool passes = every && at.fresh / every > (at.fresh - at.latest_fresh) / every;
  return passes ||
         falls_on(at, count(evaluation, "every_epochs"), count(evaluation, "every_steps"));
}

bool checkpoint_falls_on(const Milestone& at, const Options& output) {
  return falls_on(at, count(output, "checkpoint_every_epochs"),
                  count(output, "checkpoint_every_steps"));
}

bool writes_checkpoints(const Options& output) {
  return count(output, "checkpoint_every_epochs") || count(output, "checkpoint_every_steps");
}

bool run_ends_at(const Milestone& at, const Options& train) {
  const uint64_t epochs = count(train, "epochs"), steps = count(train, "steps"),
                 fresh = count(train, "fresh");
  return (epochs && at.epoch >= epochs) || (steps && at.step >= steps) ||
         (fresh && at.fresh >= fresh);
}

int64_t planned_steps(const Options& train) {
  const int64_t planned = train.integer("planned_steps");
  return planned ? planned : train.integer("steps");
}

EpochStart epoch_start(const Milestone& resumed, std::optional<uint64_t> epoch_steps) {
  const uint64_t length = epoch_steps.value_or(0), first = resumed.epoch * length;
  const bool fits = first <= resumed.step && resumed.step < first + length;
  return {resumed.epoch, fits ? first : resumed.step};
}

uint64_t steps_to_fresh(const Options& train, const Milestone& now) {
  const uint64_t fresh = count(train, "fresh");
  if (fresh == 0 || now.fresh == 0) return 0;
  if (now.fresh >= fresh) return now.step;
  const double rest = static_cast<double>(fresh - now.fresh) * static_cast<double>(now.step) /
                      static_cast<double>(now.fresh);
  return now.step + static_cast<uint64_t>(std::ceil(rest));
}

uint64_t total_steps(const Options& train, std::optional<uint64_t> epoch_steps,
                     const EpochStart& latest, uint64_t fresh_steps) {
  uint64_t end = count(train, "steps");
  const auto limit = [&end](uint64_t steps) { end = end ? std::min(end, steps) : steps; };
  const uint64_t epochs = count(train, "epochs");
  if (epochs && epoch_steps)
    limit(latest.step + (epochs - std::min(epochs, latest.epoch)) * *epoch_steps);
  if (fresh_steps) limit(fresh_steps);
  return end ? end : static_cast<uint64_t>(planned_steps(train));
}

}  // namespace etr::train

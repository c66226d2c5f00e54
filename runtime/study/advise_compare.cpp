// Compares a job with the changed one, in turns.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "pipeline/pipeline.h"
#include "study/advise_measure.h"
#include "study/advise_pipeline.h"
#include "train/milestones.h"
#include "train/trainer.h"

namespace etr::study {
namespace {

// Returns a job that trains until it is stopped and writes nothing.
train::Job trial_of(const train::Job& job) {
  Json spec = job.json();
  remove_member(spec, "evaluation");
  spec["output"] = {{"dir", ""}};
  spec["train"] = {{"seconds", 1e6},
                   {"planned_steps", train::planned_steps(job.train())},
                   {"progress_every", 0.05}};
  // A schedule that counts fresh examples has an end, which the trial must not reach.
  if (job.train().integer("fresh") > 0) spec["train"]["fresh"] = int64_t{1'000'000'000'000'000};
  spec["pipeline"] = short_pipeline(pipeline::without_side_files(job.pipeline()));
  return train::Job::parse(spec.dump(), "the job, as a trial");
}

struct Stretch {
  double seconds = 0, steps = 0, examples = 0, fresh = 0, busy = 0;
};

// Measures from step to step: what a few seconds cut off at their ends would be a large part of a
// slow run.
Stretch train_for(const std::shared_ptr<gpu::Kernels>& kernels, const train::Job& job,
                  const AdviseOptions& options) {
  train::Trainer trainer(kernels, trial_of(job), train::Start::trial);
  std::optional<train::Event> first, last;
  double warm_at = -1;
  while (true) {
    const train::Event event = trainer.next_event(0.05);
    options.report("");
    if (event.seconds > options.longest())
      fail(Code::state, "advise: the job made too few steps to compare in ",
           std::lround(options.longest()),
           " s: give a smaller batch (--set), or measure for longer (--seconds)");
    if (event.step == 0) continue;
    if (warm_at < 0) warm_at = event.seconds;
    if (event.seconds < warm_at + options.seconds / 2) {
      last = event;
      continue;
    }
    if (!first) {
      if (last && event.step > last->step) first = event;
      last = event;
      continue;
    }
    if (event.step > last->step) last = event;
    if (last->step > first->step && event.seconds - first->seconds >= options.seconds) break;
  }
  const auto busy = [](const train::Event& e) { return (1 - e.device_wait_share) * e.seconds; };
  return {last->seconds - first->seconds, static_cast<double>(last->step - first->step),
          static_cast<double>(last->examples - first->examples),
          static_cast<double>(last->fresh - first->fresh), busy(*last) - busy(*first)};
}

Json rates(const Stretch& all) {
  return {{"examples_per_s", all.examples / all.seconds},
          {"steps_per_s", all.steps / all.seconds},
          {"fresh_per_s", all.fresh / all.seconds},
          {"device_wait_share", std::clamp(1 - all.busy / all.seconds, 0.0, 1.0)}};
}

}  // namespace

Json compare(const std::shared_ptr<gpu::Kernels>& kernels, const train::Job& job,
             const train::Job* changed, const AdviseOptions& options) {
  Stretch sums[2];
  for (int turn = 0; turn < 4; ++turn) {
    if (turn % 2 && !changed) continue;
    options.report(turn % 2 ? "the changed job" : "the job as it is");
    const Stretch one = train_for(kernels, turn % 2 ? *changed : job, options);
    Stretch& sum = sums[turn % 2];
    sum.seconds += one.seconds;
    sum.steps += one.steps;
    sum.examples += one.examples;
    sum.fresh += one.fresh;
    sum.busy += one.busy;
  }
  Json out{{"baseline", rates(sums[0])}};
  if (changed) out["changed"] = rates(sums[1]);
  return out;
}

}  // namespace etr::study

// How long calls of next_event() take, and how many steps they make.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "support/data.h"
#include "train/small_learner.h"
#include "train/trainer.h"

namespace etr::test {
namespace {

using train::Event;
using train::EventKind;
using train::Job;
using train::Trainer;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Times calls of one run.
struct Calls {
  std::vector<double> seconds, steps;

  void make(Trainer& trainer, double budget, uint64_t& step) {
    const int64_t begin = now_ns();
    const Event event = trainer.next_event(budget);
    ASSERT_EQ(event.kind, EventKind::progress);
    seconds.push_back(seconds_between(begin, now_ns()));
    steps.push_back(static_cast<double>(event.step - std::exchange(step, event.step)));
  }
};

// Returns the mean duration of `count` steps. Makes them by calls with hardly any budget, each of
// which must end after at most one step.
double seconds_a_step(Trainer& trainer, uint64_t& step, uint64_t count) {
  const int64_t begin = now_ns();
  Calls calls;
  for (const uint64_t end = step + count; step < end;) {
    calls.make(trainer, 1e-9, step);
    EXPECT_LE(calls.steps.back(), 1);
  }
  return seconds_between(begin, now_ns()) / static_cast<double>(count);
}

// Calls use their budget, and make more steps if it is larger. Compares medians, since the machine
// may have other work.
TEST(TrainerBudget, CallsKeepTheirBudget) {
  TempDir dir;
  const Json stages{{{"stage", "webdataset"}, {"pattern", make_band_shard(dir, "train", 400, 1)}},
                    {{"stage", "label"}, {"classes", 4}},
                    {{"stage", "decode"}},
                    {{"stage", "batch"}, {"size", 32}},
                    {{"stage", "normalize"}}};
  const Json spec{{"pipeline", {{"stages", stages}}},
                  {"model",
                   {{"layers",
                     {{{"layer", "conv2d"}, {"filters", 8}},
                      {{"layer", "flatten"}},
                      {{"layer", "dense"}, {"units", 4}}}}}},
                  {"optimizer", {{"optimizer", "sgd"}}},
                  {"schedule", {{"learning_rate", 0.01}}},
                  {"train", {{"steps", 1000000}, {"progress_every", 0.5}}},
                  {"output", {{"dir", ""}}}};
  Trainer trainer(shared_kernels(), Job::parse(spec.dump(), "job"), false);
  uint64_t step = 0;
  seconds_a_step(trainer, step, 20);  // until all stages are running
  const double budget = 2 * seconds_a_step(trainer, step, 20);
  Calls calls, long_calls;
  for (int i = 0; i < 9; ++i) {
    calls.make(trainer, budget, step);
    long_calls.make(trainer, 10 * budget, step);
  }
  for (const double seconds : calls.seconds) EXPECT_GE(seconds, budget) << "the budget is used";
  for (const double seconds : long_calls.seconds) EXPECT_GE(seconds, 10 * budget);
  EXPECT_GT(median(long_calls.steps), 2 * median(calls.steps));
}

}  // namespace
}  // namespace etr::test

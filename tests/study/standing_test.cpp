// Early stopping, and which trial of a search is the best.
#include "study/standing.h"

#include <gtest/gtest.h>

#include "study/synthetic.h"

namespace etr::test {
namespace {

using study::Record;
using study::Standing;
using study::Status;
using study::Workload;

Workload workload(bool accuracy) {
  Workload out;
  out.goal.accuracy = accuracy;
  out.budget.steps = 100;
  out.budget.clock = "steps";
  out.stop_early = study::StopRule::median;
  return out;
}

study::CurvePoint point(double steps, double metric) {
  return {{10 * steps, 10 * steps, steps, steps / 10}, metric, metric};
}

// Returns a trial that was evaluated at step 30 and at step `end`, by default the end of its
// budget.
Record trial(uint64_t number, double metric, double end = 100) {
  Record out = simple_record({{"a", 1}}, 0, number, {}, metric);
  out.curve = {point(30, metric)};
  if (end > 30) out.curve.push_back(point(end, metric));
  out.spent = out.curve.back().at;
  return out;
}

bool is_stopped(const Standing& standing, bool accuracy, double metric, double steps = 30) {
  return standing.verdict(workload(accuracy), point(steps, metric), metric) == Status::pruned;
}

// The median of six trials lies between the third and the fourth. A trial is stopped only if it is
// worse than the fourth.
TEST(Standing, TheMedianOfAnEvenNumberIsTheWorseOfTheTwo) {
  for (const bool accuracy : {false, true}) {
    Standing standing;
    for (uint64_t i = 0; i < 6; ++i)
      standing.add(workload(accuracy), trial(i, static_cast<double>(i + 1)));
    const double fourth = accuracy ? 3 : 4, between = 3.5, worse = accuracy ? 2.9 : 4.1;
    EXPECT_FALSE(is_stopped(standing, accuracy, between)) << accuracy;
    EXPECT_FALSE(is_stopped(standing, accuracy, fourth)) << accuracy;
    EXPECT_TRUE(is_stopped(standing, accuracy, worse)) << accuracy;
  }
}

TEST(Standing, TrialsThatWereStoppedBeforeAreNotComparedWith) {
  const Workload losses = workload(false);
  Standing standing;
  for (uint64_t i = 0; i < 4; ++i) standing.add(losses, trial(i, 0.5));
  Record stopped = trial(4, 0.9, 30);
  stopped.status = Status::pruned;
  standing.add(losses, stopped);
  EXPECT_TRUE(is_stopped(standing, false, 0.6)) << "five trials got to step 30";
  EXPECT_FALSE(is_stopped(standing, false, 0.6, 40)) << "only four got to step 40";
  Record reached = trial(5, 0.5, 30);
  reached.status = Status::reached;
  reached.to_target = reached.spent;
  standing.add(losses, reached);
  EXPECT_TRUE(is_stopped(standing, false, 0.6, 40)) << "a trial that reached the target counts";
}

TEST(Standing, TheBestTrialDoesNotDependOnWhichEndedFirst) {
  const Workload losses = workload(false);
  const auto best = [&](std::vector<Record> records) {
    Standing standing;
    for (const Record& record : records) standing.add(losses, record);
    return standing.best(losses)->trial;
  };
  const auto reached = [](uint64_t number, double fresh, double loss) {
    return simple_record({{"a", 1}}, 0, number, fresh, loss);
  };
  EXPECT_EQ(best({reached(0, 200, 1.0), reached(1, 100, 1.2)}), 1u);
  EXPECT_EQ(best({reached(0, 100, 1.2), reached(1, 100, 1.1)}), 1u) << "equal scores";
  EXPECT_EQ(best({reached(3, 100, 1.2), reached(1, 100, 1.2)}), 1u);
  EXPECT_EQ(best({reached(1, 100, 1.2), reached(3, 100, 1.2)}), 1u);
  Record failed = reached(0, 50, 1);
  failed.status = Status::failed;
  EXPECT_EQ(best({failed, trial(7, 2)}), 7u);
}

}  // namespace
}  // namespace etr::test

// Results of conditions, from records that say what they should be.
#include "study/summary.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "study/synthetic.h"

namespace etr {
namespace {

using study::Record;
using study::Status;
using test::simple_record;

constexpr size_t kFresh = 0, kSteps = 2;

Json goal(double target = 1.5) {
  return {{"goal", {{"metric", "loss"}, {"target", target}}}, {"budget", {{"fresh", 5000}}}};
}

TEST(Summary, ScoresAreLeastOfASearchAndMediansOverSearches) {
  const Json labels = {{"variant", "none"}};
  std::vector<Record> records;
  for (const auto& [search, fresh] :
       {std::pair(0, 900.0), {0, 700.0}, {0, 800.0}, {1, 500.0}, {2, 600.0}, {2, 1000.0}})
    records.push_back(simple_record(labels, static_cast<uint64_t>(search), records.size(), fresh,
                                    1 + fresh / 10000));
  records[3].status = Status::diverged;  // does not count, however early it got there
  records.push_back(simple_record(labels, 1, 7, 650, 1.4));
  const study::Summary summary = study::summarize(goal(), records);
  ASSERT_EQ(summary.conditions.size(), 1u);
  const study::ConditionResult& found = summary.conditions[0];
  EXPECT_EQ(found.name, "variant=none");
  ASSERT_EQ(found.searches.size(), 3u);
  EXPECT_EQ(found.searches[0].to_target[kFresh], 700);
  EXPECT_EQ(found.searches[1].to_target[kFresh], 650);
  EXPECT_EQ(found.to_target[kFresh].median, 650);
  EXPECT_EQ(found.to_target[kFresh].low, 600);
  EXPECT_EQ(found.to_target[kFresh].high, 700);
  EXPECT_EQ(found.to_target[kSteps].median, 65);
  EXPECT_EQ(found.best_metric.low, 1.06);
  EXPECT_EQ(found.counts[static_cast<size_t>(Status::diverged)], 1u);
  EXPECT_EQ(found.counts[static_cast<size_t>(Status::reached)], 6u);
  ASSERT_TRUE(found.best);
  EXPECT_EQ(records[*found.best].to_target->fresh, 600);
}

TEST(Summary, ASearchThatMissedCountsAsInfinite) {
  const Json labels = {{"a", 1}};
  const std::vector<Record> records = {simple_record(labels, 0, 0, 100, 1.2),
                                       simple_record(labels, 1, 0, {}, 1.9),
                                       simple_record(labels, 2, 0, {}, 1.8)};
  const auto summary = study::summarize(goal(), records);
  EXPECT_TRUE(std::isinf(summary.conditions[0].to_target[kFresh].median));
  EXPECT_EQ(summary.conditions[0].to_target[kFresh].finite, 1u);
  const Json json = study::to_json(summary, records);
  EXPECT_TRUE(json["conditions"][0]["to_target"]["fresh"]["median"].is_null());
  EXPECT_EQ(json["conditions"][0]["to_target"]["fresh"]["least"], 100);
  EXPECT_EQ(json["conditions"][0]["warnings"][0], "only 1 of 3 searches reached the target");
}

TEST(Summary, AccuracyIsBetterWhereItIsGreater) {
  const Json study = {{"goal", {{"metric", "accuracy"}, {"target", 0.8}}},
                      {"budget", {{"steps", 10}}}};
  const std::vector<Record> records = {simple_record({{"a", 1}}, 0, 0, {}, 0.7),
                                       simple_record({{"a", 1}}, 0, 1, {}, 0.75)};
  const auto summary = study::summarize(study, records);
  EXPECT_EQ(summary.conditions[0].best_metric.median, 0.75);
  EXPECT_EQ(summary.aims[0].clock, kSteps);
  EXPECT_EQ(*summary.conditions[0].best, 1u);
}

TEST(Summary, GainsAreSearchBySearchAgainstTheBaselineOfTheSamePanel) {
  std::vector<Record> records;
  for (const double batch : {128.0, 1024.0})
    for (uint64_t search = 0; search < 3; ++search) {
      const double base = batch + 100 * static_cast<double>(search);
      records.push_back(simple_record({{"variant", "none"}, {"factor", 1}, {"batch", batch}},
                                      search, 0, base, 1.2));
      records.push_back(simple_record({{"variant", "x"}, {"factor", 4}, {"batch", batch}}, search,
                                      0, base / (2 + static_cast<double>(search)), 1.2));
    }
  const auto summary = study::summarize(goal(), records);
  EXPECT_EQ(summary.baseline, (Json{{"variant", "none"}}));
  for (const study::ConditionResult& condition : summary.conditions) {
    if (condition.labels["variant"] == "none") {
      EXPECT_FALSE(condition.baseline);
      continue;
    }
    ASSERT_TRUE(condition.baseline);
    EXPECT_EQ(summary.conditions[*condition.baseline].labels["batch"], condition.labels["batch"]);
    EXPECT_DOUBLE_EQ(condition.gain[kFresh].median, 3);
    EXPECT_DOUBLE_EQ(condition.gain[kFresh].low, 2);
    EXPECT_DOUBLE_EQ(condition.gain[kFresh].high, 4);
  }
}

TEST(Summary, TheBaselineCanBeNamed) {
  Json study = goal();
  study["figures"] = {{{"kind", "to_target"}, {"baseline", {{"rule", "fixed"}}}}};
  const std::vector<Record> records = {simple_record({{"rule", "fixed"}}, 0, 0, 200, 1.2),
                                       simple_record({{"rule", "linear"}}, 0, 0, 100, 1.2)};
  EXPECT_EQ(study::summarize(study, records).conditions[1].gain[kFresh].median, 2);
  study["baseline"] = {{"rule", "linear"}};
  EXPECT_EQ(study::summarize(study, records).conditions[0].gain[kFresh].median, 0.5);
}

TEST(Summary, WarnsOfBordersAndFewFeasibleTrials) {
  Json study = goal();
  study["search"] = {
      {"space", {{"rate", {{"from", 1}, {"to", 2}}}, {"kind", {{"values", {1, 2}}}}}}};
  std::vector<Record> records;
  for (uint64_t i = 0; i < 8; ++i) {
    records.push_back(simple_record({{"a", 1}}, 0, i, 100.0 + static_cast<double>(i), 1.2));
    records.back().point = {{"rate", 1.96}, {"kind", 1}};
    records.back().unit = {0.96, 0.01};
    if (i > 2) records.back().status = Status::diverged;
  }
  const auto warnings = study::summarize(study, records).conditions[0].warnings;
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_EQ(warnings[0], "only 3 of 8 trials were feasible; the others diverged or failed");
  EXPECT_EQ(warnings[1],
            "the best trial has rate = 1.96, at the upper border of its range: widen the search");
  for (Record& record : records) record.status = Status::failed;
  const auto none = study::summarize(study, records);
  EXPECT_EQ(none.conditions[0].warnings[0], "no trial was feasible: all diverged or failed");
  EXPECT_FALSE(none.conditions[0].best);
}

// steps(b) = 1000 * 16 / b up to 128, a little less than twice the batch from there on, and the same from 512 on.
TEST(Summary, FindsWhereScalingEnds) {
  std::vector<Record> records;
  for (const auto& [batch, steps] : {std::pair(16.0, 1000.0),
                                     {32.0, 505.0},
                                     {64.0, 260.0},
                                     {128.0, 149.0},
                                     {256.0, 90.0},
                                     {512.0, 62.0},
                                     {1024.0, 60.0}}) {
    records.push_back(
        simple_record({{"batch", batch}, {"optimizer", "sgd"}}, 0, 0, steps * batch, 1.2));
    records.back().to_target->steps = steps;
  }
  const auto summary = study::summarize(goal(), records);
  ASSERT_EQ(summary.scaling.size(), 1u);
  EXPECT_EQ(summary.scaling[0].labels, (Json{{"optimizer", "sgd"}}));
  EXPECT_EQ(summary.scaling[0].perfect_until, 128);  // 149 is within 20 % of 125; 90 is not of 62.5
  EXPECT_EQ(summary.scaling[0].largest_useful, 512);  // 62 is within 5 % of 60
  records.front().to_target.reset();
  records.front().status = Status::missed;
  const auto unknown = study::summarize(goal(), records);
  EXPECT_FALSE(unknown.scaling[0].perfect_until);
  EXPECT_EQ(unknown.scaling[0].largest_useful, 512);
}

TEST(Summary, WorkloadsHaveGoalsOfTheirOwn) {
  Json study = goal();
  study["workloads"] = {{{"name", "second"}, {"goal", {{"metric", "accuracy"}, {"target", 0.9}}}},
                        {{"name", "w"}, {"budget", {{"seconds", 3}}}}};
  std::vector<Record> records = {simple_record({{"a", 1}}, 0, 0, 100, 1.2),
                                 simple_record({{"a", 1}}, 0, 0, 200, 0.95)};
  records[1].workload = "second";
  const auto summary = study::summarize(study, records);
  ASSERT_EQ(summary.aims.size(), 2u);
  EXPECT_EQ(summary.aims[0].workload, "second");
  EXPECT_TRUE(summary.aims[0].accuracy);
  EXPECT_EQ(summary.aims[1].clock, 3u);
  EXPECT_EQ(summary.aims[1].target, 1.5);
  EXPECT_EQ(summary.conditions[0].workload, 0u);
  EXPECT_EQ(summary.conditions[0].to_target[kFresh].median, 200);
}

size_t lines_of(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Summary, TellsWhetherTrialsEndedAtTheTarget) {
  std::vector<Record> records = {simple_record({{"a", 1}}, 0, 0, 100, 1.2),
                                 simple_record({{"a", 1}}, 0, 1, {}, 1.9)};
  records[0].spent = *records[0].to_target;
  records[1].spent.steps = 1000;
  EXPECT_TRUE(study::summarize(goal(), records).aims[0].ends_at_target);
  records[0].spent.steps += 1;
  EXPECT_FALSE(study::summarize(goal(), records).aims[0].ends_at_target);
}

TEST(Summary, TablesHaveARowForEachConditionAndTrial) {
  const auto records = test::echo_study_records();
  const auto summary = study::summarize(test::echo_study(), records);
  const std::string conditions = study::conditions_csv(summary, records);
  EXPECT_EQ(lines_of(conditions), summary.conditions.size() + 1);
  EXPECT_EQ(lines_of(study::trials_csv(records)), records.size() + 1);
  EXPECT_TRUE(
      conditions.starts_with("workload,variant,factor,batch,searches,trials,reached,missed,"));
  const auto fields = [](const std::string& text, size_t line) {
    size_t begin = 0;
    for (size_t i = 0; i < line; ++i) begin = text.find('\n', begin) + 1;
    const std::string row = text.substr(begin, text.find('\n', begin) - begin);
    return std::count(row.begin(), row.end(), ',');
  };
  for (size_t i = 1; i <= summary.conditions.size(); ++i)
    EXPECT_EQ(fields(conditions, i), fields(conditions, 0));
}

TEST(Summary, ClocksAreKnownByName) {
  EXPECT_EQ(study::clock_index("steps"), kSteps);
  try {
    study::clock_index("step");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("steps"), std::string::npos);
  }
}

TEST(Summary, NoRecordsAreNoConditions) {
  const auto summary = study::summarize(Json(), {});
  EXPECT_TRUE(summary.conditions.empty());
  EXPECT_TRUE(study::to_json(summary, {})["conditions"].empty());
}

}  // namespace
}  // namespace etr

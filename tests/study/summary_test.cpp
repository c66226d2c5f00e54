// Results of conditions, computed from records for which they are known.
#include "study/summary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "study/labels.h"
#include "study/synthetic.h"

namespace etr {
namespace {

using study::Record;
using study::Status;
using test::simple_record;

constexpr size_t kFresh = 0, kSteps = 2;

study::Outline goal(double target = 1.5) {
  study::Outline out = test::outline("w", target);
  out.objectives[0].limit = 5000;
  return out;
}

TEST(Summary, ScoresAreLeastOfASearchAndMediansOverSearches) {
  const Json labels = {{"variant", "none"}};
  std::vector<Record> records;
  for (const auto& [search, fresh] :
       {std::pair(0, 900.0), {0, 700.0}, {0, 800.0}, {1, 500.0}, {2, 600.0}, {2, 1000.0}})
    records.push_back(simple_record(labels, static_cast<uint64_t>(search), records.size(), fresh,
                                    1 + fresh / 10000));
  records[3].status = Status::diverged;  // does not count, although it was the earliest
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
  EXPECT_EQ(json["conditions"][0]["to_target"]["fresh"]["min"], 100);
  EXPECT_EQ(json["conditions"][0]["warnings"][0], "only 1 of 3 searches reached the target");
}

// Returns the gain of a condition whose searches need these numbers of fresh examples (infinity:
// missed the target) over a baseline that needs 100 in every search.
study::Spread gain_of(const std::vector<double>& fresh) {
  std::vector<Record> records;
  for (uint64_t search = 0; search < fresh.size(); ++search) {
    records.push_back(simple_record({{"rule", "none"}}, search, 0, 100, 1.2));
    const bool reached = std::isfinite(fresh[search]);
    records.push_back(simple_record({{"rule", "other"}}, search, 0,
                                    reached ? std::optional(fresh[search]) : std::nullopt,
                                    reached ? 1.2 : 1.9));
  }
  return study::summarize(goal(), records).conditions[1].gain[kFresh];
}

TEST(Summary, TheMedianOfTwoGainsIsTheirGeometricMean) {
  EXPECT_DOUBLE_EQ(gain_of({50, 200}).median, 1) << "twice as good and half as good";
  EXPECT_DOUBLE_EQ(gain_of({50, 25, 100, 200}).median, std::sqrt(2.0));
  EXPECT_EQ(gain_of({50, INFINITY}).median, 0) << "half of the searches missed the target";
  EXPECT_DOUBLE_EQ(gain_of({50, 25, INFINITY}).median, 2);
}

TEST(Summary, SaysWhatIsNotFinishedAndWhatIsLeftOut) {
  study::Outline study = goal();
  std::vector<Record> records = {simple_record({{"rule", "none"}}, 0, 0, 100, 1.2),
                                 simple_record({{"rule", "none"}}, 1, 0, {}, 1.9),
                                 simple_record({{"rule", "none"}}, 1, 1, {}, 1.9)};
  const auto warnings = [&] { return study::summarize(study, records).conditions[0].warnings; };
  study.objectives[0].planned[study::label_key({{"rule", "none"}})] = 4;
  EXPECT_EQ(warnings(), std::vector<std::string>{"only 3 of 4 trials have ended so far"});
  records.push_back(simple_record({{"rule", "none"}}, 0, 1, 90, 1.2));
  EXPECT_EQ(warnings(), std::vector<std::string>{"only 1 of 2 searches reached the target"});
  records[1].status = records[2].status = Status::diverged;
  EXPECT_EQ(warnings()[0],
            "the best loss leaves out 1 of 2 searches, in which no trial was feasible");
  records.push_back(simple_record({{"rule", "other"}}, 0, 0, 50, 1.2));
  const auto other = study::summarize(study, records).conditions[1].warnings;
  ASSERT_EQ(other.size(), 1u);
  EXPECT_EQ(other[0].find("a search has 1 trials, and one of the baseline 2"), 0u) << other[0];
}

TEST(Summary, AccuracyIsBetterWhereItIsGreater) {
  study::Outline study = goal(0.8);
  study.objectives[0].accuracy = true;
  study.objectives[0].clock = kSteps;
  const std::vector<Record> records = {simple_record({{"a", 1}}, 0, 0, {}, 0.7),
                                       simple_record({{"a", 1}}, 0, 1, {}, 0.75)};
  const auto summary = study::summarize(study, records);
  EXPECT_EQ(summary.conditions[0].best_metric.median, 0.75);
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
  study::Outline study = goal();
  study.figures = {{{"kind", "to_target"}, {"baseline", {{"rule", "fixed"}}}}};
  const std::vector<Record> records = {simple_record({{"rule", "fixed"}}, 0, 0, 200, 1.2),
                                       simple_record({{"rule", "linear"}}, 0, 0, 100, 1.2)};
  EXPECT_EQ(study::summarize(study, records).conditions[1].gain[kFresh].median, 2);
  study.baseline = {{"rule", "linear"}};
  EXPECT_EQ(study::summarize(study, records).conditions[0].gain[kFresh].median, 0.5);
}

// Adds a search of eight trials at the same point, which lies at `unit` in the range of the rate.
// Only the first `feasible` trials are feasible.
void add_search(std::vector<Record>& records, uint64_t search, double unit, size_t feasible = 8) {
  for (uint64_t i = 0; i < 8; ++i) {
    records.push_back(simple_record({{"a", 1}}, search, i, 100.0 + static_cast<double>(i), 1.2));
    records.back().point = {{"rate", 1 + unit}, {"kind", 1}};
    records.back().unit = {unit, 0.01};
    if (i >= feasible) records.back().status = Status::diverged;
  }
}

study::Outline searched_goal() {
  study::Outline study = goal();
  const Json space = {{"rate", {{"from", 1}, {"to", 2}}}, {"kind", {{"values", {1, 2}}}}};
  study.objectives[0].spaces.emplace(study::label_key({{"a", 1}}), study::Space(space, "space"));
  return study;
}

TEST(Summary, WarnsOfBordersAndFewFeasibleTrials) {
  std::vector<Record> records;
  add_search(records, 0, 0.96, 3);
  const auto warnings = study::summarize(searched_goal(), records).conditions[0].warnings;
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_EQ(warnings[0], "only 3 of 8 trials were feasible; the others diverged or failed");
  EXPECT_EQ(warnings[1],
            "the best trial has rate = 1.96, at the upper border of its range: widen the search");
  for (Record& record : records) record.status = Status::failed;
  const auto none = study::summarize(searched_goal(), records);
  EXPECT_EQ(none.conditions[0].warnings[0], "no trial was feasible: all diverged or failed");
  EXPECT_FALSE(none.conditions[0].best);
}

// The ends of a range of few whole numbers are far from 0 and 1 in the unit cube.
TEST(Summary, TheBorderOfWholeNumbersIsTheirLastOne) {
  study::Outline study = searched_goal();
  study.objectives[0].spaces.begin()->second.change(
      {{"rate", {{"from", 8}, {"to", 12}, {"integer", true}}}}, "space");
  for (const auto& [value, unit, warns] :
       {std::tuple(12, 0.945, true), {8, 0.11, true}, {11, 0.955, false}}) {
    std::vector<Record> records;
    add_search(records, 0, unit);
    for (Record& record : records) record.point["rate"] = value;
    EXPECT_EQ(study::summarize(study, records).conditions[0].warnings.size(), warns ? 1u : 0u)
        << value;
  }
}

TEST(Summary, WarnsOfTheBordersOfEachSearchInTheConditionsOwnSpace) {
  std::vector<Record> records;
  add_search(records, 0, 0.5);
  add_search(records, 1, 0.01);
  add_search(records, 2, 0.04);
  records[0].to_target->fresh = 1;  // the best trial of all is in the middle of the range
  study::Outline study = searched_goal();
  const auto warnings = study::summarize(study, records).conditions[0].warnings;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0],
            "the best trials of 2 of 3 searches have rate = 1.01, 1.04, at the lower border of its "
            "range: widen the search");
  // Scaled keys are in the point, but not in the space.
  for (Record& record : records) record.point["scaled"] = 3;
  EXPECT_EQ(study::summarize(study, records).conditions[0].warnings.size(), 1u);
  study.objectives[0].spaces.begin()->second.change({{"rate", {{"values", {1, 2}}}}}, "space");
  EXPECT_TRUE(study::summarize(study, records).conditions[0].warnings.empty());
}

TEST(Summary, WarnsOfSecondsOfSeveralDevices) {
  std::vector<Record> records = {simple_record({{"a", 1}}, 0, 0, 100, 1.2),
                                 simple_record({{"a", 2}}, 0, 0, 100, 1.2)};
  records[0].device = "one", records[1].device = "two";
  study::Outline study = goal();
  EXPECT_TRUE(study::summarize(study, records).workloads[0].warnings.empty());
  study.objectives[0].clock = 3;
  const auto summary = study::summarize(study, records);
  ASSERT_EQ(summary.workloads[0].warnings.size(), 1u);
  EXPECT_NE(summary.workloads[0].warnings[0].find(
                "2 devices, which makes them hard to compare: one; two"),
            std::string::npos);
  EXPECT_EQ(study::to_json(summary, records)["workloads"][0]["warnings"].size(), 1u);
  records[1].device = "one";
  EXPECT_TRUE(study::summarize(study, records).workloads[0].warnings.empty());
}

// Equal scores are ordered by the better metric, then by the lower number, never by the order of
// the records.
TEST(Summary, TheBestTrialIsTheSameInAnyOrder) {
  std::vector<Record> records = {
      simple_record({{"a", 1}}, 0, 2, 100, 1.4), simple_record({{"a", 1}}, 0, 3, 100, 1.3),
      simple_record({{"a", 1}}, 0, 1, 100, 1.4), simple_record({{"a", 1}}, 1, 0, 100, 1.3)};
  const auto best = [&] {
    const auto summary = study::summarize(goal(), records);
    const Record& of_all = records[*summary.conditions[0].best];
    const Record& of_search = records[*summary.conditions[0].searches[0].best];
    return std::array{of_all.search, of_all.trial, of_search.search, of_search.trial};
  };
  const std::array<uint64_t, 4> third{0, 3, 0, 3};
  EXPECT_EQ(best(), third);
  std::reverse(records.begin(), records.end());
  EXPECT_EQ(best(), third);
  for (Record& record : records) record.best_metric = 1.3;
  const std::array<uint64_t, 4> first{0, 1, 0, 1};
  EXPECT_EQ(best(), first);
  std::reverse(records.begin(), records.end());
  EXPECT_EQ(best(), first);
}

// Searches that the baseline missed count, too. Without them, only searches would count in which
// the baseline did well.
TEST(Summary, GainsCountSearchesThatOnlyOneHasReached) {
  std::vector<Record> records;
  const auto add = [&](uint64_t search, std::optional<double> base, std::optional<double> other) {
    records.push_back(simple_record({{"variant", "none"}}, search, 0, base, 1.4));
    records.push_back(simple_record({{"variant", "x"}}, search, 0, other, 1.4));
  };
  const auto gain = [&] {
    const auto summary = study::summarize(goal(), records);
    return study::to_json(summary, records)["conditions"][1]["gain"]["fresh"];
  };
  add(0, 200, 100);
  add(1, {}, 100);
  add(2, {}, {});
  EXPECT_EQ(gain(),
            Json::parse(R"({"median": 2, "min": 2, "max": null, "pairs": 2, "reached": 2})"));
  add(3, 200, {});
  EXPECT_EQ(gain(),
            Json::parse(R"({"median": 2, "min": 0, "max": null, "pairs": 3, "reached": 2})"));
  add(4, {}, 100);
  add(5, {}, 100);
  EXPECT_EQ(gain(),
            Json::parse(R"({"median": null, "min": 0, "max": null, "pairs": 5, "reached": 4})"));
  EXPECT_TRUE(std::isinf(study::summarize(goal(), records).conditions[1].gain[kFresh].median));
  records.clear();
  add(0, {}, {});
  EXPECT_EQ(gain()["pairs"], 0);
  const auto none = study::summarize(goal(), records);
  EXPECT_TRUE(std::isnan(none.conditions[1].gain[kFresh].median));
}

// Steps fall nearly as 1000 * 16 / batch up to 128, more slowly beyond, and hardly from 512 on.
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
    records.back().to_target->examples = steps * batch;
  }
  records[1].noise_scale = 50;
  records[4].noise_scale = 300;
  records[5].noise_scale = 200;
  const auto summary = study::summarize(goal(), records);
  ASSERT_EQ(summary.scaling.size(), 1u);
  EXPECT_EQ(summary.scaling[0].labels, (Json{{"optimizer", "sgd"}}));
  EXPECT_EQ(summary.scaling[0].perfect_until, 128);   // within 20 %: 149 of 125, but not 90 of 62.5
  EXPECT_EQ(summary.scaling[0].largest_useful, 512);  // 62 is within 5 % of 60
  const double ratio = 16000.0 / 60;                  // at batches of 16 and 1024
  EXPECT_DOUBLE_EQ(*summary.scaling[0].critical_batch, (ratio - 16) / (1 - ratio / 1024));
  EXPECT_EQ(summary.scaling[0].noise_scale.median, 200);
  EXPECT_EQ(study::to_json(summary, records)["scaling"][0]["noise_scale"],
            Json::parse(R"({"median": 200, "min": 50, "max": 300, "reached": 3, "count": 3})"));
  records.front().to_target.reset();
  records.front().status = Status::missed;
  const auto unknown = study::summarize(goal(), records);
  EXPECT_FALSE(unknown.scaling[0].perfect_until);
  EXPECT_EQ(unknown.scaling[0].largest_useful, 512);
  const double next = 505.0 * 32 / 60;  // at batches of 32 and 1024
  EXPECT_DOUBLE_EQ(*unknown.scaling[0].critical_batch, (next - 32) / (1 - next / 1024));
  for (Record& record : records) record.to_target.reset();
  EXPECT_FALSE(study::summarize(goal(), records).scaling[0].critical_batch);
}

TEST(Summary, EachWorkloadHasItsOwnLabelForBatchSizes) {
  std::vector<Record> records;
  for (const auto& [workload, label] : {std::pair("w", "batch"), {"v", "batch_size"}})
    for (const double size : {16, 32, 64}) {
      records.push_back(simple_record({{label, size}, {"batch_order", "any"}}, 0, 0, 16000, 1.2));
      records.back().workload = workload;
      records.back().to_target->steps = 16000 / size;
    }
  study::Outline study = goal();
  study.objectives.push_back(study.objectives[0]);
  study.objectives.back().workload = "v";
  const auto summary = study::summarize(study, records);
  EXPECT_EQ(summary.workloads[0].batch_label, "batch");
  EXPECT_EQ(summary.workloads[1].batch_label, "batch_size");
  ASSERT_EQ(summary.scaling.size(), 2u);
  for (const study::ScalingResult& scaling : summary.scaling)
    EXPECT_EQ(scaling.batches, (std::vector<double>{16, 32, 64}));
}

// From points of the model itself; and where scaling is perfect, or there is none.
TEST(Summary, FindsTheCriticalBatch) {
  const auto found = [](const auto& steps_of) {
    std::vector<Record> records;
    for (const double batch : {16.0, 64.0, 256.0, 1024.0}) {
      const double steps = steps_of(batch);
      records.push_back(simple_record({{"batch", batch}}, 0, 0, steps * batch, 1.2));
      records.back().to_target->steps = steps;
      records.back().to_target->examples = steps * batch;
    }
    return study::summarize(goal(), records).scaling[0].critical_batch;
  };
  for (const double critical : {40.0, 200.0, 900.0})
    EXPECT_NEAR(*found([&](double batch) { return 100 * (1 + critical / batch); }), critical, 1e-6);
  EXPECT_FALSE(found([](double batch) { return 1e5 / batch; }));
  EXPECT_FALSE(found([](double) { return 100; }));
}

TEST(Summary, WorkloadsHaveGoalsOfTheirOwn) {
  study::Outline study = test::outline("second", 0.9);
  study.objectives[0].accuracy = true;
  study.objectives.push_back(goal().objectives[0]);
  study.objectives.push_back(test::outline("without records").objectives[0]);
  std::vector<Record> records = {simple_record({{"a", 1}}, 0, 0, 100, 1.2),
                                 simple_record({{"a", 1}}, 0, 0, 200, 0.95)};
  records[1].workload = "second";
  const auto summary = study::summarize(study, records);
  ASSERT_EQ(summary.objectives.size(), 2u);
  EXPECT_EQ(summary.objectives[0].workload, "second");
  EXPECT_EQ(summary.objectives[1].target, 1.5);
  EXPECT_EQ(summary.conditions[0].workload, 0u);
  EXPECT_EQ(summary.conditions[0].to_target[kFresh].median, 200);
  records[1].workload = "third";
  EXPECT_THROW(study::summarize(study, records), Error);
}

size_t lines_of(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

TEST(Summary, TellsWhetherTrialsEndedAtTheTarget) {
  std::vector<Record> records = {simple_record({{"a", 1}}, 0, 0, 100, 1.2),
                                 simple_record({{"a", 1}}, 0, 1, {}, 1.9)};
  records[0].spent = *records[0].to_target;
  records[1].spent.steps = 1000;
  EXPECT_TRUE(study::summarize(goal(), records).workloads[0].ends_at_target);
  records[0].spent.steps += 1;
  EXPECT_FALSE(study::summarize(goal(), records).workloads[0].ends_at_target);
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
  const auto summary = study::summarize(goal(), {});
  EXPECT_TRUE(summary.conditions.empty());
  EXPECT_TRUE(study::to_json(summary, {})["conditions"].empty());
}

}  // namespace
}  // namespace etr

#include "study/records.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "core/error.h"
#include "core/parse_json.h"
#include "support/error_text.h"
#include "support/temp_dir.h"

namespace etr::test {
namespace {

using study::Record;
using study::Status;

Record record() {
  Record r;
  r.workload = "mlp";
  r.condition = {{"variant", "none"}, {"factor", 1}};
  r.search = 2;
  r.trial = 3;
  r.seed = (uint64_t{1} << 53) - 1;
  r.digest = "ab12";
  r.point = {{"schedule.learning_rate", 0.12}};
  r.unit = {0.61, 0.33};
  r.status = Status::reached;
  r.to_target = study::Clock{53760, 107520, 840, 9.25};
  r.best_metric = -1.5;
  r.best_at = {53760, 107520, 840, 9.25};
  r.final_metric = 1.5125;
  r.spent = {53760, 107520, 840, 9.5};
  r.elapsed = 10.125;
  r.device_wait_share = 0.125;
  r.curve = {{{1, 2, 3, 0.5}, 2.25, study::kNone, 2.5}, {{4, 5, 6, 1.5}, 1.25, 0.5, 2.0}};
  r.device = "llvmpipe";
  r.time = "2026-11-23T15:40:00Z";
  r.version = "0.1.0";
  return r;
}

TEST(Records, OfEarlierVersionsHaveNoElapsedTime) {
  Json line = to_json(record());
  EXPECT_EQ(study::record_of(line).elapsed, 10.125);
  line.erase("elapsed");
  EXPECT_EQ(study::record_of(line).elapsed, 0);
}

TEST(Records, OfEarlierVersionsHaveFormerStatuses) {
  Json line = to_json(record());
  line["to_target"] = nullptr;
  line["status"] = "beaten";
  EXPECT_EQ(study::record_of(line).status, Status::slower);
  line["status"] = "hopeless";
  EXPECT_EQ(study::record_of(line).status, Status::pruned);
}

TEST(Records, ThatContradictThemselvesAreDamaged) {
  Json line = to_json(record());
  line["status"] = "missed";
  EXPECT_NE(
      error_text([&] { study::record_of(line); }).find("is 'missed', and it has a 'to_target'"),
      std::string::npos);
  line["status"] = "reached";
  line["to_target"] = nullptr;
  EXPECT_NE(error_text([&] { study::record_of(line); }).find("it has no 'to_target'"),
            std::string::npos);
}

TEST(Records, AreReadBackAsWritten) {
  Record one = record();
  EXPECT_EQ(to_json(study::record_of(to_json(one))).dump(), to_json(one).dump());
  EXPECT_EQ(to_json(one)["condition"].dump(), R"({"variant":"none","factor":1})");
  EXPECT_EQ(to_json(one)["best"]["metric"], -1.5);
  EXPECT_EQ(to_json(one)["to_target"].dump(),
            R"({"fresh":53760,"examples":107520,"steps":840,"seconds":9.25})");
  one.status = Status::failed;
  one.error = "no data";
  one.to_target.reset();
  one.noise_scale = 17;
  one.best_metric = study::kNone;
  const Record back = study::record_of(parse_json(to_json(one).dump(), "record"));
  EXPECT_EQ(back.error, "no data");
  EXPECT_FALSE(back.to_target);
  EXPECT_EQ(back.noise_scale, 17);
  EXPECT_TRUE(std::isnan(back.best_metric));
  EXPECT_TRUE(std::isnan(back.curve[0].accuracy));
}

TEST(Records, ATornLineIsLeftOutAndTheLastOfATrialCounts) {
  TempDir dir;
  const std::string path = dir.path("trials.jsonl");
  EXPECT_TRUE(study::read_records(path).empty());
  Record one = record(), again = record(), other = record();
  again.best_metric = 7;
  other.trial = 4;
  const std::string torn = to_json(other).dump();
  std::ofstream(path) << to_json(one).dump() << '\n'
                      << to_json(other).dump() << '\n'
                      << to_json(again).dump() << '\n'
                      << torn.substr(0, torn.size() / 2);
  const auto read = study::read_records(path);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].best_metric, 7);
  EXPECT_EQ(read[1].trial, 4u);
}

TEST(Records, ErrorsNameTheLineAndWhatIsWrong) {
  TempDir dir;
  const std::string path = dir.path("trials.jsonl");
  const auto problem = [&](const std::function<void(Json&)>& damage) {
    Json line = to_json(record());
    damage(line);
    std::ofstream(path) << to_json(record()).dump() << '\n' << line.dump() << '\n';
    return error_text([&] { study::read_records(path); });
  };
  const auto expect = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find("line 2"), std::string::npos) << text;
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(problem([](Json& j) { j["status"] = "reachd"; }), "did you mean 'reached'");
  expect(problem([](Json& j) { j.erase("unit_point"); }), "'unit_point'");
  expect(problem([](Json& j) { j["trial"] = -1; }), "'trial'");
  expect(problem([](Json& j) { j["v"] = 2; }), "version 2");
  expect(problem([](Json& j) { j["best"]["metric"] = "low"; }), "'metric'");
  expect(problem([](Json& j) { j["curve"]["loss"].push_back(1); }),
         "the curve has 2 values of 'steps' and 3 of 'loss'");
  expect(problem([](Json& j) { j["curve"].erase("fresh"); }), "'fresh'");
  expect(problem([](Json& j) { j = 3; }), "not an object");
  std::ofstream(path) << "\n" << to_json(record()).dump() << "\r\n\n  \n{\n";
  const std::string damaged = error_text([&] { study::read_records(path); });
  EXPECT_NE(damaged.find("line 5"), std::string::npos) << damaged;
  EXPECT_TRUE(damaged.ends_with(": remove the line; its trial runs again")) << damaged;
  std::ofstream(path) << "\n" << to_json(record()).dump() << "\r\n\n  \n";
  EXPECT_EQ(study::read_records(path).size(), 1u) << "empty lines are ignored";
}

}  // namespace
}  // namespace etr::test

#include "study/runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "core/platform.h"
#include "study/labels.h"
#include "study/small_study.h"
#include "support/error_text.h"
#include "support/eventually.h"

namespace etr::test {
namespace {

using study::EventKind;

// Returns the study's records by trial, without the fields that depend on time.
std::map<std::string, Json> findings(const std::string& folder) {
  std::map<std::string, Json> out;
  for (const Record& record : records_in(folder)) {
    Json json = to_json(record);
    for (const char* key : {"time", "elapsed", "device_wait_share"}) json.erase(key);
    for (const char* key : {"to_target", "best", "spent"})
      if (json[key].is_object()) json[key].erase("seconds");
    json["curve"].erase("seconds");
    out[cat(record.workload, record.condition.dump(), record.search, ".", record.trial)] = json;
  }
  return out;
}

std::string file_of(const std::string& folder) {
  return platform::read_file(folder + "/trials.jsonl");
}

class Studies : public testing::Test {
 protected:
  std::string folder(const std::string& name = "study") const { return dir_.path(name); }
  TempDir dir_;
  Json json_ = study_json(dir_);
};

TEST_F(Studies, RecordsWhatEachTrialDid) {
  const auto events = run_study(json_, folder());
  const auto records = records_in(folder());
  ASSERT_EQ(records.size(), 8u);
  size_t reached = 0;
  for (const Record& record : records) {
    EXPECT_NE(record.host.find("thread"), std::string::npos) << record.host;
    ASSERT_FALSE(record.curve.empty());
    EXPECT_GT(record.curve.front().at.fresh, 0);
    const auto below = std::find_if(record.curve.begin(), record.curve.end(),
                                    [](const auto& point) { return point.loss < 0.7; });
    EXPECT_EQ(record.status == Status::reached, below != record.curve.end());
    if (record.status == Status::missed) {
      EXPECT_EQ(record.spent.steps, 40);
    }
    if (!record.to_target) continue;
    ++reached;
    EXPECT_EQ(record.to_target->steps, below->at.steps);
    EXPECT_EQ(below + 1, record.curve.end()) << "the trial ends at its target";
  }
  EXPECT_GT(reached, 0u);
  EXPECT_EQ(events.back().done, 8u);
  EXPECT_EQ(std::count_if(events.begin(), events.end(),
                          [](const auto& event) { return event.kind == EventKind::trial; }),
            8);
  EXPECT_EQ(std::count_if(events.begin(), events.end(),
                          [](const auto& event) { return event.kind == EventKind::condition; }),
            2);
  const Json results = study::results(parsed(json_), folder());
  EXPECT_EQ(
      results[0]["counts"]["reached"].get<size_t>() + results[1]["counts"]["reached"].get<size_t>(),
      reached);
}

TEST_F(Studies, CountFreshExamplesWhereAnEchoNodeRepeatsThem) {
  const Json echo{{"stage", "echo"}, {"factor", 2}, {"buffer", 64}};
  Json& stages = json_["job"]["pipeline"]["stages"];
  stages.insert(stages.begin() + 4, echo);
  json_["set"] = {"pipeline.stages.4.factor=${factor}"};
  json_["for"] = {{"factor", {1, 4}}};
  json_["goal"].erase("target");
  json_["budget"] = {{"fresh", 640}};
  json_["evaluate"] = {{"every_fresh", 160}};
  run_study(json_, folder());
  for (const Record& record : records_in(folder())) {
    EXPECT_EQ(record.status, Status::missed);
    EXPECT_GE(record.spent.fresh, 640);
    EXPECT_LT(record.spent.fresh, 640 + 2 * 32);
    const double factor = record.condition["factor"].get<double>();
    EXPECT_NEAR(record.spent.examples / record.spent.fresh, factor, 0.35) << factor;
    ASSERT_EQ(record.curve.size(), 4u);
    for (size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(record.curve[i].at.fresh, 160.0 * static_cast<double>(i + 1), 32);
  }
}

TEST_F(Studies, TrialsAtOnceFindTheSame) {
  run_study(json_, folder("one"), 1);
  run_study(json_, folder("three"), 3);
  const auto one = findings(folder("one")), three = findings(folder("three"));
  ASSERT_EQ(one.size(), 8u);
  EXPECT_EQ(one, three);
  const auto records = study::records_of(parsed(json_), folder("three"));
  EXPECT_TRUE(std::is_sorted(records.begin(), records.end(), [](const auto& a, const auto& b) {
    return std::make_tuple(a.condition["batch"], a.search, a.trial) <
           std::make_tuple(b.condition["batch"], b.search, b.trial);
  }));
}

TEST_F(Studies, WhatIsSearchedCompilesNoKernels) {
  json_.erase("for");
  json_["set"] = {"pipeline.stages.5.size=24"};
  json_["search"]["space"]["optimizer.weight_decay"] = {
      {"from", 1e-5}, {"to", 1e-2}, {"scale", "log"}};
  json_["search"]["space"]["model.loss.label_smoothing"] = {{"from", 0.01}, {"to", 0.2}};
  json_["goal"].erase("target");
  Runner runner(study_kernels(), parsed(json_), run_options(folder()));
  std::vector<size_t> made;
  for (study::Event event; (event = runner.next_event(1)).kind != EventKind::end;)
    if (event.kind == EventKind::trial) made.push_back(kernels().count());
  ASSERT_EQ(made.size(), 4u);
  EXPECT_GT(made.front(), 0u);
  EXPECT_EQ(made.front(), made.back());
}

TEST_F(Studies, AFinishedTrialIsNotRunAgain) {
  json_["search"]["trials"] = 2;
  run_study(json_, folder());
  const std::string before = file_of(folder());
  auto events = run_study(json_, folder());
  EXPECT_EQ(file_of(folder()), before);
  EXPECT_EQ(events.back().resumed, 4u);
  json_["search"]["trials"] = 3;
  json_["search"]["searches"] = 2;
  json_["for"]["batch"].push_back(8);
  events = run_study(json_, folder());
  EXPECT_EQ(file_of(folder()).substr(0, before.size()), before);
  EXPECT_EQ(records_in(folder()).size(), 18u);
  EXPECT_EQ(events.back().resumed, 4u);
}

// The estimate is based on the trials of earlier parts as long as none of this part has finished.
// It includes the time of evaluations.
TEST_F(Studies, TheTimeLeftIsKnownWhereAStudyGoesOn) {
  run_study(json_, folder());
  json_["search"]["trials"] = 8;
  double once = 0;
  for (const Record& record : records_in(folder())) {
    EXPECT_GT(record.elapsed, record.spent.seconds);
    once += record.elapsed;
  }
  Runner runner(study_kernels(), parsed(json_), run_options(folder()));
  const study::Event first = runner.next_event(0);
  EXPECT_EQ(first.kind, EventKind::progress);
  EXPECT_LE(first.seconds_left, 1.001 * once);  // each condition has as many left as done
  EXPECT_GE(first.seconds_left, 0.85 * once);   // one of them may be running
}

TEST_F(Studies, AKilledStudyGoesOnAfterItsLastWholeLine) {
  run_study(json_, folder("whole"));
  run_study(json_, folder());
  const std::string lines = file_of(folder());
  const size_t third = lines.find('\n', lines.find('\n', lines.find('\n') + 1) + 1) + 1;
  std::ofstream(folder() + "/trials.jsonl") << lines.substr(0, third + 40);
  const auto events = run_study(json_, folder());
  EXPECT_EQ(events.back().resumed, 3u);
  EXPECT_EQ(file_of(folder()).substr(0, third), lines.substr(0, third));
  EXPECT_EQ(findings(folder()), findings(folder("whole")));
}

TEST_F(Studies, AChangedStudyIsRefusedWithTheKeyThatDiffers) {
  json_["search"]["trials"] = 1;
  run_study(json_, folder());
  Json changed = json_;
  changed["job"]["optimizer"]["weight_decay"] = 0.01;
  const auto problem = [&](const Json& json) {
    return error_text([&] { Runner(study_kernels(), parsed(json), run_options(folder())); });
  };
  EXPECT_NE(problem(changed).find("'job.optimizer.weight_decay' is new: 0.01"), std::string::npos)
      << problem(changed);
  EXPECT_NE(problem(changed).find("--overwrite"), std::string::npos);
  changed = json_;
  changed["budget"]["steps"] = 80;
  EXPECT_NE(problem(changed).find("steps' was 40"), std::string::npos) << problem(changed);
  const std::string reported = error_text([&] { study::records_of(parsed(changed), folder()); });
  EXPECT_NE(reported.find("steps' was 40"), std::string::npos) << reported;
  run_study(changed, folder(), 1, /*overwrite=*/true);
  for (const Record& record : records_in(folder()))
    if (record.status == Status::missed) {
      EXPECT_EQ(record.spent.steps, 80);
    }
  EXPECT_EQ(problem(changed), "");
}

// A trial fails if the job refuses a value that was drawn. Failed trials are not checked for
// changes when the study goes on; they run again.
TEST_F(Studies, GoOnAfterATrialWhoseValueTheJobRefuses) {
  json_["for"].erase("batch");
  json_["set"] = {"pipeline.stages.5.size=16"};
  json_["search"]["trials"] = 16;
  json_["search"]["space"]["optimizer.momentum"] = {{"values", {0, 0.5}}};
  json_["search"]["space"]["optimizer.nesterov"] = {{"values", {false, true}}};
  run_study(json_, folder());
  uint64_t failed = 0;
  for (const Record& record : study::records_of(parsed(json_), folder())) {
    if (record.status != Status::failed) continue;
    EXPECT_NE(record.error.find("nesterov needs a momentum above 0"), std::string::npos)
        << record.error;
    ++failed;
  }
  EXPECT_GT(failed, 0u);
  EXPECT_EQ(run_study(json_, folder()).back().resumed, 16 - failed);
}

// The study ends with an error instead of recording all remaining trials as failed.
TEST_F(Studies, EndWhereTrialsFailOfWhichOthersHaveTrained) {
  json_["search"]["trials"] = 2;
  run_study(json_, folder());
  json_["search"]["trials"] = 12;
  const std::filesystem::path data =
      json_["job"]["pipeline"]["stages"][0]["pattern"].get<std::string>();
  std::filesystem::rename(data, data.string() + ".away");
  const std::string text = error_text([&] { run_study(json_, folder(), 1); });
  EXPECT_NE(text.find("8 trials, one after another, have failed with one error, although others of "
                      "that condition have trained: "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(data.filename().string()), std::string::npos) << text;
  std::filesystem::rename(data.string() + ".away", data);
  EXPECT_EQ(run_study(json_, folder()).back().resumed, 4u);
  for (const Record& record : records_in(folder())) EXPECT_NE(record.status, Status::failed);
}

TEST_F(Studies, GoOnWhereTheDataWasMoved) {
  json_["search"]["trials"] = 2;
  run_study(json_, folder());
  const std::string before = file_of(folder());
  std::filesystem::create_directory(folder("elsewhere"));
  Json& job = json_["job"];
  for (Json* pipeline : {&job["pipeline"], &job["evaluation"]["pipeline"]}) {
    Json& pattern = (*pipeline)["stages"][0]["pattern"];
    const std::filesystem::path old = pattern.get<std::string>();
    pattern = folder("elsewhere") + "/" + old.filename().string();
    std::filesystem::rename(old, pattern.get<std::string>());
  }
  EXPECT_EQ(run_study(json_, folder()).back().resumed, 4u);
  EXPECT_EQ(file_of(folder()), before);
  json_["search"]["trials"] = 3;  // new trials find the data there
  EXPECT_EQ(run_study(json_, folder()).back().resumed, 4u);
  for (const Record& record : records_in(folder())) EXPECT_NE(record.status, Status::failed);
}

TEST_F(Studies, OneProcessHasTheFolderAndNothingElseIsMixedIn) {
  const Runner one(study_kernels(), parsed(json_), run_options(folder()));
  const std::string text =
      error_text([&] { Runner(study_kernels(), parsed(json_), run_options(folder())); });
  EXPECT_NE(text.find("another study writes into"), std::string::npos) << text;
  std::filesystem::create_directory(folder("other"));
  std::ofstream(folder("other") + "/photo.txt") << "x";
  for (const bool overwrite : {false, true})
    EXPECT_NE(error_text([&] {
                Runner(study_kernels(), parsed(json_), run_options(folder("other"), 1, overwrite));
              }).find("holds no study, but 'photo.txt'"),
              std::string::npos);
}

TEST_F(Studies, DivergedTrialsAreCountedAndNeverFeasible) {
  json_["search"]["space"] = {{"schedule.learning_rate", {{"values", {0.05, 1000}}}}};
  json_["search"]["trials"] = 4;
  json_["goal"]["target"] = 1e-9;
  const auto events = run_study(json_, folder());
  size_t diverged = 0;
  for (const Record& record : records_in(folder())) {
    EXPECT_EQ(record.status == Status::diverged, record.point["schedule.learning_rate"] == 1000)
        << to_json(record).dump();
    diverged += record.status == Status::diverged;
  }
  EXPECT_EQ(diverged, 4u);
  const Json results = study::results(parsed(json_), folder());
  EXPECT_EQ(results[0]["searches"][0]["feasible"], 2);
  EXPECT_EQ(results[0]["best"]["point"]["schedule.learning_rate"], 0.05);
  EXPECT_NE(results[0]["warnings"].dump().find("no trial reached the target"), std::string::npos);
}

TEST_F(Studies, AFailedTrialIsKeptWithItsErrorAndRunAgainLater) {
  // The data cannot fill batches of 100,000: these trials fail, and the others run.
  json_["for"]["batch"] = {16, 100000};
  json_["job"]["pipeline"]["stages"].erase(1);
  json_["set"] = {"pipeline.stages.4.size=${batch}"};
  json_["search"]["trials"] = 2;
  run_study(json_, folder());
  size_t failed = 0;
  for (const Record& record : records_in(folder()))
    if (record.condition["batch"] == 100000) {
      EXPECT_EQ(record.status, Status::failed);
      EXPECT_NE(record.error.find("gave no batch"), std::string::npos) << record.error;
      ++failed;
    }
  EXPECT_EQ(failed, 2u);
  EXPECT_EQ(run_study(json_, folder()).back().resumed, 2u);
}

// Returns a setting for two ranks, the first on the device under test, the second on `second`.
std::string two_ranks(const std::string& second = study_kernels()->device()->info().name) {
  const Json devices{study_kernels()->device()->info().name, second};
  return "parallel.devices=" + devices.dump();
}

// One rank and two ranks train on the same number of examples per step.
TEST_F(Studies, TrialsTrainOnAsManyRanksAsTheJobNamesDevices) {
  json_.erase("for");
  json_["goal"].erase("target");
  json_["conditions"] = {
      {{"labels", {{"ranks", 1}}}, {"set", {"pipeline.stages.5.size=32"}}},
      {{"labels", {{"ranks", 2}}}, {"set", {"pipeline.stages.5.size=16", two_ranks()}}}};
  run_study(json_, folder(), 1);
  const auto records = records_in(folder());
  ASSERT_EQ(records.size(), 8u);
  for (const Record& record : records) {
    EXPECT_EQ(record.status, Status::missed) << record.error;
    EXPECT_EQ(record.spent.steps, 40);
    EXPECT_EQ(record.spent.examples, 40 * 32);
    EXPECT_EQ(record.device, study_kernels()->device()->info().name);
  }
  run_study(json_, folder("two at once"), 2);
  EXPECT_EQ(findings(folder("two at once")), findings(folder()));
}

TEST_F(Studies, ATrialWithRanksEndsAtItsTargetAndWhenItIsStopped) {
  json_["set"].push_back(two_ranks());
  json_["goal"]["target"] = 100;
  run_study(json_, folder());
  for (const Record& record : records_in(folder())) {
    ASSERT_TRUE(record.to_target) << record.error;
    EXPECT_EQ(record.to_target->steps, 5);
  }
  json_["goal"].erase("target");
  json_["budget"] = {{"steps", 1000000}};
  Runner runner(study_kernels(), parsed(json_), run_options(folder("stopped")));
  EXPECT_TRUE(eventually([&] { return runner.next_event(0.05).running == 1; }));
  runner.next_event(0.3);  // the trial is training by now
  runner.stop();
  study::Event event;
  do event = runner.next_event(1);
  while (event.kind != EventKind::end);
  EXPECT_EQ(event.done, 0u);
}

TEST_F(Studies, ARankWithoutADeviceFailsItsTrial) {
  json_["set"].push_back(two_ranks("nowhere"));
  json_["for"]["batch"] = {16};
  const std::string text = error_text([&] { run_study(json_, folder()); });
  EXPECT_NE(text.find("the first 3 trials"), std::string::npos) << text;
  EXPECT_NE(text.find("no Vulkan device matches 'nowhere'"), std::string::npos) << text;
  json_["set"].back() = R"(parallel.devices=["nowhere", "nowhere"])";
  EXPECT_NE(error_text([&] { run_study(json_, folder("both")); }).find("'nowhere'"),
            std::string::npos);
}

TEST_F(Studies, EndsWithOneErrorOfAllRanks) {
  json_["set"].push_back(two_ranks());
  json_["set"].push_back("pipeline.stages.0.pattern=/nowhere/to-be-found.tar");
  const std::string text = error_text([&] { run_study(json_, folder()); });
  EXPECT_NE(text.find("the first 3 trials"), std::string::npos) << text;
  EXPECT_NE(text.find("/nowhere/to-be-found.tar"), std::string::npos) << text;
}

TEST_F(Studies, TrialsWithRanksWriteNoListOfBadRecords) {
  const std::string list = dir_.path("bad.jsonl");
  json_["set"].push_back(two_ranks());
  json_["set"].push_back("pipeline.bad_records_file=" + list);
  run_study(json_, folder());
  EXPECT_FALSE(std::filesystem::exists(list));
}

TEST_F(Studies, EndsWithTheErrorOfItsFirstTrials) {
  json_["set"].push_back("pipeline.stages.0.pattern=/nowhere/to-be-found.tar");
  for (const uint64_t parallel : {1u, 2u}) {
    const std::string name = folder(std::to_string(parallel));
    const std::string text = error_text([&] { run_study(json_, name, parallel); });
    EXPECT_NE(text.find("/nowhere/to-be-found.tar"), std::string::npos) << text;
    EXPECT_NE(text.find("the first 3 trials"), std::string::npos) << text;
    EXPECT_LT(records_in(name).size(), 8u);
  }
}

TEST_F(Studies, SlowerTrialsStopAndTheBestStays) {
  json_["search"]["trials"] = 8;
  json_["for"]["batch"] = {16};
  const auto scores = [&](const std::string& rule) {
    json_["stop_early"] = rule;
    run_study(json_, folder(rule));
    return study::results(parsed(json_), folder(rule))[0]["to_target"]["steps"].dump();
  };
  EXPECT_EQ(scores("none"), scores("slower"));
  size_t slower = 0;
  double fewest = INFINITY;
  for (const Record& record : records_in(folder("slower"))) {
    if (record.to_target) fewest = std::min(fewest, record.to_target->steps);
    if (record.status != Status::slower) continue;
    ++slower;
    EXPECT_GE(record.spent.steps, fewest);
    EXPECT_LT(record.spent.steps, 40);
  }
  EXPECT_GT(slower, 0u);
}

// A study that goes on reads its records, and has to decide as if it had not stopped.
TEST_F(Studies, DecideByWhatTheirRecordsKeep) {
  size_t points = 0;
  for (const study::Event& event : run_study(json_, folder())) {
    if (event.kind != EventKind::trial) continue;
    const Record kept = study::record_of(to_json(*event.record));
    ASSERT_EQ(kept.curve.size(), event.record->curve.size());
    EXPECT_EQ(kept.best_metric, event.record->best_metric);
    for (size_t i = 0; i < kept.curve.size(); ++i, ++points) {
      EXPECT_EQ(kept.curve[i].loss, event.record->curve[i].loss);
      EXPECT_EQ(kept.curve[i].accuracy, event.record->curve[i].accuracy);
    }
  }
  EXPECT_GT(points, 8u);
}

// The last of three trials no longer matches the study.
TEST_F(Studies, AReportChecksEachTrial) {
  json_["search"]["space"]["optimizer.momentum"] = {{"values", {0, 0.5}}};
  run_study(json_, folder());
  json_["search"]["space"]["optimizer.momentum"] = {{"values", {0, 0.4}}};
  const std::string why = error_text([&] { study::results(parsed(json_), folder()); });
  EXPECT_NE(why.find("that was run with another version of the study"), std::string::npos) << why;
}

TEST_F(Studies, PrunedTrialsAreWorseThanTheMedian) {
  json_["search"]["trials"] = 16;
  json_["for"]["batch"] = {16};
  json_["goal"].erase("target");
  json_["stop_early"] = "median";
  run_study(json_, folder());
  const auto records = records_in(folder());
  size_t pruned = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    if (records[i].status != Status::pruned) continue;
    ++pruned;
    EXPECT_GE(i, 5u);
    EXPECT_GE(records[i].spent.steps, 8);
    EXPECT_LT(records[i].spent.steps, 40);
    size_t better = 0, all = 0;
    for (size_t j = 0; j < i; ++j) {  // trials ran in order, so these had ended
      if (records[j].spent.steps < records[i].spent.steps) continue;
      double best = INFINITY;
      for (const auto& point : records[j].curve)
        if (point.at.steps <= records[i].spent.steps) best = std::min(best, point.loss);
      ++all;
      better += best < records[i].best_metric;
    }
    EXPECT_GE(all, 5u);
    EXPECT_GT(2 * better, all);
  }
  EXPECT_GT(pruned, 0u);
}

TEST_F(Studies, ScaledConditionsBeginFromTheBestOfTheirBase) {
  json_["for"]["batch"] = {16, 32};
  json_["conditions"] = {
      {{"labels", {{"rule", "linear"}}},
       {"scale",
        {{"schedule.learning_rate", {{"rule", "linear"}, {"with", "batch"}, {"at", 16}}},
         {"optimizer.momentum", {{"rule", "none"}, {"with", "batch"}, {"at", 16}}}}},
       {"trials", 2}},
      {{"labels", {{"rule", "tuned"}}}}};
  run_study(json_, folder(), 2);
  const Json results = study::results(parsed(json_), folder());
  Json base;
  for (const Json& result : results)
    if (result["name"] == "rule=tuned, batch=16") base = result;
  const Json tuned = base["best"]["point"];
  size_t scaled = 0;
  for (const Record& record : records_in(folder()))
    if (record.condition["rule"] == "linear") {
      const double factor = record.condition["batch"].get<double>() / 16;
      EXPECT_DOUBLE_EQ(record.point["schedule.learning_rate"].get<double>(),
                       factor * tuned["schedule.learning_rate"].get<double>());
      EXPECT_EQ(record.point["optimizer.momentum"], tuned["optimizer.momentum"]);
      EXPECT_TRUE(record.unit.empty());
      ++scaled;
    }
  EXPECT_EQ(scaled, 4u);
  EXPECT_EQ(run_study(json_, folder()).back().resumed, 12u);
  // With a better trial of the base, those that were scaled from the former best are to be run
  // again, and reports leave them out until then.
  EXPECT_EQ(study::records_of(parsed(json_), folder()).size(), 12u);
  Record better;
  for (const Record& record : records_in(folder()))
    if (study::label_key(record.condition) == study::label_key(base["labels"]) &&
        record.point != tuned)
      better = record;
  ASSERT_FALSE(better.point.is_null());
  better.status = Status::reached;
  better.to_target = study::Clock{1, 1, 1, 0.001};
  train::JsonLines(folder() + "/trials.jsonl").write(study::to_json(better));
  EXPECT_EQ(study::records_of(parsed(json_), folder()).size(), 8u);
}

TEST_F(Studies, AScaledConditionNamesTheBaseThatHasFailed) {
  json_["for"]["batch"] = {16, 32};
  json_["search"]["trials"] = 1;
  json_["conditions"] = {
      {{"labels", {{"kind", "well"}}}},
      {{"labels", {{"rule", "tuned"}}}, {"set", {"pipeline.stages.0.pattern=/nowhere${batch}"}}},
      {{"labels", {{"rule", "linear"}}},
       {"scale",
        {{"schedule.learning_rate", {{"rule", "linear"}, {"with", "batch"}, {"at", 16}}}}}}};
  run_study(json_, folder());
  size_t scaled = 0;
  for (const Record& record : records_in(folder()))
    if (record.condition.value("rule", "") == "linear") {
      EXPECT_EQ(record.status, Status::failed);
      EXPECT_NE(record.error.find("scale of 'schedule.learning_rate': its base is the best trial "
                                  "of the condition (rule=tuned, batch=16), of which all have "
                                  "failed"),
                std::string::npos)
          << record.error;
      ++scaled;
    }
  EXPECT_EQ(scaled, 2u);
}

TEST_F(Studies, StopsInTheMidstOfATrialAndGoesOn) {
  json_["budget"]["steps"] = 100000000;
  json_["evaluate"]["every_steps"] = 100000000;
  json_["goal"].erase("target");
  {
    Runner runner(study_kernels(), parsed(json_), run_options(folder(), 2));
    study::Event event;
    EXPECT_TRUE(eventually([&] { return runner.next_event(0.05).running == 2; }));
    std::thread([&] { runner.stop(); }).join();
    do event = runner.next_event(1);
    while (event.kind != EventKind::end);
    EXPECT_EQ(event.done, 0u);
  }
  EXPECT_TRUE(records_in(folder()).empty());
  {
    Runner runner(study_kernels(), parsed(json_), run_options(folder(), 2));
    runner.next_event(0.05);  // destroyed while trials run
  }
}

TEST(RoomForTrials, IsLimitedByCoresAndMemory) {
  gpu::DeviceInfo device;
  device.memory_bytes = 1000;
  device.kind = gpu::DeviceKind::cpu;
  EXPECT_EQ(study::room_on(device, 1, 10), 1u);
  EXPECT_EQ(study::room_on(device, 16, 10), 8u);
  EXPECT_EQ(study::room_on(device, 16, 100), 5u) << "half of the memory may be used";
  EXPECT_EQ(study::room_on(device, 16, 5000), 1u);
  EXPECT_EQ(study::room_on(device, 16, 10, 2), 4u);
  EXPECT_EQ(study::room_on(device, 16, 100, 2), 2u) << "half of the memory may be used";
  EXPECT_EQ(study::room_on(device, 4, 10, 8), 1u);
  device.kind = gpu::DeviceKind::discrete;
  EXPECT_EQ(study::room_on(device, 16, 10), 4u);
  EXPECT_EQ(study::room_on(device, 4, 10), 2u);
}

}  // namespace
}  // namespace etr::test

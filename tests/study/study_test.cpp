#include "study/study.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "core/sha256.h"
#include "study/outline.h"
#include "study/small_study.h"
#include "study/trial_job.h"
#include "support/error_text.h"

namespace etr::test {
namespace {

using study::Condition;
using study::Place;
using study::trial_spec;

std::vector<std::string> names(const Study& study) {
  std::vector<std::string> out;
  for (const Condition& condition : study.workloads()[0].conditions) out.push_back(condition.name);
  return out;
}

std::string first_digest(const Json& json) {
  return trial_spec(parsed(json), {0, 0, 0, 0}, Json()).digest;
}

using StudyFile = StudyFileTest;

TEST_F(StudyFile, TrialsAreKnownByOptionsAndNotByPaths) {
  const std::string digest = first_digest(json_);
  const auto changed = [&](const auto& change) {
    Json other = json_;
    change(other["job"]["pipeline"]);
    return first_digest(other) != digest;
  };
  EXPECT_FALSE(changed([](Json& p) { p["stages"][0]["pattern"] = "/elsewhere/train.tar"; }));
  for (const char* key : {"bad_records_file", "quarantine_dir", "remote_cache_dir"})
    EXPECT_FALSE(changed([&](Json& p) { p[key] = "/elsewhere"; })) << key;
  EXPECT_TRUE(changed([](Json& p) { p["stages"][0]["shuffle_shards"] = false; }));
  EXPECT_TRUE(changed([](Json& p) { p["on_error"] = "skip"; }));
  Json other = json_;
  other["job"]["evaluation"]["pipeline"]["stages"][0]["pattern"] = "/elsewhere/test.tar";
  other["job"]["output"]["dir"] = "/elsewhere";
  EXPECT_EQ(first_digest(other), digest);
}

TEST_F(StudyFile, RulesHaveTheirFormerNames) {
  json_["stop_early"] = "slower";
  const study::TrialSpec trial = trial_spec(parsed(json_), {0, 0, 0, 0}, Json());
  EXPECT_EQ(trial.identity["stop_early"], "slower");
  Json former = json_;
  former["stop_early"] = "beaten";
  const Study study = parsed(former);
  EXPECT_EQ(study.workloads()[0].stop_early, study::StopRule::slower);
  EXPECT_EQ(trial_spec(study, {0, 0, 0, 0}, Json()).digest, trial.digest);
  Json identity = trial.identity;  // as the versions hashed it that had the former name
  identity["stop_early"] = "beaten";
  EXPECT_EQ(to_hex(sha256(identity.dump())).substr(0, 32), trial.digest);
}

TEST_F(StudyFile, PathsOfSourcesWithinSourcesDoNotCount) {
  const auto mixed = [&](const std::string& folder, double weight) {
    Json other = json_;
    const auto source = [&](const char* name) -> Json {
      return {{"stage", "webdataset"}, {"pattern", cat(folder, "/", name)}};
    };
    other["job"]["pipeline"]["stages"][0] = {
        {"stage", "mix"},
        {"sources", Json::array({source("a.tar"), Json::array({source("b.tar")})})},
        {"weights", {1, weight}}};
    return first_digest(other);
  };
  EXPECT_EQ(mixed("/here", 2), mixed("/there", 2));
  EXPECT_NE(mixed("/here", 2), mixed("/here", 3));
}

TEST_F(StudyFile, ConditionsAreProductsInTheOrderOfDeclaration) {
  json_["conditions"] = {{{"labels", {{"variant", "none"}, {"factor", 1}}}},
                         {{"labels", {{"variant", "echo"}}}, {"for", {{"factor", {2, 4}}}}}};
  const Study study = parsed(json_);
  EXPECT_EQ(names(study),
            (std::vector<std::string>{
                "variant=none, factor=1, batch=16", "variant=none, factor=1, batch=32",
                "variant=echo, factor=2, batch=16", "variant=echo, factor=2, batch=32",
                "variant=echo, factor=4, batch=16", "variant=echo, factor=4, batch=32"}));
  EXPECT_EQ(study.trials(), 24u);
  EXPECT_EQ(study.workloads()[0].name, "bands");
  EXPECT_EQ(study.workloads()[0].conditions[5].set[0], "pipeline.stages.5.size=32");
}

TEST_F(StudyFile, LabelsReachTheJobAndOverridesCannotTouchWhatIsSearched) {
  const Study study = parsed(json_, {"optimizer.nesterov=true"});
  const auto spec = trial_spec(study, {0, 1, 0, 2}, Json());
  const Json& job = spec.identity["job"];
  EXPECT_EQ(job["pipeline"]["stages"][5]["size"], 32);
  EXPECT_EQ(job["optimizer"]["nesterov"], true);
  EXPECT_EQ(job["schedule"]["learning_rate"], spec.point.values["schedule.learning_rate"]);
  EXPECT_EQ(job["train"]["steps"], 40);
  EXPECT_EQ(job["evaluation"]["every_steps"], 5);
  EXPECT_EQ(job["evaluation"]["every_epochs"], 0);
  EXPECT_EQ(job["seed"], spec.seed);
  EXPECT_NE(problem(json_, {"optimizer.momentum=0.5"}).find("which the search draws"),
            std::string::npos);
}

TEST_F(StudyFile, PointsAreThoseOfAllConditionsAndSeedsAreNobodys) {
  json_["search"]["searches"] = 2;
  const Study study = parsed(json_);
  std::set<uint64_t> seeds;
  std::set<std::string> points;
  for (const Place& place : study::all_places(study)) {
    const auto spec = trial_spec(study, place, Json());
    EXPECT_LT(spec.seed, uint64_t{1} << 53);
    seeds.insert(spec.seed);
    points.insert(spec.point.values.dump());
  }
  EXPECT_EQ(seeds.size(), 16u);
  EXPECT_EQ(points.size(), 8u) << "4 trials of 2 searches, the same for both batch sizes";
  json_["search"]["trials"] = 9;
  const Study more = parsed(json_);
  EXPECT_EQ(trial_spec(more, {0, 1, 1, 3}, Json()).digest,
            trial_spec(study, {0, 1, 1, 3}, Json()).digest);
}

TEST_F(StudyFile, TheResolvedStudyIsTheSameStudy) {
  json_["conditions"] = {
      {{"labels", {{"rule", "tuned"}}}},
      {{"labels", {{"rule", "linear"}}},
       {"scale",
        {{"schedule.learning_rate", {{"rule", "linear"}, {"with", "batch"}, {"at", 16}}}}}}};
  const Study study = parsed(json_, {"optimizer.nesterov=true"});
  const Study again = parsed(study.json());
  EXPECT_EQ(study.json(), again.json());
  EXPECT_EQ(names(study), names(again));
  const Json base{{"schedule.learning_rate", 0.02}, {"optimizer.momentum", 0.5}};
  for (const Place& place : study::all_places(study))
    EXPECT_EQ(trial_spec(study, place, base).digest, trial_spec(again, place, base).digest);
}

TEST_F(StudyFile, TheBaseOfARuleIsTheTunedConditionMostLikeIt) {
  const auto labelled = [](const char* optimizer, const char* rule) {
    return Json{{"labels", {{"optimizer", optimizer}, {"rule", rule}}}};
  };
  Json linear = labelled("nesterov", "linear");
  linear["scale"]["schedule.learning_rate"] = {{"rule", "linear"}, {"with", "batch"}, {"at", 16}};
  json_["for"]["batch"] = {16, 64};
  json_["conditions"] = {labelled("sgd", "tuned"), labelled("nesterov", "tuned"), linear};
  const Study study = parsed(json_);
  const auto& conditions = study.workloads()[0].conditions;
  ASSERT_EQ(conditions.size(), 6u);
  EXPECT_EQ(conditions[4].base, 2u);
  EXPECT_EQ(conditions[5].base, 2u) << conditions[2].name;
}

TEST_F(StudyFile, AKeyOfWholeNumbersCanBeScaled) {
  json_["set"] = Json::array();
  json_["for"] = {{"workers", {1, 2}}};
  json_["conditions"] = {
      {{"scale",
        {{"pipeline.stages.5.size",
          {{"rule", "linear"}, {"with", "workers"}, {"at", 1}, {"base", 16}}}}}}};
  const Study study = parsed(json_);
  EXPECT_EQ(trial_spec(study, {0, 1, 0, 0}, Json()).point.values["pipeline.stages.5.size"].dump(),
            "32");
  json_["conditions"][0]["scale"]["pipeline.stages.5.size"]["rule"] = "square_root";
  EXPECT_NE(problem(json_).find("22.6"), std::string::npos) << problem(json_);
}

TEST_F(StudyFile, ScaledKeysLeaveTheSpaceAndFollowTheirRule) {
  const auto rule = [](const char* name, Json base) {
    return Json{{"labels", {{"rule", name}}},
                {"scale",
                 {{"schedule.learning_rate",
                   {{"rule", name}, {"with", "batch"}, {"at", 16}, {"base", std::move(base)}}}}}};
  };
  json_["for"]["batch"] = {16, 64};
  json_["conditions"] = {{{"labels", {{"rule", "tuned"}}}},
                         rule("linear", "best"),
                         rule("square_root", 0.1),
                         rule("none", 0.1)};
  const Study study = parsed(json_);
  const auto& conditions = study.workloads()[0].conditions;
  ASSERT_EQ(conditions.size(), 8u);
  EXPECT_EQ(conditions[3].base, 0u) << "the condition tuned at batch 16";
  EXPECT_FALSE(conditions[5].base);
  EXPECT_FALSE(conditions[3].space.has("schedule.learning_rate"));
  const Json base{{"schedule.learning_rate", 0.02}};
  const auto rate = [&](size_t condition) {
    return trial_spec(study, {0, condition, 0, 1}, base)
        .point.values["schedule.learning_rate"]
        .get<double>();
  };
  EXPECT_DOUBLE_EQ(rate(2), 0.02);
  EXPECT_DOUBLE_EQ(rate(3), 0.08);
  EXPECT_DOUBLE_EQ(rate(5), 0.2);
  EXPECT_DOUBLE_EQ(rate(7), 0.1);
  // Keys that are still searched have the same values as in other conditions.
  EXPECT_EQ(trial_spec(study, {0, 3, 0, 1}, base).point.values["optimizer.momentum"],
            trial_spec(study, {0, 0, 0, 1}, base).point.values["optimizer.momentum"]);
  const auto places = study::all_places(study);
  EXPECT_EQ(places.back().condition, 3u) << "conditions scaled from others come last";
}

TEST_F(StudyFile, ABestBaseSearchesTheKeyThatIsScaled) {
  json_["for"]["batch"] = {16, 64};
  json_["conditions"] = {
      {{"labels", {{"rule", "tuned"}}}},
      {{"labels", {{"rule", "linear"}}},
       {"scale",
        {{"schedule.learning_rate", {{"rule", "linear"}, {"with", "batch"}, {"at", 16}}}}}}};
  EXPECT_EQ(problem(json_), "");
  Json& tuned = json_["conditions"][0];
  tuned["space"] = {{"schedule.learning_rate", nullptr}};
  expect_problem(json_, "(rule=linear, batch=16): scale of 'schedule.learning_rate'");
  expect_problem(json_, "(rule=tuned, batch=16), which does not search that key: ");
  expect_problem(json_, "give 'base' a number");
  tuned["space"] = {{"schedule.learning_rate", {{"values", {"low", 0.1}}}}};
  expect_problem(json_, "which draws values that are no numbers");
  tuned["space"] = {{"schedule.learning_rate", {{"values", {0.2, 0.1}}}}};
  EXPECT_EQ(problem(json_), "");
}

TEST_F(StudyFile, ProductsOfForAreCountedBeforeTheyAreBuilt) {
  Json many = Json::array();
  for (int i = 0; i < 100; ++i) many.push_back(i);
  for (const char* label : {"a", "b", "c", "d", "e", "f"}) json_["for"][label] = many;
  expect_problem(json_, "the study: 'for' gives 2e+12 conditions; at most 10000");
  json_["conditions"] = {{{"for", json_["for"]}}};
  json_.erase("for");
  expect_problem(json_, "condition 1: 'for' gives 2e+12 conditions");
  const auto hundreds = [&](const char* label) {
    return Json{{"labels", {{"kind", label}}}, {"for", {{"a", many}, {"batch", many}}}};
  };
  json_["conditions"] = {hundreds("one"), hundreds("two")};
  expect_problem(json_, "condition 2: there are more than 10000 conditions");
}

TEST_F(StudyFile, LabelsThatAreShownAlikeAreOneLabel) {
  const auto refused = [&](const Json& one, const Json& other, const std::string& name) {
    json_["conditions"] = {{{"labels", one}}, {{"labels", other}}};
    json_["for"] = {{"batch", {16}}};
    expect_problem(json_, cat("two conditions have the labels (", name, ", batch=16)"));
  };
  refused({{"factor", 1}}, {{"factor", 1.0}}, "factor=1");
  refused({{"factor", 1}}, {{"factor", "1"}}, "factor=1");
  refused({{"a", "1, b=2"}}, {{"a", 1}, {"b", 2}}, "a=1, b=2");
  refused({{"a", 1}, {"b", 2}}, {{"b", "2"}, {"a", 1}}, "b=2, a=1");
  json_["conditions"] = {{{"labels", {{"factor", 1}}}}, {{"labels", {{"factor", 1.5}}}}};
  EXPECT_EQ(problem(json_), "");
}

TEST_F(StudyFile, LabelsHaveNamesOfTheirOwn) {
  using namespace std::string_literals;
  const auto refused = [&](const std::string& label, const Json& value, const std::string& part) {
    Json other = json_;
    other["conditions"] = {{{"labels", {{label, value}}}}};
    expect_problem(other, part);
    other.erase("conditions");
    other["for"][label] = Json::array({value});
    expect_problem(other, part);
  };
  for (const char* column :
       {"workload", "search", "searches", "trial", "trials", "seed", "status", "failed", "error",
        "best_metric", "best_metric_median", "to_target_fresh", "spent_steps", "warnings"})
    refused(column, 1, cat("the label '", column, "' has the name of a column"));
  refused("schedule.learning_rate", 1, "has the name of a key that is searched");
  refused("", 1, "a label has no name");
  refused("a", "x\0y"s, "the label 'a' is \"x\\u0000y\": paths and names have no NUL");
  refused("a\0b"s, 1, "no NUL character");
  json_["for"]["search,trial"] = {1};
  EXPECT_EQ(problem(json_), "") << "no column has this name";
}

TEST_F(StudyFile, ErrorsOfAJobNameStudyAndKey) {
  json_["job"] = "";
  expect_problem(json_, "the study: 'job' is an empty text");
  json_["job"] = dir_.path("nowhere.json");
  expect_problem(json_, "the study: 'job': ");
  expect_problem(json_, "nowhere.json");
  std::ofstream(dir_.path("broken.json")) << "{";
  json_["job"] = dir_.path("broken.json");
  expect_problem(json_, "the study: 'job': job file '");
}

TEST_F(StudyFile, WorkloadsAddToWhatTheFileSays) {
  Json other = json_["job"];
  other["name"] = "other";
  json_["workloads"] = {{{"name", "first"}},
                        {{"job", other},
                         {"goal", {{"metric", "accuracy"}, {"target", 0.9}}},
                         {"set", {"optimizer.nesterov=true"}},
                         {"search", {{"space", {{"optimizer.momentum", nullptr}}}}}}};
  const Study study = parsed(json_);
  ASSERT_EQ(study.workloads().size(), 2u);
  EXPECT_EQ(study.workloads()[1].name, "other");
  EXPECT_TRUE(study.workloads()[1].goal.accuracy);
  EXPECT_EQ(study.workloads()[1].set.size(), 2u);
  EXPECT_EQ(study.workloads()[1].conditions[0].space.dimensions().size(), 1u);
  EXPECT_EQ(study.workloads()[0].conditions[0].space.dimensions().size(), 2u);
  EXPECT_EQ(study.workloads()[1].conditions[0].trials, 4u);
  EXPECT_EQ(nlohmann::json(parsed(study.json()).json()), nlohmann::json(study.json()));
}

TEST_F(StudyFile, PathsAreThoseBesideTheFile) {
  std::ofstream(dir_.path("job.json")) << json_["job"].dump();
  json_["job"] = "job.json";
  std::ofstream(dir_.path("compare.json")) << json_.dump();
  const Study study = Study::load(dir_.path("compare.json"));
  EXPECT_EQ(study.workloads()[0].name, "job");
  EXPECT_EQ(study.folder(), "runs/studies/compare");
}

// Loads each sample study and makes the job of the first trial of each search, as far as that is
// possible without data.
TEST(SampleStudies, AreRead) {
  const std::string folder = std::string(ETR_SOURCE_DIR) + "/samples/studies";
  const Json best{{"schedule.learning_rate", 0.02}, {"optimizer.momentum", 0.5}};
  size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    SCOPED_TRACE(entry.path().filename());
    const Study study = Study::load(entry.path(), {"data=elsewhere"});
    std::set<std::string> digests;
    size_t searches = 0;
    for (const Place& place : study::all_places(study))
      if (place.trial == 0) digests.insert(trial_spec(study, place, best).digest), ++searches;
    EXPECT_EQ(digests.size(), searches);
    ++files;
  }
  EXPECT_GE(files, 5u);
}

TEST_F(StudyFile, AnAccuracyAtItsTargetIsNotAboveIt) {
  study::Goal goal{.accuracy = true, .target = 0.6};
  EXPECT_FALSE(goal.reaches(static_cast<double>(0.6f)));
  EXPECT_TRUE(goal.reaches(0.6002));
  goal = {.accuracy = false, .target = 1.5};
  EXPECT_FALSE(goal.reaches(1.5));
  EXPECT_TRUE(goal.reaches(1.4999));
  EXPECT_FALSE(goal.reaches(std::nan("")));
}

TEST_F(StudyFile, ErrorsNameTheKeyAndTheNearest) {
  const auto changed = [&](const std::function<void(Json&)>& change) {
    Json json = json_;
    change(json);
    return json;
  };
  expect_problem(changed([](Json& j) { j["serch"] = 1; }), "did you mean 'search'");
  expect_problem(changed([](Json& j) { j["budget"] = Json::object(); }), "'budget' needs");
  expect_problem(changed([](Json& j) { j["budget"]["stpes"] = 1; }), "did you mean 'steps'");
  expect_problem(changed([](Json& j) { j["goal"]["metric"] = "los"; }), "did you mean 'loss'");
  expect_problem(changed([](Json& j) { j["search"]["trials"] = 0; }), "'trials' is 0");
  expect_problem(changed([](Json& j) {
                   j["search"]["space"]["optimizer.momentun"] = {{"values", {0.1}}};
                 }),
                 "did you mean 'momentum'");
  expect_problem(changed([](Json& j) { j["set"] = "x=1"; }), "takes a list of texts");
  expect_problem(changed([](Json& j) { j["set"].push_back("optimiser.nesterov=true"); }),
                 "did you mean 'optimizer'");
  expect_problem(changed([](Json& j) {
                   j["conditions"] = {{{"label", 1}}};
                 }),
                 "did you mean 'labels'");
  expect_problem(changed([](Json& j) {
                   j["conditions"] = Json::array({Json::object(), Json::object()});
                 }),
                 "two conditions have the labels (batch=16)");
  expect_problem(changed([](Json& j) {
                   j["conditions"] = {{{"labels", {{"batch", 3}}}}};
                 }),
                 "'batch' has a value already");
  expect_problem(changed([](Json& j) { j["for"]["batch"] = Json::array(); }), "'batch' of 'for'");
  expect_problem(changed([](Json& j) { j["stop_early"] = "slowre"; }), "did you mean 'slower'");
  expect_problem(changed([](Json& j) {
                   j["stop_early"] = "slower";
                   j["goal"].erase("target");
                 }),
                 "needs a 'target'");
  expect_problem(changed([](Json& j) { j.erase("job"); }), "'job' is missing");
  expect_problem(changed([](Json& j) { j["job"].erase("evaluation"); }), "evaluation");
  expect_problem(
      changed([](Json& j) {
        j["job"]["pipeline"]["stages"].push_back(
            {{"stage", "echo"}, {"factor", 2}, {"mode", "on_demand"}, {"log", "echo.jsonl"}});
      }),
      "the stage 'echo' writes the log 'echo.jsonl'");
}

TEST_F(StudyFile, KeysThatTheStudySetsItselfAreRefusedElsewhere) {
  const auto with_set = [&](const char* text) {
    Json json = json_;
    json["set"].push_back(text);
    return json;
  };
  const auto searched = [&](const char* key) {
    Json json = json_;
    json["search"]["space"][key] = {{"values", {1, 2}}};
    return json;
  };
  expect_problem(with_set("seed=3"),
                 "is 'seed', which the study sets in each of its trials, from 'seed' of the study");
  expect_problem(with_set("train.steps=9"),
                 "is 'train.steps', which the study sets in each of its trials, from 'budget'");
  expect_problem(with_set("train={\"seconds\": 9}"), "'train.seconds'");
  expect_problem(with_set("evaluation.target_loss=1"), "from 'goal'");
  expect_problem(with_set("output.dir=here"), "--out FOLDER");
  expect_problem(with_set("evaluation.every_steps=3"), "from 'evaluate'");
  expect_problem(searched("train.fresh"), "a key of 'space' is 'train.fresh'");
  expect_problem(searched("seed"), "a key of 'space' is 'seed'");
  Json scaled = json_;
  scaled["conditions"] = {
      {{"scale", {{"train.epochs", {{"with", "batch"}, {"at", 16}, {"base", 2}}}}}}};
  expect_problem(scaled, "a key of 'scale' is 'train.epochs'");
  EXPECT_NE(problem(json_, {"seed=3"}).find("from 'seed' of the study"), std::string::npos);
  // Without 'evaluate', the job says when it is evaluated, and 'set' may change that.
  Json own = with_set("evaluation.every_steps=7");
  own.erase("evaluate");
  EXPECT_EQ(
      trial_spec(parsed(own), {0, 0, 0, 0}, Json()).identity["job"]["evaluation"]["every_steps"],
      7);
  EXPECT_EQ(problem(with_set("train.noise_scale_every=5")), "");
}

TEST_F(StudyFile, RanksOfATrialAreDevicesOfItsProcess) {
  const auto problem = [&](const std::string& parallel) {
    Json json = json_;
    json["set"].push_back("parallel=" + parallel);
    return error_text([&] { parsed(json); });
  };
  EXPECT_EQ(problem(R"({"devices": ["0", "0"]})"), "");
  for (const auto& [parallel, part] :
       {std::pair{"{}", "parallel names no 'devices'"},
        {R"({"devices": ["0"], "rank": 0, "size": 2})", "a launcher, name other processes"},
        {R"({"devices": ["0"], "algorithm": "downpour"})", "needs a parameter server"},
        {R"({"devices": ["0"], "elastic": true})", "elastic is for several processes"},
        {R"({"devices": ["0"], "host": "localhost"})", "host is for several processes"}}) {
    const std::string text = problem(parallel);
    EXPECT_NE(text.find(part), std::string::npos) << parallel << ": " << text;
    EXPECT_NE(text.find("parallel.devices"), std::string::npos) << text;
  }
  EXPECT_NE(problem(R"({"devices": ["0", "0"], "mesh": {"tensor": 3}})"), "");
  json_["set"].push_back("train.noise_scale_every=5");
  EXPECT_NE(problem(R"({"devices": ["0", "0"]})").find("noise_scale_every"), std::string::npos);
  EXPECT_EQ(problem(R"({"devices": ["0"]})"), "");
}

TEST_F(StudyFile, DevicesOfRanksAreNoPartOfATrialsIdentity) {
  const auto digest = [&](const std::string& devices) {
    Json json = json_;
    json["set"].push_back("parallel.devices=" + devices);
    return trial_spec(parsed(json), {0, 0, 0, 0}, Json()).digest;
  };
  EXPECT_EQ(digest(R"(["0", "0"])"), digest(R"(["0", "1"])"));
  EXPECT_NE(digest(R"(["0", "0"])"), digest(R"(["0"])"));
}

TEST_F(StudyFile, AMisspeltBaselineIsAnError) {
  json_["baseline"] = {{"batch", 16}};
  EXPECT_EQ(parsed(json_).json()["baseline"], json_["baseline"]);
  json_["baseline"] = {{"bacth", 16}};
  expect_problem(json_, "did you mean 'batch'");
}

TEST_F(StudyFile, ReportsGoByTheValidatedStudy) {
  json_["goal"]["target"] = 0;  // no target
  json_["budget"] = {{"seconds", 2}, {"steps", 40}};
  json_["conditions"] = {
      {{"labels", {{"rule", "tuned"}}}, {"space", {{"optimizer.momentum", nullptr}}}}};
  const Study study = parsed(json_);
  const study::Outline outline = outline_of(study);
  ASSERT_EQ(outline.objectives.size(), 1u);
  const study::Objective& objective = outline.objectives[0];
  EXPECT_FALSE(objective.target);
  EXPECT_EQ(objective.clock, study::clock_index("seconds"));
  EXPECT_EQ(objective.limit, 2);
  ASSERT_EQ(objective.spaces.size(), 2u);
  EXPECT_FALSE(objective.spaces.begin()->second.has("optimizer.momentum"));
  EXPECT_TRUE(objective.spaces.begin()->second.has("schedule.learning_rate"));
  EXPECT_EQ(outline.name, "Bands");
  EXPECT_EQ(outline.seed, 5u);
}

TEST_F(StudyFile, ScaleNeedsItsLabelAndItsBase) {
  const auto scaled = [&](Json scale) {
    Json json = json_;
    json["conditions"] = {{{"labels", {{"rule", "linear"}}},
                           {"scale", {{"schedule.learning_rate", std::move(scale)}}}}};
    return json;
  };
  expect_problem(scaled({{"with", "bacth"}, {"at", 16}}), "did you mean 'batch'");
  expect_problem(scaled({{"with", "batch"}, {"at", 16}}), "no condition without 'scale'");
  expect_problem(scaled({{"with", "batch"}}), "'at'");
  expect_problem(scaled({{"with", "batch"}, {"at", 16}, {"rule", "liner"}}),
                 "did you mean 'linear'");
}

}  // namespace
}  // namespace etr::test

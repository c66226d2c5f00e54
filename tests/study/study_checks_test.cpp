// Mistakes in a study file, other than malformed keys, that are found before the first trial.
#include <gtest/gtest.h>

#include "study/small_study.h"
#include "support/error_text.h"

namespace etr::test {
namespace {

using StudyChecks = StudyFileTest;

TEST_F(StudyChecks, WhatIsSetAndWhatIsSearchedMayNotBeTheSameUnderTwoNames) {
  json_["job"]["vars"] = {{"size", 16}};
  json_["job"]["pipeline"]["stages"][5]["size"] = "${size}";
  for (const auto& [set, searched] : {std::pair("size=16", "vars.size"),
                                      {"size=16", "pipeline.stages.5.size"},
                                      {"pipeline.stages.5.size=16", "size"}}) {
    Json other = json_;
    other["set"] = {set};
    other["search"]["space"] = {{searched, {{"values", {8, 16}}}}};
    expect_problem(other, cat("sets '", searched, "', which the search draws"));
  }
  json_["set"] = {"size=${batch}", "schedule.learning_rate=0.1"};
  json_["conditions"] = {
      {{"scale", {{"schedule.learning_rate", {{"with", "batch"}, {"at", 16}, {"base", 0.1}}}}}}};
  expect_problem(json_, "which 'scale' derives");
}

TEST_F(StudyChecks, ALabelIsNoKeyThatAnotherConditionSearches) {
  json_.erase("for");
  json_["set"] = Json::array();
  json_["job"]["vars"] = {{"size", 16}};
  json_["job"]["pipeline"]["stages"][5]["size"] = "${size}";
  json_["conditions"] = {
      {{"labels", {{"size", 16}}}},
      {{"labels", {{"way", "searched"}}}, {"space", {{"size", {{"values", {8, 16}}}}}}}};
  expect_problem(json_, "both are columns of trials.csv; give the label another name");
}

TEST_F(StudyChecks, NamesThatAreNoLabelsAndNoVariablesAreFound) {
  json_["set"] = {"pipeline.stages.5.size=${bacth}"};
  expect_problem(json_,
                 "names 'bacth', which is neither a label of this condition nor a variable "
                 "of the job (did you mean 'batch'?)");
}

TEST_F(StudyChecks, ADeviceIsNotSetForTrials) {
  json_["set"].push_back("device=0");
  expect_problem(json_,
                 "'device', which the study sets in each of its trials, from the device that "
                 "the study is run on (--device DEVICE)");
  json_["set"].erase(1);
  json_["job"]["vars"] = {{"gpu", "one"}};
  json_["job"]["device"] = "${gpu}";
  EXPECT_EQ(parsed(json_).device(), "one");
  EXPECT_EQ(parsed(json_, {"gpu=two"}).json()["workloads"][0]["job"]["device"], "two");
  json_["set"].push_back("gpu=${batch}");
  expect_problem(json_, "the job's device is '32', and that of the first job is '16'");
}

TEST_F(StudyChecks, EachValueOfAListIsTried) {
  json_["search"]["space"]["optimizer.momentum"] = {{"values", {0.5, "much", 0.9}}};
  expect_problem(json_, "momentum");
}

TEST_F(StudyChecks, AScheduleThatEndsNeedsABudgetOnItsClock) {
  json_["job"]["schedule"]["schedule"] = "one_cycle";
  EXPECT_EQ(problem(json_), "");
  json_["budget"] = {{"fresh", 640}};
  expect_problem(json_, "one_cycle");
  json_["set"].push_back("schedule.clock=fresh");
  EXPECT_EQ(problem(json_), "");
}

TEST_F(StudyChecks, HasAtMostAHundredThousandTrials) {
  json_["search"]["trials"] = 1000000;
  json_["search"]["searches"] = 10000;
  expect_problem(json_, "there are 20000000000 trials in all; at most 100000 are possible");
}

TEST_F(StudyChecks, AnIndexBeyondAnyListIsNamed) {
  json_["set"].push_back("pipeline.stages.99999999999999999999.size=3");
  expect_problem(json_, "'99999999999999999999' of 'pipeline.stages.99999999999999999999.size=3'");
}

TEST_F(StudyChecks, AWorkloadIsAnObject) {
  json_["workloads"] = {nullptr};
  expect_problem(json_, "the study: workload 1 is null; it takes an object");
}

TEST_F(StudyChecks, NoSectionIsNull) {
  for (const char* key : {"goal", "budget", "evaluate", "search", "for", "baseline"}) {
    Json other = json_;
    other[key] = nullptr;
    expect_problem(other, cat("the study: '", key, "' is null; it takes an object"));
  }
  for (const char* key : {"goal", "budget", "evaluate", "search", "for"}) {
    Json other = json_;
    other["workloads"] = {{{key, nullptr}}};
    expect_problem(other, cat("the study: workload 1: '", key, "' is null; it takes an object"));
    std::swap(other["workloads"][0][key], other[key]);  // a workload's section does not hide it
    expect_problem(other, cat("the study: '", key, "' is null; it takes an object"));
  }
  Json other = json_;
  other["conditions"] = nullptr;
  expect_problem(other, "the study: 'conditions' is null; it takes a list");
  other["conditions"] = {nullptr};
  expect_problem(other, "the study: condition 1 is null; it takes an object");
  json_["figures"] = nullptr;
  expect_problem(json_, "the study: 'figures' is null, not a list");
}

TEST_F(StudyChecks, ATargetCanBeReached) {
  json_["goal"]["target"] = -3;
  expect_problem(json_, "goal: 'target' is -3; no loss is below 0");
}

}  // namespace
}  // namespace etr::test

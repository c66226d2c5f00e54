#include "train/job.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "support/temp_dir.h"

namespace etr::test {
namespace {

using train::Job;

constexpr const char* kJob = R"({
  // comments are allowed
  "name": "j", "vars": {"data": null, "n": 4}, "seed": 3,
  "pipeline": {"stages": [{"stage": "webdataset", "pattern": "${data}/x-*.tar"}, {"stage": "batch", "size": 8}]},
  "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 10}]},
  "optimizer": {"optimizer": "sgd"},
  "schedule": {"learning_rate": 0.1},
  "train": {"steps": 5}
})";

std::string error_of(const std::vector<std::string>& overrides, const std::string& text = kJob) {
  try {
    Job::parse(text, "the job", overrides);
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
}

TEST(Job, OverridesAndVariables) {
  const Job job = Job::parse(kJob, "the job",
                             {"data=/d", "train.steps=7", "pipeline.stages.1.size=16",
                              "optimizer.momentum=0.9", "name=other"});
  EXPECT_EQ(job.pipeline()["stages"][0]["pattern"], "/d/x-*.tar");
  EXPECT_EQ(job.train().integer("steps"), 7);
  EXPECT_EQ(job.pipeline()["stages"][1]["size"], 16);
  EXPECT_EQ(job.optimizer()["momentum"], 0.9);
  EXPECT_EQ(job.name(), "other");
  EXPECT_EQ(job.pipeline()["seed"], 3) << "the pipeline takes the job's seed";
}

TEST(Job, AVariableKeepsItsType) {
  std::string text = kJob;
  text.replace(text.find("\"size\": 8"), 9, "\"size\": \"${n}\"");
  const auto size = [&](const std::vector<std::string>& overrides) {
    return Job::parse(text, "the job", overrides).pipeline()["stages"][1]["size"];
  };
  EXPECT_EQ(size({"data=/d"}), 4);
  EXPECT_EQ(size({"data=/d", "n=16"}), 16);
  EXPECT_NE(error_of({"data=/d", "n=many"}, text)
                .find("'n=many': the job declares this variable as a number"),
            std::string::npos);
  // A variable that is declared as null and used within a text is text.
  EXPECT_EQ(Job::parse(kJob, "the job", {"data=7"}).pipeline()["stages"][0]["pattern"],
            "7/x-*.tar");
}

TEST(Job, AnOverrideReplacesAnOptionUnderItsOtherName) {
  const std::map<std::string, std::string> places{{"loss", "model.loss"}};
  int renamed = 0;
  const Json schema = train::job_schema();
  for (const auto& [part, options] : schema.items())
    for (const Json& option : options) {
      if (!option.contains("former")) continue;
      ++renamed;
      const std::string place = (places.contains(part) ? places.at(part) : part) + ".",
                        value = "=" + option["default"].dump();
      const std::string names[] = {place + option["name"].get<std::string>() + value,
                                   place + option["former"].get<std::string>() + value};
      for (const int first : {0, 1})
        EXPECT_EQ(error_of({"data=/d",
                            R"(evaluation={"pipeline": {"stages": [
                                 {"stage": "webdataset", "pattern": "/d/t-*.tar"},
                                 {"stage": "batch", "size": 8}]}})",
                            names[first], names[1 - first]}),
                  "")
            << names[first];
    }
  EXPECT_GT(renamed, 0);
}

TEST(Job, ATargetThatNoEvaluationCanReachIsRefused) {
  const std::string evaluation =
      R"(evaluation={"target_accuracy": 0.9, "pipeline": {"stages": [
           {"stage": "webdataset", "pattern": "/d/t-*.tar"}, {"stage": "batch", "size": 8}]}})";
  EXPECT_EQ(error_of({"data=/d", evaluation}), "");
  EXPECT_NE(error_of({"data=/d", evaluation, R"(model.loss={"loss": "mse"})"})
                .find("evaluation.target_accuracy: the model's loss has no accuracy"),
            std::string::npos);
}

TEST(Job, AnOverrideReplacesAnOptionUnderItsFormerName) {
  const Job job = Job::parse(kJob, "the job",
                             {"data=/d", R"(evaluation={"keep_mb": 1, "pipeline": {"stages": [
           {"stage": "webdataset", "pattern": "/d/t-*.tar"}, {"stage": "batch", "size": 8}]}})",
                              "evaluation.cache_mb=2"});
  EXPECT_EQ(job.evaluation()->number("cache_mb"), 2);
}

TEST(Job, ReadsBackWhatItWrites) {
  const Job job = Job::parse(kJob, "the job", {"data=/d"});
  EXPECT_EQ(Job::parse(job.json().dump(), "again").json(), job.json());
}

TEST(Job, LaysItsRanksOutAsAMesh) {
  const Job alone = Job::parse(kJob, "the job", {"data=/d"});
  EXPECT_EQ(alone.mesh(), (parallel::MeshShape{0, 1, 1}));
  const Job job = Job::parse(kJob, "the job", {"data=/d", R"(parallel={"mesh": {"pipeline": 2}})"});
  EXPECT_EQ(job.mesh(), (parallel::MeshShape{0, 2, 1}));
  EXPECT_EQ(Job::parse(job.json().dump(), "again").mesh(), job.mesh());
  EXPECT_NE(error_of({"data=/d", R"(parallel={"mesh": {"pipelin": 2}})"}).find("'pipeline'"),
            std::string::npos);
  EXPECT_NE(error_of({"data=/d", R"(parallel={"mesh": 2})"}).find("'mesh' of 'parallel'"),
            std::string::npos);
}

TEST(Job, ASectionOfAnotherTypeIsNotCalledMissing) {
  for (const char* section : {"pipeline", "model", "optimizer", "schedule", "train", "evaluation"})
    for (const auto& [value, found] : {std::pair{"[]", "an array"},
                                       {"3", "a number"},
                                       {"\"x\"", "a string"},
                                       {"true", "a boolean"}}) {
      const std::string error = error_of({"data=/d", cat(section, "=", value)});
      EXPECT_NE(error.find(cat("the section '", section, "' must be an object, not ", found)),
                std::string::npos)
          << error;
    }
  EXPECT_NE(error_of({"data=/d", "evaluation={\"pipeline\": []}"})
                .find("the 'pipeline' of 'evaluation' must be an object"),
            std::string::npos);
}

TEST(Job, ErrorsNameTheKeyAndTheNearest) {
  const auto has = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(error_of({}), "the variable 'data' has no value yet; give it with --set data=VALUE");
  has(error_of({"data=/d", "dat=1"}), "did you mean 'data'?");
  has(error_of({"data=/d", "train.stepz=1"}), "did you mean 'steps'?");
  has(error_of({"data=/d", "pipeline.stages.7.size=1"}), "is not an element of a list of 2");
  has(error_of({"data=/d", "pipeline.stages.1.size=-1"}), "must lie in [1,");
  has(error_of({"data=/d", R"(parallel={"server_epsilon": 0})"}), "must lie in [1e-37, 1]");
  has(error_of({"nothing"}), "not of the form key=value");
  has(error_of({}, "{"), "not valid JSON");
  has(error_of({}, R"({"pipelin": {}})"), "did you mean 'pipeline'?");
  has(error_of({}, R"({"pipeline": {}})"), "is missing");
  has(error_of({}, "{\"seed\": 1,\n \"pipeline\": {\"threads\": 1, \"threads\": 2}}"),
      "duplicate key 'threads' in one object, at line 2, column 15 and at line 2, column 29");
  has(error_of({"data=/d", R"(optimizer={"a": 1, "a": 2})"}), "duplicate key 'a'");
  has(error_of({"data=/d", R"(output.dir="a\u0000b")"}), R"(output.dir is "a\u0000b": paths)");
  has(error_of({"data=/d", R"(vars.data="a\u0000b")"}), "pipeline.stages.0.pattern is ");
}

TEST(Job, AnOptionThatIsTextTakesWhatLooksLikeANumber) {
  const Job job = Job::parse(
      kJob, "the job",
      {"data=/d", "output.dir=20261128", "name=7", "device=0", "pipeline.stages.0.pattern=1e3",
       "pipeline.quarantine_dir=true", "model.layers.1.name=null", "train.pretrained=\"12\""});
  EXPECT_EQ(job.output_dir(), "20261128");
  EXPECT_EQ(job.name(), "7");
  EXPECT_EQ(job.json()["device"], "0");
  EXPECT_EQ(job.pipeline()["stages"][0]["pattern"], "1e3");
  EXPECT_EQ(job.pipeline()["quarantine_dir"], "true");
  EXPECT_EQ(job.json()["model"]["layers"][1]["name"], "null");
  EXPECT_EQ(job.train().string("pretrained"), "12") << "quoted as in JSON";
  EXPECT_NE(error_of({"data=/d", "train.steps=true"}).find("must be of type integer"),
            std::string::npos);
  const Job echoed =
      Job::parse(kJob, "the job",
                 {"data=/d", R"(pipeline.stages.1={"stage": "echo", "factor": 2})",
                  "pipeline.stages.1.device=false", R"(output={"dir": "whole"})", "vars.name=5"});
  EXPECT_EQ(echoed.json()["pipeline"]["stages"][1]["device"], false);
  EXPECT_EQ(echoed.output_dir(), "whole");
  EXPECT_EQ(echoed.json()["vars"]["name"], 5);
}

// JSON cannot hold such text: it would be an error of the JSON library, later and elsewhere.
TEST(Job, TextThatIsNotUtf8IsRefused) {
  EXPECT_EQ(error_of({"data=/d", "output.dir=caf\xe9"}),
            "'output.dir=caf\\xE9' is not UTF-8, as the values of a job are");
  const TempDir dir;
  const std::string path = dir.path("caf\xe9.json");
  std::ofstream(path) << kJob;
  try {
    Job::load(path, {"data=/d"});
    ADD_FAILURE() << "its folder would be runs/caf\\xE9";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("set output.dir, or rename the file"),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(Job::load(path, {"data=/d", "output.dir=out"}).output_dir(), "out");
}

TEST(Job, OverridesKeepItsDepth) {
  const auto nested = [](size_t keys, size_t levels) {
    std::string path = "description";
    for (size_t i = 1; i < keys; ++i) path += ".x";
    return error_of({"data=/d", path + "=" + std::string(levels, '[') + std::string(levels, ']')});
  };
  EXPECT_EQ(nested(200, 56), "");
  for (const auto& [keys, levels] : {std::pair(201, 56), {200, 57}, {257, 0}, {1, 256}})
    EXPECT_NE(
        nested(static_cast<size_t>(keys), static_cast<size_t>(levels)).find("256 levels deep"),
        std::string::npos)
        << keys;
}

TEST(Job, NamesEveryOutputOfAClassifier) {
  EXPECT_NE(error_of({"data=/d", R"(classes=["a", "b"])"})
                .find("'classes' names 2 classes, but the model's last layer has 10 units"),
            std::string::npos);
  EXPECT_NE(error_of({"data=/d", R"(classes=["a"])",
                      R"(model={"model": "cifar_resnet", "depth": 8, "classes": 3})"})
                .find("'classes' names 1 class, but the model's last layer has 3 units"),
            std::string::npos);
  EXPECT_EQ(error_of({"data=/d", R"(classes=["a"])",
                      R"(model={"layers": [{"layer": "relu"}], "loss": {"loss": "mse"}})"}),
            "");
}

// Puts a value of another type in every place. No error may be one of the JSON library.
TEST(Job, WrongTypesAreErrorsInPlainWords) {
  const Json whole = Job::parse(kJob, "the job", {"data=/d"}).json().flatten();
  for (const auto& [path, old] : whole.items())
    for (const char* value : {"null", "-1", "1.5", "\"text\"", "[]", "{}", "[{}]", "true"}) {
      Json changed = Job::parse(kJob, "the job", {"data=/d"}).json();
      changed[Json::json_pointer(path)] = Json::parse(value);
      try {
        Job::parse(changed.dump(), "the job");
      } catch (const Error& error) {
        EXPECT_EQ(std::string(error.what()).find("json.exception"), std::string::npos)
            << error.what();
      } catch (const std::exception& error) {
        ADD_FAILURE() << path << " = " << value << ": " << error.what();
      }
    }
}

// Found by fuzzing.
TEST(Job, WhatIsNoJobIsAnError) {
  for (const char* text : {"null", "[]", "3", "{\"vars\": 1}", "{\"pipeline\": 1e999999}"})
    EXPECT_THROW(train::Job::parse(text, "test"), Error) << text;
}

}  // namespace
}  // namespace etr::test

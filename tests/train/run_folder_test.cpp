// Which runs may write into a folder, what stays there, and what a run needs to resume.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <mutex>

#include "checkpoint/store.h"
#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "core/platform.h"
#include "core/platform_lock.h"
#include "support/changed_json.h"
#include "support/data.h"
#include "train/small_learner.h"
#include "train/trainer.h"

namespace etr::test {
namespace {

namespace fs = std::filesystem;
using train::Event;
using train::EventKind;
using train::Job;
using train::Start;
using train::Trainer;

// The contents of files by their path relative to a folder.
using Contents = std::map<std::string, std::string>;

Contents contents_of(const fs::path& folder) {
  Contents out;
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.is_regular_file())
      out[fs::relative(entry.path(), folder).string()] = platform::read_file(entry.path().string());
  return out;
}

// Returns this file of the newest checkpoint.
std::string saved(const std::string& folder, const char* file) {
  const auto loaded = checkpoint::Store(folder + "/checkpoints").load_latest();
  if (!loaded) return "no checkpoint";
  const auto& bytes = loaded->files.at(file);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class TrainerFolder : public ::testing::Test {
 protected:
  TrainerFolder() {
    fs::create_directories(dir_.path("data"));
    fs::rename(make_band_shard(dir_, "train", 160, 1), dir_.path("data/train.tar"));
  }

  Json spec(int steps, const std::string& data = "data") const {
    const Json stages{{{"stage", "webdataset"}, {"pattern", dir_.path(data) + "/*.tar"}},
                      {{"stage", "label"}, {"classes", 4}},
                      {{"stage", "decode"}},
                      {{"stage", "echo"}, {"factor", 1.5}, {"buffer", 20}},
                      {{"stage", "random_crop"}, {"pad", 1}},
                      {{"stage", "batch"}, {"size", 16}},
                      {{"stage", "normalize"}}};
    return {{"seed", 4},
            {"pipeline", {{"stages", stages}}},
            {"evaluation", {{"every_epochs", 0}, {"pipeline", {{"stages", stages}}}}},
            {"model",
             {{"layers",
               {{{"layer", "conv2d"}, {"filters", 4}, {"bias", false}},
                {{"layer", "batch_norm"}, {"activation", "relu"}},
                {{"layer", "dropout"}, {"rate", 0.1}},
                {{"layer", "flatten"}},
                {{"layer", "dense"}, {"units", 4}}}}}},
            {"optimizer", {{"optimizer", "adam"}}},
            {"schedule", {{"schedule", "cosine"}, {"learning_rate", 0.01}}},
            {"train", {{"steps", steps}, {"planned_steps", 40}}},
            {"output", {{"dir", out()}, {"checkpoint_every_steps", 4}}}};
  }
  std::string out() const { return dir_.path("run"); }

  static Job job(const Json& spec) { return Job::parse(spec.dump(), "job"); }
  static void run(const Json& spec, Start start) {
    Trainer trainer(shared_kernels(), job(spec), start);
    while (trainer.next_event().kind != EventKind::end) continue;
  }
  static std::string error_of(const std::function<void()>& call) {
    try {
      call();
      return "no error";
    } catch (const Error& error) {
      return error.what();
    }
  }
  // Returns the number of steps in metrics.jsonl, all lines of which must be complete.
  size_t rows() const {
    std::stringstream lines(platform::read_file(out() + "/metrics.jsonl"));
    size_t steps = 0;
    for (std::string line; std::getline(lines, line);)
      steps += parse_json(line, "metrics.jsonl")["kind"] == "step";
    return steps;
  }

  // Returns all rows, without what depends on the clock.
  std::string rows_without_times() const {
    std::stringstream lines(platform::read_file(out() + "/metrics.jsonl"));
    std::string text;
    for (std::string line; std::getline(lines, line);) {
      Json row = parse_json(line, "metrics.jsonl");
      for (const char* key : {"seconds", "busy_seconds", "device_wait_share"}) row.erase(key);
      text += row.dump() + "\n";
    }
    return text;
  }

  TempDir dir_;
};

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(TrainerFolder, ANewRunInAUsedFolderIsAnErrorThatSaysWhatToDo) {
  run(spec(12), Start::new_run);
  const Contents before = contents_of(out());
  const std::string error = error_of([&] { run(spec(4), Start::new_run); });
  for (const char* part :
       {"is of step 12", ": let output.dir name another folder, or resume or overwrite this run",
        "(on the command line: --set output.dir=FOLDER, --resume, --overwrite)"})
    EXPECT_HAS(error, part);
  EXPECT_EQ(contents_of(out()), before);
  fs::remove_all(out() + "/checkpoints");
  EXPECT_HAS(error_of([&] { run(spec(4), Start::new_run); }), "metrics.jsonl");
}

TEST_F(TrainerFolder, AStartThatFailsLeavesNoFolder) {
  Json broken = spec(4, "elsewhere");
  broken["output"]["dir"] = out() + "/of/nested/folders";
  error_of([&] { run(broken, Start::new_run); });
  EXPECT_FALSE(fs::exists(out()));
  fs::create_directories(out() + "/of");  // not made by the run
  EXPECT_HAS(error_of([&] { run(broken, Start::new_run); }), "elsewhere");
  EXPECT_TRUE(fs::exists(out() + "/of"));
  EXPECT_FALSE(fs::exists(out() + "/of/nested"));
}

TEST_F(TrainerFolder, ALabelBeyondTheClassesIsSaidFirst) {
  Json few = spec(4);
  few["model"]["layers"].back()["units"] = 3;
  EXPECT_EQ(
      error_of([&] { run(few, Start::new_run); }).find("label 3, but the model has 3 classes"), 0u)
      << error_of([&] { run(few, Start::overwrite); });
}

// An empty checkpoint folder and metrics file, as of a run that was killed early, and another
// program's file.
TEST_F(TrainerFolder, WhatIsNoRunIsNoObstacle) {
  fs::create_directories(out() + "/checkpoints/step-999999999999");
  std::ofstream(out() + "/notes.txt") << "mine";
  std::ofstream(out() + "/metrics.jsonl");  // empty
  run(spec(12), Start::new_run);
  EXPECT_EQ(checkpoint::Store(out() + "/checkpoints").newest_step(), 12u);
  EXPECT_TRUE(fs::exists(out() + "/checkpoints/step-000000000008"));
  run(spec(14), Start::resume);
  EXPECT_EQ(checkpoint::Store(out() + "/checkpoints").newest_step(), 14u);
}

TEST_F(TrainerFolder, OverwritingRemovesWhatARunWroteAndNothingElse) {
  run(spec(12), Start::new_run);
  const std::string first = saved(out(), "weights.safetensors");
  const std::string foreign[] = {"/notes.txt", "/events.out.tfevents.17.host.4.0",
                                 "/checkpoints/best.txt"};
  for (const std::string& name : foreign) std::ofstream(out() + name) << "mine";
  Json other = spec(4);
  other["seed"] = 5;
  run(other, Start::overwrite);
  for (const std::string& name : foreign) EXPECT_EQ(platform::read_file(out() + name), "mine");
  EXPECT_EQ(checkpoint::Store(out() + "/checkpoints").newest_step(), 4u);
  EXPECT_FALSE(fs::exists(out() + "/checkpoints/step-000000000012"));
  EXPECT_EQ(rows(), 4u);
  EXPECT_NE(saved(out(), "weights.safetensors"), first);
  size_t events = 0;
  for (const auto& [name, bytes] : contents_of(out())) events += name.starts_with("events.");
  EXPECT_EQ(events, 2u) << "this run's and the foreign one";
  fs::remove_all(out());
  run(spec(4), Start::overwrite);  // also where there is nothing to overwrite
  EXPECT_EQ(rows(), 4u);
}

// A run that fails before its first step writes and removes nothing.
TEST_F(TrainerFolder, AFailedStartLeavesNoTrace) {
  Json bad = spec(12, "no data");
  const Json nested = [&] {
    Json json = bad;
    json["output"]["dir"] = dir_.path("runs/a//b/");
    return json;
  }();
  for (const Start start : {Start::new_run, Start::overwrite, Start::resume}) {
    const char* reason = start == Start::resume ? "there is no checkpoint" : "no data";
    EXPECT_HAS(error_of([&] { run(bad, start); }), reason);
    EXPECT_HAS(error_of([&] { run(nested, start); }), reason);
    EXPECT_FALSE(fs::exists(out()));
    EXPECT_FALSE(fs::exists(dir_.path("runs")));
  }
  run(spec(12), Start::new_run);
  const Contents before = contents_of(out());
  EXPECT_HAS(error_of([&] { run(bad, Start::overwrite); }), "no data");
  bad["model"]["layers"].back()["units"] = 2;
  error_of([&] { run(bad, Start::resume); });
  EXPECT_EQ(contents_of(out()), before);
}

// Evaluations and trial runs are allowed meanwhile. For the lock as other processes see it, see
// tests/core/lock_test.cpp and tests/cli/runs_test.py.
TEST_F(TrainerFolder, TwoTrainersDoNotWriteIntoOneFolder) {
  for (const Start first : {Start::new_run, Start::resume, Start::overwrite}) {
    Trainer trainer(shared_kernels(), job(spec(first == Start::resume ? 16 : 8)), first);
    for (const Start second : {Start::new_run, Start::resume, Start::overwrite}) {
      const std::string error = error_of([&] { run(spec(8), second); });
      for (const std::string& part : {"another run writes into '" + out() + "' (this process)",
                                      std::string("output.dir name another folder (on the command "
                                                  "line: --set output.dir=")})
        EXPECT_HAS(error, part);
    }
    if (first == Start::resume) {
      EXPECT_GT(Trainer(shared_kernels(), job(spec(8)), Start::evaluate).evaluate().samples, 0);
      run(spec(2), Start::trial);
    }
    while (trainer.next_event().kind != EventKind::end) continue;
  }
}

TEST_F(TrainerFolder, ARunThatHasEndedHoldsTheFolderNoLonger) {
  Trainer first(shared_kernels(), job(spec(4)), Start::new_run);
  while (first.next_event().kind != EventKind::end) continue;
  Trainer second(shared_kernels(), job(spec(8)), Start::resume);
  EXPECT_EQ(first.next_event().kind, EventKind::end) << "the run stays ended";
  while (second.next_event().kind != EventKind::end) continue;
  Trainer failed(shared_kernels(), job(spec(9, "no data")), Start::overwrite);
  EXPECT_HAS(error_of([&] { failed.next_event(); }), "no data");
  run(spec(12), Start::resume);
  EXPECT_EQ(rows(), 12u);
}

// What may happen to the folder of a run while it trains, or to its metrics file.
struct Loss {
  const char* name;
  std::function<void(const std::string& folder)> happens;
};

const std::vector<Loss> kLosses{
    {"removed", [](const std::string& folder) { fs::remove_all(folder); }},
    {"renamed", [](const std::string& folder) { fs::rename(folder, folder + "-old"); }},
    {"replaced",
     [](const std::string& folder) {
       fs::rename(folder, folder + "-old");
       fs::create_directory(folder);
       std::ofstream(folder + "/notes.txt") << "of somebody else";
     }},
    {"copied back",
     [](const std::string& folder) {
       fs::rename(folder, folder + "-old");
       fs::copy(folder + "-old", folder, fs::copy_options::recursive);
     }},
    {"without rows", [](const std::string& folder) { fs::remove(folder + "/metrics.jsonl"); }},
};

TEST_F(TrainerFolder, AFolderThatIsLostEndsTheRunAndIsNotMadeAgain) {
  for (const Loss& loss : kLosses)
    for (const int checkpoint_every : {0, 4, 40}) {
      Json lost = spec(40);
      lost["output"]["dir"] = dir_.path(cat(loss.name, " ", checkpoint_every));
      lost["output"]["checkpoint_every_steps"] = checkpoint_every;
      lost["output"]["checkpoint_every_epochs"] = 0;
      lost["output"]["tensorboard"] = true;
      const std::string folder = lost["output"]["dir"];
      Trainer trainer(shared_kernels(), job(lost), Start::new_run);
      while (trainer.next_event(1e-9).step < 2) continue;
      loss.happens(folder);
      const auto what_is_there = [&] {
        Contents found = fs::exists(folder) ? contents_of(folder) : Contents{};
        found.erase(platform::kFolderLock);
        return found;
      };
      const bool there = fs::exists(folder);
      const Contents left = what_is_there();
      const std::string error = error_of([&] {
        while (trainer.next_event().kind != EventKind::end) continue;
      });
      EXPECT_HAS(error, "the run's folder '" + folder + "' was removed, renamed or replaced");
      EXPECT_EQ(fs::exists(folder), there) << loss.name;
      EXPECT_EQ(what_is_there(), left) << loss.name;
    }
}

// Losses between the last row and the end of the run.
TEST(RunFolder, ThatIsLostIsNoticedWithoutAFurtherRow) {
  const Json row{{"kind", "step"}, {"step", 1}};
  for (const Loss& loss : kLosses) {
    TempDir dir;
    const std::string path = dir.path("run");
    train::RunFolder folder(path, Start::new_run, false);
    EXPECT_NO_THROW(folder.check_in_place()) << "nothing was written yet";
    folder.write_row(row);
    EXPECT_NO_THROW(folder.check_in_place());
    loss.happens(path);
    EXPECT_THROW(folder.check_in_place(), Error) << loss.name;
    EXPECT_THROW(folder.write_checkpoint(1, {}), Error) << loss.name;
    EXPECT_FALSE(fs::exists(path + "/checkpoints")) << loss.name;
  }
}

TEST_F(TrainerFolder, OverwritingRefusesWhatNoRunHasMade) {
  const auto refuses = [&](const std::string& name) {
    const Contents before = contents_of(dir_.path());
    const std::string error = error_of([&] { run(spec(4), Start::overwrite); });
    const bool is_file = name == "metrics.jsonl";
    EXPECT_HAS(error, "'" + out() + "/" + name + (is_file ? "' was not written by a run" : "' is "));
    EXPECT_HAS(error, "output.dir name another folder (on the command line: --set output.dir=");
    EXPECT_EQ(contents_of(dir_.path()), before);
  };
  run(spec(12), Start::new_run);
  const std::string names[] = {"checkpoints", "metrics.jsonl", "checkpoints/step-000000000012"};
  for (const std::string& name : names) {  // replaced by a link to where it was moved
    fs::rename(out() + "/" + name, dir_.path("elsewhere"));
    fs::create_symlink(dir_.path("elsewhere"), out() + "/" + name);
    refuses(name);
    EXPECT_TRUE(fs::is_symlink(out() + "/" + name));
    fs::remove(out() + "/" + name);
    fs::rename(dir_.path("elsewhere"), out() + "/" + name);
  }
  fs::remove_all(out());
  fs::create_directories(out());
  for (const std::string name : {"checkpoints", "metrics.jsonl"}) {  // another program's file
    std::ofstream(out() + "/" + name) << "mine";
    refuses(name);
    fs::remove(out() + "/" + name);
  }
  fs::create_directory(out() + "/metrics.jsonl");
  refuses("metrics.jsonl");
  fs::remove(out() + "/metrics.jsonl");
  std::ofstream(out() + "/checkpoints") << "mine";
  EXPECT_HAS(error_of([&] { run(spec(4), Start::new_run); }), "is not a folder")
      << "before it trains";
}

TEST_F(TrainerFolder, WhatOnlyLooksWritesNothing) {
  for (const bool used : {false, true}) {
    if (used) run(spec(12), Start::new_run);
    const Contents before = used ? contents_of(out()) : Contents{};
    Trainer(shared_kernels(), job(spec(40)), Start::trial).profile(1);
    run(spec(4), Start::trial);
    if (used) {
      Trainer evaluated(shared_kernels(), job(spec(40)), Start::evaluate);
      EXPECT_GT(evaluated.evaluate().samples, 0);
      Trainer exported(shared_kernels(), job(spec(40)), Start::evaluate);
      EXPECT_FALSE(exported.shaped_learner().onnx().empty());
      EXPECT_EQ(exported.learner().plan_bytes(), 0u) << "exporting plans nothing";
      EXPECT_HAS(error_of([&] { evaluated.profile(1); }), "profile in a trial");
      EXPECT_HAS(error_of([&] { evaluated.next_event(); }), "resume the run");
      EXPECT_EQ(contents_of(out()), before);
    } else {
      EXPECT_HAS(error_of([&] { Trainer(shared_kernels(), job(spec(4)), Start::evaluate); }),
                 "there is no checkpoint in");
      EXPECT_FALSE(fs::exists(out()));
    }
  }
}

// Logs, lists of bad records and the quarantine also belong to the run.
TEST_F(TrainerFolder, WhatOnlyLooksLeavesTheRunsOtherFilesAlone) {
  std::ofstream(dir_.path("data/broken.tar")) << std::string(1024, 'x');
  Json noisy = spec(12);
  noisy["pipeline"].update({{"on_error", "quarantine"},
                            {"quarantine_dir", out() + "/bad"},
                            {"bad_records_file", out() + "/bad.jsonl"},
                            {"on_error_in", "decode=quarantine"}});
  noisy["pipeline"]["stages"][3].update({{"mode", "auto"}, {"log", out() + "/echo.jsonl"}});
  Json& evaluation = noisy["evaluation"]["pipeline"];
  evaluation = noisy["pipeline"];
  evaluation["stages"][3] = {{"stage", "center_crop"}, {"height", 12}, {"width", 12}};
  run(noisy, Start::new_run);
  const Contents before = contents_of(out());
  EXPECT_TRUE(before.contains("bad.jsonl"));
  EXPECT_TRUE(before.contains("echo.jsonl"));
  run(noisy, Start::trial);
  Trainer evaluated(shared_kernels(), job(noisy), Start::evaluate);
  EXPECT_GT(evaluated.evaluate().samples, 0);
  EXPECT_FALSE(evaluated.shaped_learner().onnx().empty());
  EXPECT_EQ(contents_of(out()), before);
}

// Weights, optimizer state and everything else, bit for bit.
TEST_F(TrainerFolder, AResumedRunIsTheUninterruptedOne) {
  run(spec(40), Start::new_run);
  const std::string kinds[] = {"weights.safetensors", "optimizer.safetensors", "learner.json"};
  std::vector<std::string> whole;
  for (const std::string& kind : kinds) whole.push_back(saved(out(), kind.c_str()));
  // Whether the source had read its pass to the end depends on the moment.
  const auto position = [&] {
    Json saved_one = Json::parse(saved(out(), "pipeline.json"));
    saved_one.erase("pass_lengths");
    return saved_one;
  };
  const Json place = position();
  fs::remove_all(out());
  for (const int until : {7, 20, 40}) run(spec(until), until == 7 ? Start::new_run : Start::resume);
  for (size_t i = 0; i < std::size(kinds); ++i)
    EXPECT_TRUE(saved(out(), kinds[i].c_str()) == whole[i]) << kinds[i] << " differs";
  EXPECT_EQ(position(), place);
  EXPECT_EQ(rows(), 40u);
}

TEST_F(TrainerFolder, AResumedRunAppends) {
  run(spec(8), Start::new_run);
  const std::string before = platform::read_file(out() + "/metrics.jsonl");
  std::ofstream(out() + "/metrics.jsonl", std::ios::app)
      << R"({"kind": "st)";  // killed within a line
  run(spec(12), Start::resume);
  EXPECT_TRUE(platform::read_file(out() + "/metrics.jsonl").starts_with(before));
  EXPECT_EQ(rows(), 12u);
  size_t events = 0;
  for (const auto& [name, bytes] : contents_of(out())) {
    if (!name.starts_with("events.")) continue;
    ++events;
    EXPECT_GT(bytes.size(), 100u) << name;
  }
  EXPECT_EQ(events, 2u) << "one file for each run, even within one second";
}

// A killed run leaves rows after its newest checkpoint. The resumed run writes these rows again, so
// it first cuts them off.
TEST_F(TrainerFolder, RowsBehindTheCheckpointAreNotWrittenTwice) {
  Json noted = spec(22);
  noted["evaluation"]["every_steps"] = 3;
  run(noted, Start::new_run);
  const std::string whole = rows_without_times();
  fs::remove_all(out());
  for (const uint64_t until : {6u, 11u, 19u}) {
    Trainer killed(shared_kernels(), job(noted), until == 6 ? Start::new_run : Start::resume);
    while (killed.next_event(1e-9).step < until) continue;
    if (until == 11) std::ofstream(out() + "/metrics.jsonl", std::ios::app) << R"({"kind": "st)";
  }
  EXPECT_GT(rows(), 16u) << "there are some after the checkpoint";
  run(noted, Start::resume);
  EXPECT_EQ(rows_without_times(), whole);
  std::ofstream(out() + "/metrics.jsonl", std::ios::app) << R"({"note": "mine"})"
                                                         << "\n";
  noted["train"]["steps"] = 24;
  run(noted, Start::resume);
  EXPECT_HAS(platform::read_file(out() + "/metrics.jsonl"), "mine");
}

TEST_F(TrainerFolder, ACompleteRunEndsAtOnce) {
  Json aimed = spec(12);
  aimed["evaluation"]["every_steps"] = 5;
  const auto ends_at_once = [&](const Event& before) {
    const Contents files = contents_of(out());
    Trainer again(shared_kernels(), job(aimed), Start::resume);
    const Event event = again.next_event();
    EXPECT_EQ(event.kind, EventKind::end);
    EXPECT_EQ(event.step, before.step);
    EXPECT_EQ(event.eval_accuracy, before.eval_accuracy);
    EXPECT_EQ(event.target_reached, before.target_reached);
    EXPECT_EQ(contents_of(out()), files);
  };
  const auto end_of = [&](Start start) {
    Trainer trainer(shared_kernels(), job(aimed), start);
    Event event;
    do event = trainer.next_event();
    while (event.kind != EventKind::end);
    return event;
  };
  ends_at_once(end_of(Start::new_run));
  aimed["evaluation"]["target_accuracy"] = 0.01;  // reached by the first evaluation
  const Event reached = end_of(Start::overwrite);
  EXPECT_EQ(reached.step, 5u);
  ends_at_once(reached);
  aimed["evaluation"]["target_accuracy"] = 0;
  EXPECT_EQ(end_of(Start::resume).step, 12u);
}

// The checkpoint by steps comes before the epoch's end and its evaluation, which are saved, too.
TEST_F(TrainerFolder, AnEpochThatEndsAtACheckpointIsComplete) {
  Json even = spec(0);  // epochs of 15 steps
  even["train"] = {{"epochs", 2}, {"planned_steps", 30}};
  even["evaluation"]["every_epochs"] = 1;
  even["output"]["checkpoint_every_steps"] = 15;
  even["output"]["checkpoint_every_epochs"] = 0;
  run(even, Start::new_run);
  EXPECT_EQ(parse_json(saved(out(), "trainer.json"), "trainer.json")["evaluation"]["step"], 30);
  const Contents before = contents_of(out());
  Trainer again(shared_kernels(), job(even), Start::resume);
  EXPECT_EQ(again.next_event().kind, EventKind::end);
  EXPECT_EQ(contents_of(out()), before);
}

TEST_F(TrainerFolder, ACheckpointOfAnotherModelIsNamed) {
  run(spec(4), Start::new_run);
  const auto error_with = [&](const std::function<void(Json&)>& change) {
    Json other = spec(8);
    change(other);
    return error_of([&] { run(other, Start::resume); });
  };
  const std::string wider = error_with([](Json& j) { j["model"]["layers"][0]["filters"] = 6; });
  for (const char* part : {"the checkpoint '", "step-000000000004' is of another model: weight '",
                           "f32 [3, 3, 1, 4] in the file but f32 [3, 3, 1, 6] in the model"})
    EXPECT_HAS(wider, part);
  EXPECT_HAS(error_with([](Json& j) { j["model"]["layers"][0]["bias"] = true; }),
             "' (the model expects f32 [4])");
  EXPECT_HAS(error_with([](Json& j) {
               j["model"]["layers"][1] = {{"layer", "dropout"}};
             }),
             "the model has no weight '");
  EXPECT_HAS(error_with([](Json& j) {
               j["optimizer"] = {{"optimizer", "sgd"}, {"momentum", 0.9}};
             }),
             "is of another optimizer: it was made with '");
}

TEST_F(TrainerFolder, DataThatWasMovedIsTheSameData) {
  run(spec(40), Start::new_run);
  const std::string whole = saved(out(), "weights.safetensors");
  fs::remove_all(out());
  run(spec(20), Start::new_run);
  fs::create_directories(dir_.path("other"));
  fs::rename(dir_.path("data"), dir_.path("other/place"));
  run(spec(40, "other/place"), Start::resume);
  EXPECT_TRUE(saved(out(), "weights.safetensors") == whole);
}

TEST_F(TrainerFolder, ChangedDataCanBeEvaluatedButNotTrainedOn) {
  run(spec(20), Start::new_run);
  fs::copy(dir_.path("data/train.tar"), dir_.path("data/extra.tar"));
  EXPECT_HAS(error_of([&] { run(spec(40), Start::resume); }),
             "another data set: 'extra.tar' is new");
  Trainer evaluated(shared_kernels(), job(spec(40)), Start::evaluate);
  EXPECT_EQ(evaluated.evaluate().samples, 480);
  EXPECT_FALSE(evaluated.shaped_learner().onnx().empty());
}

TEST_F(TrainerFolder, AJobFileWithoutAFolderGetsOneAndTextIsWarnedOf) {
  Json unsaid = spec(4);
  unsaid.erase("output");
  std::ofstream(dir_.path("my job.json")) << unsaid.dump();
  EXPECT_EQ(Job::load(dir_.path("my job.json")).output_dir(), "runs/my job");
  EXPECT_EQ(Job::load(dir_.path("my job.json"), {"output.tensorboard=false"}).output_dir(),
            "runs/my job");
  EXPECT_EQ(Job::load(dir_.path("my job.json"), {"output.dir=here"}).output_dir(), "here");
  EXPECT_EQ(Job::load(dir_.path("my job.json"), {"output.dir="}).output_dir(), "");
  EXPECT_EQ(job(unsaid).output_dir(), std::nullopt);
  std::string warnings;
  set_log_hook([&](LogLevel level, const char* line) {
    if (level == LogLevel::warning) warnings += line;
  });
  Trainer(shared_kernels(), job(unsaid), Start::new_run);
  EXPECT_HAS(warnings, "saves nothing");
  warnings.clear();
  unsaid["output"]["dir"] = "";
  Trainer(shared_kernels(), job(unsaid), Start::new_run);
  set_log_hook(nullptr);
  EXPECT_EQ(warnings, "");
}

// A checksum finds accidental damage only: these checkpoints have right ones, and wrong contents.
TEST_F(TrainerFolder, AChangedCheckpointIsAnErrorOrGoesOn) {
  run(spec(6), Start::new_run);
  const checkpoint::Store store(out() + "/checkpoints");
  const checkpoint::Files files = store.load_latest()->files;
  constexpr int kOneOf = 9;  // all take more than a minute, most of it for flushing files
  int trials = 0, refused = 0;
  for (const auto& [name, unused] : files) {
    if (!name.ends_with(".json") || name == "job.json") continue;
    const Json document = checkpoint::json_of(files, name, "the test");
    for_each_change(document, [&](const Json& changed, const std::string& what) {
      if (++trials % kOneOf != 0) return;
      SCOPED_TRACE(cat(name, ": ", what));
      checkpoint::Files damaged = files;
      checkpoint::put_text(damaged, name, changed.dump());
      fs::remove_all(out() + "/checkpoints");
      store.save(6, damaged);
      refused += error_of([&] { run(spec(8), Start::resume); }) != "no error";
    });
  }
  EXPECT_GT(refused, trials / kOneOf / 2);
}

}  // namespace
}  // namespace etr::test

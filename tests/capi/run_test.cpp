// Runs of jobs through the C API, and their trainers.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "capi/support.h"
#include "echotrain/echotrain.hpp"

namespace {

namespace fs = std::filesystem;
namespace et = echotrain;

TEST(CApi, JobsRunToTheirEnd) {
  Images images;
  const std::string job =
      R"({"pipeline": )" + images.spec() +
      R"(, "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 2}]},
      "optimizer": {"optimizer": "sgd"}, "schedule": {"learning_rate": 0.02}, "train": {"steps": 10}})";
  const char* const overrides[] = {"train.steps=12"};
  etr_job* handle = nullptr;
  ASSERT_OK(etr_job_parse(job.c_str(), overrides, 1, &handle));
  etr_runtime* runtime = nullptr;
  ASSERT_OK(etr_runtime_create(nullptr, &runtime));
  etr_run* run = nullptr;
  ASSERT_OK(etr_run_start(runtime, handle, ETR_START_NEW, &run));
  etr_trainer* trainer = nullptr;
  ASSERT_OK(etr_run_trainer(run, &trainer));
  etr_job_destroy(handle);
  etr_runtime_destroy(runtime);
  etr_event event{};
  event.struct_size = sizeof event;
  char* text = nullptr;
  ASSERT_OK(etr_trainer_summary(trainer, "text", &text)) << "a job knows its batches";
  EXPECT_NE(std::string(text).find(" parameters\n"), std::string::npos) << text;
  etr_string_free(text);
  while (etr_run_next_event(run, &event) == ETR_OK) {
    // The job's own results are not for the taking.
    etr_step_result result{};
    result.struct_size = sizeof result;
    EXPECT_EQ(etr_trainer_result(trainer, 1, &result), ETR_STATE);
    EXPECT_EQ(etr_trainer_update(trainer, &result), ETR_STATE);
    EXPECT_NE(std::string(etr_last_error()).find("the trainer of a run"), std::string::npos);
  }
  EXPECT_EQ(event.kind, ETR_EVENT_END);
  EXPECT_EQ(event.step, 12u);
  etr_batch* weights = nullptr;
  ASSERT_OK(etr_trainer_get_weights(trainer, "dense_2.bias", &weights));
  etr_tensor bias{};
  bias.struct_size = sizeof bias;
  ASSERT_OK(etr_batch_get(weights, "dense_2.bias", &bias));
  EXPECT_EQ(bias.shape[0], 2);
  etr_batch_destroy(weights);
  EXPECT_EQ(etr_run_next_event(run, &event), ETR_END);
  etr_trainer_destroy(trainer);
  etr_run_destroy(run);
}

// What a folder of runs allows, through every way to begin one.
TEST(CApi, AFolderHoldsOneRun) {
  Images images;
  // The folder lies beside the data.
  const std::string out = fs::path(images.path()).parent_path().string() + "-run";
  const std::string json =
      R"({"pipeline": )" + images.spec() +
      R"(, "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 2}]},
      "optimizer": {"optimizer": "sgd"}, "schedule": {"learning_rate": 0.02}, "train": {"steps": 4}})";
  const std::string to = "output.dir=" + out;
  const char* const overrides[] = {to.c_str(), "train.steps=6"};
  etr_job *open_end = nullptr, *job = nullptr, *longer = nullptr;
  ASSERT_OK(etr_job_parse(json.c_str(), nullptr, 0, &open_end));
  ASSERT_OK(etr_job_parse(json.c_str(), overrides, 1, &job));
  ASSERT_OK(etr_job_parse(json.c_str(), overrides, 2, &longer));
  char* directory = nullptr;
  ASSERT_OK(etr_job_output_dir(open_end, &directory));
  EXPECT_EQ(directory, nullptr);
  ASSERT_OK(etr_job_output_dir(job, &directory));
  EXPECT_EQ(directory, out);
  etr_string_free(directory);
  etr_runtime* runtime = nullptr;
  ASSERT_OK(etr_runtime_create(nullptr, &runtime));
  // The step that a run ends at, or the status that it ends with.
  const auto run = [&](const etr_job* what, int32_t start) -> int64_t {
    etr_run* begun = nullptr;
    if (const int32_t status = etr_run_start(runtime, what, start, &begun)) return status;
    etr_event event{};
    event.struct_size = sizeof event;
    int32_t status = ETR_OK;
    while ((status = etr_run_next_event(begun, &event)) == ETR_OK) continue;
    etr_run_destroy(begun);
    return status == ETR_END ? static_cast<int64_t>(event.step) : status;
  };
  EXPECT_EQ(run(job, ETR_START_RESUME), ETR_NOT_FOUND);
  EXPECT_EQ(run(job, ETR_START_TRIAL), 4);
  EXPECT_EQ(run(job, ETR_START_NEW), 4) << "a trial leaves nothing: " << etr_last_error();
  EXPECT_EQ(run(job, ETR_START_NEW), ETR_STATE);
  EXPECT_NE(std::string(etr_last_error()).find("--overwrite"), std::string::npos)
      << etr_last_error();
  etr_run* first = nullptr;
  ASSERT_OK(etr_run_start(runtime, longer, ETR_START_RESUME, &first));
  for (const int32_t start : {ETR_START_NEW, ETR_START_RESUME, ETR_START_OVERWRITE}) {
    EXPECT_EQ(run(longer, start), ETR_STATE) << "one at a time writes into a folder";
    EXPECT_NE(std::string(etr_last_error()).find("another run writes into '" + out + "'"),
              std::string::npos)
        << etr_last_error();
  }
  etr_run_destroy(first);
  EXPECT_EQ(run(longer, ETR_START_RESUME), 6) << etr_last_error();
  EXPECT_EQ(run(longer, ETR_START_EVALUATE), ETR_STATE) << "it does not train";
  EXPECT_EQ(run(job, ETR_START_OVERWRITE), 4) << etr_last_error();
  for (const int32_t start : {-1, ETR_START_TRIAL + 1})
    EXPECT_EQ(run(job, start), ETR_INVALID_ARGUMENT) << start;
  fs::remove_all(out);
  for (etr_job* handle : {open_end, job, longer}) etr_job_destroy(handle);
  etr_runtime_destroy(runtime);
}

// Paths are UTF-8 on every system, whatever the locale or the code page.
TEST(CApi, PathsAreUtf8) {
  const Images images;
  const etr::test::TempDir dir;
  const fs::path folder = fs::path(dir.path()) / u8"Bilder Größe 日本";
  fs::create_directory(folder);
  // Without a slash at the end, with which libstdc++'s copy() finds no folder on Windows.
  const fs::path drawn = fs::path(images.path("0")).parent_path();
  fs::copy(drawn, folder / "images", fs::copy_options::recursive);
  const std::u8string utf8 = folder.generic_u8string();
  const std::string text(utf8.begin(), utf8.end());
  const auto epoch = [&](const std::string& source, const std::string& decisions = "") {
    et::Pipeline pipeline = et::Pipeline::from_json(
        R"({"epochs": 1, "stages": [)" + source +
        R"(, {"stage": "label"}, {"stage": "echo", "factor": 2, "mode": "auto")" + decisions +
        "}]}");
    std::vector<int32_t> labels;
    while (auto batch = pipeline.next()) labels.push_back(*(*batch)["label"].as<int32_t>());
    return labels;
  };
  const std::string in_folders = R"({"stage": "folder", "root": ")" + text + R"(/images"})";
  const std::string log = R"(": ")" + text + R"(/echo.jsonl")";
  const std::vector<int32_t> logged = epoch(in_folders, R"(, "log)" + log);
  EXPECT_GE(logged.size(), 64u);
  EXPECT_EQ(epoch(in_folders, R"(, "replay)" + log), logged);
  et::pack(text + "/images", text + "/shards/größer");
  EXPECT_GE(
      epoch(R"({"stage": "webdataset", "pattern": ")" + text + R"(/shards/gr*.tar*"})").size(),
      64u);

  std::ofstream(folder / "job.json")
      << R"({"pipeline": {"stages": [)" + in_folders +
             R"(, {"stage": "label"}, {"stage": "decode"}, {"stage": "batch", "size": 16},
               {"stage": "normalize"}]},
             "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 2}]},
             "optimizer": {"optimizer": "sgd"}, "schedule": {"learning_rate": 0.02},
             "output": {"checkpoint_every_steps": 2}})";
  const std::string out = text + "/Läufe/日";
  const et::Runtime device;
  uint64_t step = 0;
  for (const char* steps : {"train.steps=4", "train.steps=6"}) {
    const et::Job job = et::Job::load(text + "/job.json", {"output.dir=" + out, steps});
    et::Run run(device, job, step == 0 ? et::Start::new_run : et::Start::resume);
    while (const auto event = run.next_event()) step = event->step;
    et::Trainer trainer = run.trainer();
    trainer.save(text + "/saved");
    trainer.export_onnx(text + "/größe.onnx");
  }
  EXPECT_EQ(step, 6u);
  et::write_report("title", {{"a", out}}, text + "/größe.html");
  for (const char8_t* const name :
       {u8"größe.onnx", u8"größe.html", u8"saved", u8"Läufe/日/checkpoints", u8"shards"})
    EXPECT_TRUE(fs::exists(folder / name)) << fs::path(name);
  try {
    et::Job::load(text + "/größer.json");
    ADD_FAILURE() << "there is no such job";
  } catch (const et::Error& error) {
    EXPECT_EQ(error.status(), ETR_NOT_FOUND);
    EXPECT_NE(std::string(error.what()).find(text + "/größer.json"), std::string::npos)
        << error.what();
  }
}

class RunsTrainer : public testing::Test {
 protected:
  et::Job job(const std::vector<std::string>& overrides = {}) const {
    const std::string pipeline =
        R"({"epochs": 1, "stages": [{"stage": "folder", "root": ")" + images_.path() +
        R"("}, {"stage": "label"}, {"stage": "decode"}, {"stage": "batch", "size": 16},
           {"stage": "normalize"}]})";
    std::string endless = pipeline;
    endless.replace(endless.find("\"epochs\": 1, "), 13, "");
    return et::Job::parse(
        R"({"pipeline": )" + endless + R"(, "evaluation": {"pipeline": )" + pipeline +
            R"(}, "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 2}]},
        "optimizer": {"optimizer": "sgd"}, "schedule": {"learning_rate": 0.02},
        "train": {"steps": 4}, "output": {"dir": ""}})",
        overrides);
  }
  // For a million steps, on the device or, if `several`, on it twice.
  et::Job long_job(const et::Runtime& device, bool several) const {
    const std::string name = "\"" + std::string(device.device().name) + "\"";
    std::vector<std::string> overrides{"train.steps=1000000"};
    if (several) overrides.push_back("parallel={\"devices\": [" + name + ", " + name + "]}");
    return job(overrides);
  }
  using Clock = std::chrono::steady_clock;
  static double seconds(Clock::time_point from, Clock::time_point to) {
    return std::chrono::duration<double>(to - from).count();
  }
  static et::Runtime runtime() {
    const char* device = std::getenv("ECHOTRAIN_TEST_DEVICE");
    return et::Runtime(device ? device : "");
  }
  static et::Batch batch() {
    et::Batch out;
    const std::vector<float> pixels(2 * 64, 0.5f);
    out.set("image", pixels.data(), {2, 8, 8, 1});
    return out;
  }
  static std::vector<float> bias(const et::Trainer& trainer) {
    const et::Batch weights = trainer.weights("dense_2.bias");
    etr_tensor bias{};
    bias.struct_size = sizeof bias;
    EXPECT_EQ(etr_batch_get(weights.get(), "dense_2.bias", &bias), ETR_OK);
    const auto* const values = static_cast<const float*>(bias.data);
    return {values, values + 2};
  }
  template <typename Call>
  static std::string state_error(Call&& call) {
    try {
      call();
    } catch (const et::Error& error) {
      EXPECT_EQ(error.status(), ETR_STATE) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return "";
  }

  Images images_;
};

TEST_F(RunsTrainer, ReadsAndSetsWeightsBetweenEvents) {
  et::Run run(runtime(), job());
  et::Trainer trainer = run.trainer(), other = run.trainer();
  const std::vector<float> changed{3, -3};
  et::Batch weights;
  weights.set("dense_2.bias", changed.data(), {2});
  trainer.set_weights(weights);
  EXPECT_EQ(bias(other), changed) << "the trainers of a run are the same";
  run.next_event(1e-6);
  EXPECT_NEAR(bias(trainer)[0], 3, 0.5) << "the run went on from there";
  trainer.set_hyperparameter("weight_decay", 0);
  EXPECT_EQ(trainer.predict(batch()).fields(), std::vector<std::string>{"output"});
  EXPECT_EQ(run.evaluate().samples, 64);
  EXPECT_NE(run.pipeline_stats().find("\"stages\""), std::string::npos);
}

TEST_F(RunsTrainer, ItsEvaluationsAreNotTrainingTime) {
  const et::Runtime device = runtime();
  for (const bool several : {false, true}) {
    et::Run run(device, long_job(device, several));
    et::Trainer trainer = run.trainer();
    auto begin = Clock::now();
    double before = 0;
    for (uint64_t step = 0; step < 3;) {  // the first step does not count
      begin = Clock::now();
      const auto event = run.next_event(1e-9);
      step = event->step, before = event->seconds;
    }
    std::optional<Clock::time_point> first;
    trainer.on_evaluation([&](int64_t, int64_t) {
      if (!first) first = Clock::now();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      return true;
    });
    et::Pipeline input = et::Pipeline::from_json(images_.spec());
    trainer.evaluate(input);
    const auto end = Clock::now();
    const double after = run.next_event(1e-9)->seconds;
    const double others = seconds(begin, *first) + seconds(end, Clock::now());
    EXPECT_LE(after - before, others) << "evaluated for " << seconds(*first, end) << " seconds";
  }
}

TEST_F(RunsTrainer, ItsOtherCallsAreNotTrainingTimeEither) {
  const etr::test::TempDir dir;
  const et::Runtime device = runtime();
  for (const bool several : {false, true}) {
    et::Run run(device, long_job(device, several));
    et::Trainer trainer = run.trainer();
    while (run.next_event(1e-9)->step < 3) continue;  // the first step does not count
    const et::Batch samples = batch(), weights = trainer.weights();
    const std::pair<const char*, std::function<void()>> calls[] = {
        {"predict", [&] { trainer.predict(samples); }},
        {"save", [&] { trainer.save(dir.path("saved")); }},
        {"weights", [&] { trainer.weights(); }},
        {"set_weights", [&] { trainer.set_weights(weights); }}};
    for (const auto& [what, call] : calls) {
      const auto begin = Clock::now();
      const double before = run.next_event(1e-9)->seconds;
      call();  // waits for the steps in flight, which are training time
      const auto first = Clock::now();
      while (seconds(first, Clock::now()) < 0.3) call();
      const auto end = Clock::now();
      const double after = run.next_event(1e-9)->seconds;
      EXPECT_LE(after - before, seconds(begin, first) + seconds(end, Clock::now())) << what;
    }
  }
}

TEST_F(RunsTrainer, OutlivesARunThatIsOver) {
  auto run = std::make_unique<et::Run>(runtime(), job());
  while (run->next_event()) continue;
  et::Trainer trainer = run->trainer();
  const std::vector<float> trained = bias(trainer);
  run.reset();
  EXPECT_EQ(bias(trainer), trained);
  trainer.predict(batch());
}

TEST_F(RunsTrainer, LeavesTheRunsFolderWhenTheRunIsDestroyed) {
  const etr::test::TempDir dir;
  const std::string to = "output.dir=" + dir.path("run");
  const et::Runtime device = runtime();
  auto run = std::make_unique<et::Run>(device, job({to, "train.steps=1000000"}));
  et::Trainer trainer = run->trainer();
  run->next_event(1e-6);
  const std::vector<float> trained = bias(trainer);
  EXPECT_NE(state_error([&] {
              et::Run(device, job({to}), et::Start::overwrite);
            }).find("another run writes into"),
            std::string::npos);
  run.reset();
  et::Run next(device, job({to}), et::Start::overwrite);
  while (next.next_event()) continue;
  EXPECT_EQ(bias(trainer), trained);
  trainer.predict(batch());
  trainer.save(dir.path("saved"));
}

// If the folder got two more checkpoints, both would lack what the run needs to resume.
TEST_F(RunsTrainer, DoesNotReplaceTheRunsCheckpoints) {
  const etr::test::TempDir dir;
  const std::vector<std::string> changes = {"output.dir=" + dir.path("run"),
                                            "output.checkpoint_every_steps=2", "train.steps=4"};
  const et::Runtime device = runtime();
  {
    et::Run run(device, job(changes));
    et::Trainer trainer = run.trainer();
    while (run.next_event()->kind != ETR_EVENT_CHECKPOINT) continue;
    for (int i = 0; i < 2; ++i)
      EXPECT_NE(state_error([&] {
                  trainer.save(dir.path("run/checkpoints"));
                }).find("save into another folder"),
                std::string::npos);
  }
  et::Run resumed(device, job(changes), et::Start::resume);
  uint64_t step = 0;
  while (const auto event = resumed.next_event()) step = event->step;
  EXPECT_EQ(step, 4u);
}

TEST_F(RunsTrainer, IsDestroyedBeforeTheRun) {
  et::Run run(runtime(), job());
  { const et::Trainer destroyed = run.trainer(); }
  while (run.next_event()) continue;
}

// One of several devices cannot go on without the others.
TEST_F(RunsTrainer, EndsWithARunOfSeveralDevices) {
  const et::Runtime device = runtime();
  const std::string name = "\"" + std::string(device.device().name) + "\"";
  const std::string two = "parallel={\"devices\": [" + name + ", " + name + "]}";
  auto run = std::make_unique<et::Run>(device, job({two, "train.steps=1000000"}));
  et::Trainer trainer = run->trainer();
  run->next_event(1e-6);
  trainer.predict(batch());
  run.reset();
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(state_error([&] { trainer.predict(batch()); }).find("destroyed before it was over"),
              std::string::npos);
    state_error([&] { trainer.set_hyperparameter("weight_decay", 0); });
  }
  auto over = std::make_unique<et::Run>(device, job({two}));
  while (over->next_event()) continue;
  trainer = over->trainer();
  over.reset();
  trainer.predict(batch());
  EXPECT_EQ(bias(trainer).size(), 2u);
}

// A run and its trainers count as one handle.
TEST_F(RunsTrainer, IsRefusedWhileTheRunIsInUse) {
  et::Run run(runtime(), job());
  et::Trainer trainer = run.trainer();
  int told = 0;
  run.on_evaluation([&](int64_t, int64_t) {
    if (told++) return true;
    EXPECT_NE(state_error([&] { trainer.predict(batch()); }).find("the run is in use by the call"),
              std::string::npos);
    std::thread([&] {
      EXPECT_NE(state_error([&] { trainer.weights(); }).find("the run is in use by another thread"),
                std::string::npos);
      EXPECT_EQ(etr_run_stop(run.get()), ETR_OK);
    }).join();
    return true;
  });
  EXPECT_THROW(run.evaluate(), et::Error) << "stopped";
  EXPECT_EQ(told, 1);
  trainer.predict(batch());
}

// The run ends when the trainer's call returns.
TEST_F(RunsTrainer, MayBeInUseWhileTheRunIsDestroyed) {
  const etr::test::TempDir dir;
  const std::string to = "output.dir=" + dir.path("run");
  const et::Runtime device = runtime();
  auto run = std::make_unique<et::Run>(device, job({to, "train.steps=1000000"}));
  run->next_event(1e-6);
  et::Trainer trainer = run->trainer();
  et::Pipeline input = et::Pipeline::from_json(images_.spec());
  bool told = false;
  trainer.on_evaluation([&](int64_t, int64_t) {
    std::thread([&] { run.reset(); }).join();
    EXPECT_NE(state_error([&] {
                et::Run(device, job({to}), et::Start::overwrite);
              }).find("another run writes into"),
              std::string::npos);
    EXPECT_FALSE(std::exchange(told, true));
    return false;
  });
  EXPECT_THROW(trainer.evaluate(input), et::Error) << "stopped";
  EXPECT_TRUE(told);
  et::Run next(device, job({to}), et::Start::overwrite);
  trainer.predict(batch());
}

// Both may be destroyed by a function that they call.
TEST_F(RunsTrainer, AndTheRunAreDestroyedWithinAnEvaluation) {
  etr_run* run = nullptr;
  ASSERT_OK(etr_run_start(runtime().get(), job().get(), ETR_START_NEW, &run));
  etr_trainer* trainer = nullptr;
  ASSERT_OK(etr_run_trainer(run, &trainer));
  struct Both {
    etr_run* run;
    etr_trainer* trainer;
    int destroyed = 0;
  } both{run, trainer};
  const auto progress = [](void* given, int64_t done, int64_t) -> int32_t {
    auto& mine = *static_cast<Both*>(given);
    if (done > 1) return 1;
    etr_run_destroy(mine.run);
    etr_trainer_destroy(mine.trainer);
    EXPECT_EQ(mine.destroyed, 0);
    return 1;
  };
  ASSERT_OK(etr_run_on_evaluation(run, progress, &both,
                                  [](void* given) { ++static_cast<Both*>(given)->destroyed; }));
  etr_eval_result result{};
  result.struct_size = sizeof result;
  EXPECT_EQ(etr_run_evaluate(run, &result), ETR_CANCELLED) << etr_last_error();
  EXPECT_EQ(both.destroyed, 1);
}

TEST_F(RunsTrainer, OnesOwnFunctionIsNotTheRuns) {
  auto run = std::make_unique<et::Run>(runtime(), job());
  et::Trainer trainer = run->trainer();
  const auto of_run = std::make_shared<int>(0), own = std::make_shared<int>(0);
  run->on_evaluation([of_run](int64_t, int64_t) { return ++*of_run > 0; });
  trainer.on_evaluation([own](int64_t, int64_t) { return ++*own > 0; });
  run->evaluate();
  EXPECT_EQ(*of_run, 4);
  EXPECT_EQ(*own, 0);
  run.reset();
  EXPECT_EQ(of_run.use_count(), 1) << "the run's function is released with it";
  EXPECT_EQ(own.use_count(), 2);
}

// Wherever the library calls the program, the program's exception comes out unchanged.
TEST_F(RunsTrainer, TheProgramsExceptionsAreRethrown) {
  et::RuntimeOptions options;  // without a tuning, which would leave nothing to tune
  if (const char* name = std::getenv("ECHOTRAIN_TEST_DEVICE")) options.device = name;
  options.tuning = "";
  et::Runtime device(options);
  et::Model model;
  model.add("flatten").add("dense", {{"units", 2}});
  et::Trainer trainer(device, model, et::Optimizer("sgd", {}, {{"learning_rate", 0.1}}));
  et::Pipeline input({{"epochs", 2}});
  input.add("folder", {{"root", images_.path()}}).add("label").add("decode");
  input.map("mine", [](et::Batch&) { throw std::domain_error("of a map"); });
  input.add("batch", {{"size", 16}}).add("normalize");
  EXPECT_THROW(trainer.evaluate(input), std::domain_error);
  et::Pipeline good = et::Pipeline::from_json(images_.spec());
  trainer.on_evaluation([](int64_t, int64_t) -> bool { throw std::length_error("of progress"); });
  EXPECT_THROW(trainer.evaluate(good), std::length_error);
  const auto tuned = [](int64_t, int64_t, const char*, const char*) -> bool {
    throw std::range_error("tuned");
  };
  EXPECT_THROW(device.tune(images_.path("kernels.json"), tuned), std::range_error);
  EXPECT_THROW(job().advise(device, 0.05, false,
                            [](const std::string&) -> bool { throw std::logic_error("advised"); }),
               std::logic_error);
}

TEST_F(RunsTrainer, ARuntimeHasTheOptionsOfTheCFunction) {
  const etr::test::TempDir dir;
  et::RuntimeOptions options;
  if (const char* device = std::getenv("ECHOTRAIN_TEST_DEVICE")) options.device = device;
  options.kernels = ETR_KERNELS_TILED;
  options.tuning = "";
  for (const bool trusts : {false, true}) {
    options.trust_driver = trusts;
    options.cache_dir = dir.path(trusts ? "trusted" : "compared");
    {
      et::Run run(et::Runtime(options), job());
      while (run.next_event()) continue;
    }  // which writes the cache
    bool compared = false;
    for (const auto& file : fs::directory_iterator(*options.cache_dir))
      compared |= file.path().filename().string().starts_with("kernels-");
    EXPECT_NE(compared, trusts) << "what was compared is kept there";
  }
  options.kernels = ETR_KERNELS_MATRIX + 1;
  EXPECT_THROW(et::Runtime{options}, et::Error);
}

// What needs a batch of the job's pipeline does not wait for one longer than the run may.
TEST_F(RunsTrainer, AStopEndsTheWaitForAFirstBatch) {
  const std::vector<std::string> stalled = {
      R"(pipeline.stages=[{"stage": "folder", "root": ")" + images_.path() +
      R"("}, {"stage": "delay", "milliseconds": 600000}, {"stage": "label"}, {"stage": "decode"},
         {"stage": "batch", "size": 16}, {"stage": "normalize"}])"};
  const etr::test::TempDir dir;
  const std::vector<std::function<void(et::Run&, et::Trainer&)>> calls = {
      [](et::Run& run, et::Trainer&) { run.profile(1, "json"); },
      [](et::Run&, et::Trainer& trainer) { trainer.weights(); },
      [](et::Run&, et::Trainer& trainer) { trainer.set_weights(batch()); },
      [](et::Run&, et::Trainer& trainer) { trainer.summary(); },
      [path = dir.path("model.onnx")](et::Run&, et::Trainer& trainer) {
        trainer.export_onnx(path);
      }};
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto run = std::make_shared<et::Run>(runtime(), job(stalled), et::Start::trial);
    std::promise<int32_t> status;
    std::future<int32_t> ended = status.get_future();
    std::thread([run, call = calls[i], status = std::move(status)]() mutable {
      try {
        et::Trainer trainer = run->trainer();
        call(*run, trainer);
        status.set_value(ETR_OK);
      } catch (const et::Error& error) {
        status.set_value(error.status());
      }
    }).detach();  // a call that waited for ever would keep the test from ending
    run->stop();
    ASSERT_EQ(ended.wait_for(std::chrono::seconds(60)), std::future_status::ready) << "call " << i;
    EXPECT_EQ(ended.get(), ETR_CANCELLED) << "call " << i;
  }
}

// Nobody could stop a run that was destroyed and still waits.
TEST_F(RunsTrainer, AWaitForABatchEndsWithTheRun) {
  const std::vector<std::string> stalled = {
      R"(pipeline.stages=[{"stage": "folder", "root": ")" + images_.path() +
      R"("}, {"stage": "delay", "milliseconds": 600000}, {"stage": "label"}, {"stage": "decode"},
         {"stage": "batch", "size": 16}, {"stage": "normalize"}])"};
  for (const bool of_trainer : {false, true}) {
    etr_run* run = nullptr;
    ASSERT_OK(etr_run_start(runtime().get(), job(stalled).get(), ETR_START_NEW, &run));
    etr_trainer* trainer = nullptr;
    ASSERT_OK(etr_run_trainer(run, &trainer));
    struct Ended {
      int32_t status = ETR_OK, kind = -1;
    };
    std::promise<Ended> promise;
    std::future<Ended> ended = promise.get_future();
    std::thread([=, promise = std::move(promise)]() mutable {
      etr_event event{};
      event.struct_size = sizeof event;
      event.kind = -1;
      etr_batch* weights = nullptr;
      int32_t status = ETR_STATE;
      while (status == ETR_STATE)  // refused while the other thread has it
        status = of_trainer ? etr_trainer_get_weights(trainer, nullptr, &weights)
                            : etr_run_next_event_within(run, 1e6, &event);
      promise.set_value({status, event.kind});
    }).detach();  // a call that waited for ever would keep the test from ending
    char* text = nullptr;
    while (etr_run_pipeline_stats(run, &text) == ETR_OK) etr_string_free(text);  // until it is used
    etr_run_destroy(run);
    ASSERT_EQ(ended.wait_for(std::chrono::seconds(60)), std::future_status::ready) << of_trainer;
    const Ended how = ended.get();
    EXPECT_EQ(how.status, of_trainer ? ETR_CANCELLED : ETR_OK);
    EXPECT_EQ(how.kind, of_trainer ? -1 : ETR_EVENT_END);
    etr_trainer_destroy(trainer);
  }
}

TEST_F(RunsTrainer, ARunToEvaluateHasNoEvents) {
  const etr::test::TempDir dir;
  const std::string to = "output.dir=" + dir.path("run");
  const et::Runtime device = runtime();
  et::Run trains(device, job({to}));
  while (trains.next_event()) continue;
  et::Run run(device, job({to}), et::Start::evaluate);
  state_error([&] { run.next_event(); });
  EXPECT_EQ(etr_run_next_event(run.get(), nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(run.evaluate().samples, 64);
  run.trainer().export_onnx(dir.path("model.onnx"));
  EXPECT_TRUE(fs::exists(dir.path("model.onnx")));
  et::Run trial(device, job({to}), et::Start::trial);
  EXPECT_EQ(etr_run_profile(trial.get(), 1, "texts", nullptr), ETR_INVALID_ARGUMENT);
  try {
    EXPECT_NE(trial.profile(1, "json").find("\"ops\""), std::string::npos);
  } catch (const et::Error& error) {
    EXPECT_EQ(error.status(), ETR_UNSUPPORTED) << "without timestamps: " << error.what();
  }
}

}  // namespace

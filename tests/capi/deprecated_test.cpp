// The functions that treat a run as a trainer: they work for one more version.
#define ETR_NO_DEPRECATION_WARNINGS
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "capi/support.h"
#include "echotrain/echotrain.hpp"

#ifdef __GNUC__  // the members of echotrain.hpp
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif

namespace {

namespace et = echotrain;

// The transport of a group of one rank.
class Alone : public et::Transport {
 public:
  int32_t rank() const override { return 0; }
  int32_t size() const override { return 1; }
  void all_reduce(void*, uint64_t, int32_t, int32_t, double) override {}
  void all_gather(const void* part, const uint64_t* sizes, void* data, double) override {
    std::memmove(data, part, sizes[0]);
  }
  void broadcast(void*, uint64_t, int32_t, double) override {}
  void barrier(double) override {}
  std::unique_ptr<et::Transport> split(int32_t colour, int32_t, double) override {
    return colour < 0 ? nullptr : std::make_unique<Alone>();
  }
  void abort(const std::string&) override {}
};

class Deprecated : public testing::Test {
 protected:
  et::Job job() const {
    return et::Job::parse(
        R"({"pipeline": )" + images_.spec() + R"(, "evaluation": {"pipeline": )" +
        images_.spec().replace(1, 0, "\"epochs\": 1, ") +
        R"(}, "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 2}]},
        "optimizer": {"optimizer": "sgd"}, "schedule": {"learning_rate": 0.02},
        "train": {"steps": 4}, "output": {"dir": ""}})");
  }
  static et::Runtime runtime() {
    const char* device = std::getenv("ECHOTRAIN_TEST_DEVICE");
    return et::Runtime(device ? device : "");
  }
  Images images_;
};

TEST_F(Deprecated, ATrainerRunsAJob) {
  const et::Runtime device = runtime();
  const et::Job of = job();
  etr_trainer* trainer = nullptr;
  EXPECT_EQ(etr_trainer_create_from_job(device.get(), of.get(), 1, &trainer), ETR_STATE);
  ASSERT_OK(etr_trainer_create_from_job(device.get(), of.get(), 0, &trainer));
  etr_trainer_destroy(trainer);
  ASSERT_OK(etr_trainer_start_job(device.get(), of.get(), ETR_START_NEW, &trainer));
  int told = 0;
  ASSERT_OK(etr_trainer_on_evaluation(
      trainer, [](void* count, int64_t, int64_t) { return ++*static_cast<int*>(count); }, &told,
      nullptr));
  etr_event event{};
  event.struct_size = sizeof event;
  ASSERT_OK(etr_trainer_next_event_within(trainer, 1e-6, &event));
  int32_t status = ETR_OK;
  while ((status = etr_trainer_next_event(trainer, &event)) == ETR_OK) continue;
  EXPECT_EQ(status, ETR_END) << etr_last_error();
  EXPECT_EQ(event.step, 4u);
  EXPECT_EQ(told, 8);
  etr_eval_result result{};
  result.struct_size = sizeof result;
  ASSERT_OK(etr_trainer_evaluate(trainer, nullptr, &result));
  EXPECT_EQ(result.samples, 128);
  EXPECT_EQ(told, 16);
  char* json = nullptr;
  ASSERT_OK(etr_trainer_pipeline_stats(trainer, &json));
  etr_string_free(json);
  EXPECT_EQ(etr_trainer_step(trainer, nullptr), ETR_STATE);
  EXPECT_EQ(etr_trainer_stop(trainer), ETR_OK);
  etr_trainer_destroy(trainer);
}

TEST_F(Deprecated, ATrainerRunsAJobOverATransport) {
  et::Trainer trainer(runtime(), job(), et::Start::new_run, std::make_unique<Alone>());
  uint64_t steps = 0;
  while (const auto event = trainer.next_event()) steps = event->step;
  EXPECT_EQ(steps, 4u);
  EXPECT_NE(trainer.pipeline_stats().find("\"ranks\""), std::string::npos);
}

// Its destroy is called once, whatever the call makes of it.
TEST_F(Deprecated, ATransportBelongsToATrainerThatCannotStart) {
  const et::Runtime device = runtime();
  const et::Job of = job();
  static int destroyed;
  destroyed = 0;
  etr_engine engine{};
  engine.struct_size = sizeof engine;
  engine.size = 1;
  engine.abort = [](void*, const char*) {};
  engine.destroy = [](void*) { ++destroyed; };
  etr_trainer* trainer = nullptr;
  EXPECT_EQ(etr_trainer_start_job_over(device.get(), of.get(), 9, &engine, &trainer),
            ETR_INVALID_ARGUMENT);
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(etr_trainer_start_job_over(device.get(), of.get(), ETR_START_NEW, &engine, &trainer),
            ETR_UNSUPPORTED)
      << "no split";
  EXPECT_EQ(destroyed, 2);
  EXPECT_EQ(etr_trainer_start_job_over(device.get(), of.get(), ETR_START_NEW, nullptr, &trainer),
            ETR_INVALID_ARGUMENT);
  EXPECT_EQ(trainer, nullptr);
}

TEST_F(Deprecated, AFolderIsPacked) {
  const etr::test::TempDir out;
  char* json = nullptr;
  ASSERT_OK(etr_pack_folder(images_.path().c_str(), out.path("a/x").c_str(), 40, 0, 1, nullptr,
                            nullptr, &json));
  EXPECT_NE(std::string(json).find("\"samples\":64"), std::string::npos) << json;
  etr_string_free(json);
  EXPECT_TRUE(std::filesystem::exists(out.path("a/x-000001.tar")));
  ASSERT_OK(etr_pack_folder(images_.path().c_str(), out.path("a/x").c_str(), 100, 0, 1, nullptr,
                            nullptr, nullptr))
      << "it replaces the shards of an earlier packing";
  EXPECT_FALSE(std::filesystem::exists(out.path("a/x-000001.tar")));
  const auto stop = [](void*, int64_t, int64_t) -> int32_t { return 0; };
  EXPECT_EQ(etr_pack_folder(images_.path().c_str(), out.path("b/x").c_str(), 40, 0, 1, stop,
                            nullptr, nullptr),
            ETR_CANCELLED);
}

TEST_F(Deprecated, TheTrainerOfARunIsNoRun) {
  et::Run run(runtime(), job());
  et::Trainer trainer = run.trainer();
  etr_event event{};
  event.struct_size = sizeof event;
  EXPECT_EQ(etr_trainer_next_event(trainer.get(), &event), ETR_STATE);
  EXPECT_NE(std::string(etr_last_error()).find("etr_run_start"), std::string::npos);
  EXPECT_EQ(etr_trainer_stop(trainer.get()), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_trainer_stop(nullptr), ETR_INVALID_ARGUMENT);
  etr_eval_result result{};
  result.struct_size = sizeof result;
  EXPECT_EQ(etr_trainer_evaluate(trainer.get(), nullptr, &result), ETR_INVALID_ARGUMENT);
}

TEST_F(Deprecated, ATrainerOfTheCppHeaderRunsAJob) {
  et::Trainer trainer(runtime(), job());
  const et::Trainer moved = std::move(trainer);
  trainer = et::Trainer(runtime(), job(), et::Start::new_run);
  EXPECT_GT(trainer.evaluate().samples, 0);
  uint64_t steps = 0;
  while (const auto event = trainer.next_event()) steps = event->step;
  EXPECT_EQ(steps, 4u);
  EXPECT_NE(trainer.pipeline_stats().find("\"stages\""), std::string::npos);
  trainer.stop();
  EXPECT_THROW(et::Trainer(runtime(), job(), et::Start::new_run, nullptr), et::Error);
}

}  // namespace

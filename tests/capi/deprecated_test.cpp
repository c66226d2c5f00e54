// The functions that treat a run as a trainer: they work for one more version.
#define ETR_NO_DEPRECATION_WARNINGS
#include <gtest/gtest.h>

#include <string>

#include "capi/support.h"
#include "echotrain/echotrain.hpp"

#ifdef __GNUC__  // the members of echotrain.hpp
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#endif

namespace {

namespace et = echotrain;

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

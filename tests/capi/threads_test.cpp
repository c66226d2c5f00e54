// One handle and several threads: convention 4 of echotrain.h.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "echotrain/echotrain.hpp"
#include "support/temp_dir.h"

namespace {

using echotrain::Options;

// A source of samples whose first one waits until it is let go: while it does, a thread that reads
// is in its call.
struct Gate {
  std::promise<void> entered_once, opened_once;
  std::future<void> entered = entered_once.get_future();
  std::shared_future<void> opened = opened_once.get_future().share();
  std::atomic<int> calls{0}, destroyed{0};

  void wait_for_entry() { entered.wait(); }
  void open() { opened_once.set_value(); }

  static int32_t give(void* self, etr_batch* item) {
    Gate& gate = *static_cast<Gate*>(self);
    if (gate.calls++ == 0) {
      gate.entered_once.set_value();
      gate.opened.wait();
    }
    const std::array<float, 6> ones{1, 1, 1, 1, 1, 1};
    const int32_t label = 1;
    etr_tensor image{sizeof image, ETR_F32, 1, 0, {6}, ones.data(), sizeof ones};
    etr_tensor one{sizeof one, ETR_I32, 0, 0, {}, &label, sizeof label};
    if (etr_batch_set(item, "image", &image) != ETR_OK) return ETR_CALLBACK;
    return etr_batch_set(item, "label", &one);
  }

  etr_pipeline* pipeline() {
    etr_options* options = nullptr;
    EXPECT_EQ(etr_options_create_from_json(R"({"epochs": 1})", &options), ETR_OK);
    etr_pipeline* made = nullptr;
    EXPECT_EQ(etr_pipeline_create(options, &made), ETR_OK);
    etr_options_destroy(options);
    EXPECT_EQ(etr_pipeline_add_source(made, "gate", &give, this,
                                      [](void* p) { ++static_cast<Gate*>(p)->destroyed; }),
              ETR_OK);
    const auto add = [&](const char* stage, const char* json) {
      etr_options* given = nullptr;
      EXPECT_EQ(etr_options_create_from_json(json, &given), ETR_OK);
      EXPECT_EQ(etr_pipeline_add(made, stage, given), ETR_OK) << etr_last_error();
      etr_options_destroy(given);
    };
    add("take", R"({"count": 8})");
    add("batch", R"({"size": 4})");
    return made;
  }
};

echotrain::Batch ones(int64_t rows) {
  echotrain::Batch batch;
  const std::vector<float> values(static_cast<size_t>(rows) * 6, 1.0f);
  const std::vector<int32_t> labels(static_cast<size_t>(rows), 1);
  batch.set("image", values.data(), {rows, 6});
  batch.set("label", labels.data(), {rows});
  return batch;
}

echotrain::Trainer small_trainer() {
  const echotrain::Model model(R"({"layers": [{"layer": "dense", "units": 2}]})");
  return echotrain::Trainer(echotrain::Runtime(), model,
                            echotrain::Optimizer("sgd", Options{}, Options{{"learning_rate", 0.1}}),
                            1, 0);
}

// Two batches, without anything that waits.
int32_t evaluate(echotrain::Trainer& trainer) {
  Gate gate;
  gate.open();
  etr_pipeline* pipeline = gate.pipeline();
  etr_eval_result result{};
  result.struct_size = sizeof result;
  const int32_t status = etr_trainer_evaluate(trainer.get(), pipeline, &result);
  etr_pipeline_destroy(pipeline);
  return status;
}

TEST(Threads, AHandleInUseByAnotherIsRefused) {
  Gate gate;
  etr_pipeline* pipeline = gate.pipeline();
  echotrain::Trainer trainer = small_trainer();
  etr_eval_result result{};
  result.struct_size = sizeof result;
  int32_t evaluated = ETR_INTERNAL;
  std::thread other([&] { evaluated = etr_trainer_evaluate(trainer.get(), pipeline, &result); });
  gate.wait_for_entry();
  const echotrain::Batch batch = ones(4);
  etr_batch* outputs = nullptr;
  char* text = nullptr;
  etr_step_result step{};
  step.struct_size = sizeof step;
  EXPECT_EQ(etr_trainer_step(trainer.get(), batch.get()), ETR_STATE);
  EXPECT_NE(std::string(etr_last_error()).find("the trainer is in use by another thread"),
            std::string::npos)
      << etr_last_error();
  EXPECT_EQ(etr_trainer_predict(trainer.get(), batch.get(), &outputs), ETR_STATE);
  EXPECT_EQ(etr_trainer_result(trainer.get(), 1, &step), ETR_STATE);
  EXPECT_EQ(etr_trainer_save(trainer.get(), "/none"), ETR_STATE);
  EXPECT_EQ(etr_trainer_load_pytorch(trainer.get(), "/none", nullptr), ETR_STATE);
  EXPECT_EQ(etr_pipeline_next(pipeline, &outputs), ETR_STATE);
  EXPECT_EQ(etr_pipeline_save(pipeline, &text), ETR_STATE);
  EXPECT_EQ(etr_pipeline_stats(pipeline, &text), ETR_OK) << "from any thread";
  etr_string_free(text);
  gate.open();
  other.join();
  EXPECT_EQ(evaluated, ETR_OK);
  EXPECT_EQ(result.samples, 8);
  EXPECT_EQ(etr_trainer_step(trainer.get(), batch.get()), ETR_OK) << "free again";
  etr_pipeline_destroy(pipeline);
}

TEST(Threads, CancelFreesAnotherThread) {
  Gate gate;
  etr_pipeline* pipeline = gate.pipeline();
  int32_t status = ETR_INTERNAL;
  std::thread other([&] {
    etr_batch* batch = nullptr;
    status = etr_pipeline_next(pipeline, &batch);
  });
  gate.wait_for_entry();
  EXPECT_EQ(etr_pipeline_cancel(pipeline), ETR_OK);
  gate.open();
  other.join();
  EXPECT_EQ(status, ETR_CANCELLED);
  etr_pipeline_destroy(pipeline);
  EXPECT_EQ(gate.destroyed, 1);
}

// The first of the two calls to return does not wait for the program's function; the other ends the
// pipeline, which does.
TEST(Threads, APipelineIsDestroyedUnderItsReader) {
  Gate gate;
  etr_pipeline* pipeline = gate.pipeline();
  int32_t status = ETR_INTERNAL;
  std::promise<void> one_returned;
  std::atomic<int> returned{0};
  const auto count_return = [&] {
    if (returned++ == 0) one_returned.set_value();
  };
  std::thread reader([&] {
    etr_batch* batch = nullptr;
    status = etr_pipeline_next(pipeline, &batch);
    count_return();
  });
  gate.wait_for_entry();
  std::thread destroyer([&] {
    etr_pipeline_destroy(pipeline);
    count_return();
  });
  one_returned.get_future().wait();
  EXPECT_EQ(gate.destroyed, 0) << "the program's function still runs";
  gate.open();
  reader.join();
  destroyer.join();
  EXPECT_EQ(status, ETR_CANCELLED);
  EXPECT_EQ(gate.destroyed, 1) << "the last has ended the work";
}

TEST(Threads, ATrainerIsDestroyedUnderItsUser) {
  Gate gate;
  etr_pipeline* pipeline = gate.pipeline();
  echotrain::Trainer trainer = small_trainer();
  etr_eval_result result{};
  result.struct_size = sizeof result;
  int32_t status = ETR_INTERNAL;
  std::thread other(
      [&, raw = trainer.get()] { status = etr_trainer_evaluate(raw, pipeline, &result); });
  gate.wait_for_entry();
  { const echotrain::Trainer destroyed = std::move(trainer); }
  gate.open();
  other.join();
  EXPECT_EQ(status, ETR_OK);
  EXPECT_EQ(result.samples, 8);
  etr_pipeline_destroy(pipeline);
}

// Many small calls from two threads: each is served or refused, and none is lost.
TEST(Threads, TwoThreadsOnOneTrainer) {
  echotrain::Trainer trainer = small_trainer();
  const echotrain::Batch batch = ones(4);
  ASSERT_EQ(etr_trainer_step(trainer.get(), batch.get()), ETR_OK);
  std::atomic<int> steps{1}, results{0}, others{0};
  const auto hammer = [&] {
    for (int i = 0; i < 300; ++i) {
      const int32_t stepped = etr_trainer_step(trainer.get(), batch.get());
      steps += stepped == ETR_OK;
      etr_step_result result{};
      result.struct_size = sizeof result;
      const int32_t taken = etr_trainer_result(trainer.get(), 1, &result);
      results += taken == ETR_OK;
      etr_batch* outputs = nullptr;
      const int32_t predicted = etr_trainer_predict(trainer.get(), batch.get(), &outputs);
      etr_batch_destroy(outputs);
      for (const int32_t status : {stepped, taken, predicted})
        others += status != ETR_OK && status != ETR_STATE && status != ETR_END;
    }
  };
  std::thread a(hammer), b(hammer);
  a.join();
  b.join();
  etr_step_result result{};
  result.struct_size = sizeof result;
  while (etr_trainer_result(trainer.get(), 1, &result) == ETR_OK) ++results;
  EXPECT_EQ(steps, results);
  EXPECT_EQ(others, 0);
}

TEST(Threads, SeveralReadOneBatchAtOnce) {
  const echotrain::Batch batch = ones(4);
  std::atomic<int> failed{0};
  const auto read = [&] {
    for (int i = 0; i < 1000; ++i) {
      etr_tensor tensor{};
      tensor.struct_size = sizeof tensor;
      failed += etr_batch_get(batch.get(), "image", &tensor) != ETR_OK;
    }
  };
  std::thread a(read), b(read);
  a.join();
  b.join();
  EXPECT_EQ(failed, 0);
}

// The function that runs stays; an empty one removes it.
TEST(Threads, AnEvaluationsFunctionIsNotReplacedWhileItRuns) {
  echotrain::Trainer trainer = small_trainer();
  const auto told = std::make_shared<int>(0);
  trainer.on_evaluation([&trainer, told](int64_t, int64_t) {
    try {
      trainer.on_evaluation([](int64_t, int64_t) { return false; });
      ADD_FAILURE() << "replaced";
    } catch (const echotrain::Error& error) {
      EXPECT_EQ(error.status(), ETR_STATE);
    }
    ++*told;
    return true;
  });
  EXPECT_EQ(evaluate(trainer), ETR_OK) << etr_last_error();
  EXPECT_EQ(*told, 2);
  EXPECT_EQ(told.use_count(), 2);
  trainer.on_evaluation({});
  EXPECT_EQ(told.use_count(), 1);
  EXPECT_EQ(evaluate(trainer), ETR_OK) << etr_last_error();
  EXPECT_EQ(*told, 2);
}

TEST(Threads, WhatAnEvaluationsFunctionThrowsEndsIt) {
  echotrain::Trainer trainer = small_trainer();
  trainer.on_evaluation([](int64_t, int64_t) -> bool { throw std::runtime_error("mine"); });
  EXPECT_EQ(evaluate(trainer), ETR_CALLBACK);
  EXPECT_STREQ(etr_last_error(), "evaluation: the progress function threw an exception: mine");
  trainer.on_evaluation({});
  EXPECT_EQ(evaluate(trainer), ETR_OK) << etr_last_error();
}

// Of echotrain.hpp's calls it is the program's own exception; the next evaluation has no part in
// it.
TEST(Threads, WhatAnEvaluationsFunctionThrowsComesOutOfTheCall) {
  struct Mine {};
  const auto data = [] {
    echotrain::Pipeline p(Options{{"epochs", 1}});
    p.source("one", [](echotrain::Batch& item) {
      const std::array<float, 6> ones{1, 1, 1, 1, 1, 1};
      const int32_t label = 1;
      item.set("image", ones.data(), {6});
      item.set("label", &label, {});
      return (item.info().ordinal & 1) == 0;
    });
    p.add("batch", Options{{"size", 1}});
    return p;
  };
  echotrain::Trainer trainer = small_trainer();
  trainer.on_evaluation([](int64_t, int64_t) -> bool { throw Mine(); });
  for (int i = 0; i < 2; ++i) {
    echotrain::Pipeline p = data();
    EXPECT_THROW(trainer.evaluate(p), Mine);
  }
  trainer.on_evaluation({});
  echotrain::Pipeline fails = data();
  fails.map("fails", [](echotrain::Batch&) { throw std::logic_error("not of the listener"); });
  EXPECT_THROW(trainer.evaluate(fails), std::logic_error);
  echotrain::Pipeline p = data();
  EXPECT_EQ(trainer.evaluate(p).samples, 1);
}

// A stage that was added is there; one that comes too late is refused.
TEST(Threads, StagesAreAddedWhileAnotherThreadAsksForStatistics) {
  for (int round = 0; round < 50; ++round) {
    etr_pipeline* pipeline = nullptr;
    ASSERT_EQ(etr_pipeline_create(nullptr, &pipeline), ETR_OK);
    Gate gate;
    ASSERT_EQ(etr_pipeline_add_source(pipeline, "gate", &Gate::give, &gate, nullptr), ETR_OK);
    const auto stages = [&] {
      char* json = nullptr;
      EXPECT_EQ(etr_pipeline_stats(pipeline, &json), ETR_OK) << etr_last_error();
      const std::string text = json ? json : "";
      etr_string_free(json);
      return text;
    };
    std::thread other(stages);
    const auto same = [](void*, etr_batch*) -> int32_t { return ETR_OK; };
    const int32_t added = etr_pipeline_add_map(pipeline, "added", same, nullptr, nullptr);
    other.join();
    EXPECT_TRUE(added == ETR_OK || added == ETR_STATE) << etr_last_error();
    EXPECT_EQ(stages().find("\"map\"") != std::string::npos, added == ETR_OK) << stages();
    etr_pipeline_destroy(pipeline);
  }
}

// A function of the program is called within a call on the handle that it uses.
TEST(Threads, AHandleInUseByOnesOwnCallIsRefused) {
  const etr::test::TempDir dir;
  const std::string images = dir.path("images");
  std::filesystem::create_directories(images + "/a");
  std::ofstream(images + "/a/1.png", std::ios::binary)
      << "\x89PNG\r\n\x1a\n, and nothing that is decoded here";
  etr_options* options = nullptr;
  ASSERT_EQ(etr_options_create(&options), ETR_OK);
  const auto progress = [](void* given, int64_t, int64_t) -> int32_t {
    auto* mine = static_cast<etr_options*>(given);
    EXPECT_EQ(etr_options_set_integer(mine, "seed", 7), ETR_STATE);
    EXPECT_NE(std::string(etr_last_error()).find("is being read by another call"),
              std::string::npos);
    return 1;
  };
  EXPECT_EQ(etr_pack(images.c_str(), dir.path("p").c_str(), options, progress, options, nullptr),
            ETR_OK)
      << etr_last_error();
  EXPECT_EQ(etr_options_set_integer(options, "seed", 7), ETR_OK);
  etr_options_destroy(options);
}

}  // namespace

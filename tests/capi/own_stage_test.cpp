// Functions of the program as stages, batches of its own, DLPack and prediction; through
// echotrain.hpp and, where it hides what is tested, the C API.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>
#include <set>
#include <thread>

#include "echotrain/echotrain.hpp"
#include "support/eventually.h"
#include "support/temp_dir.h"

namespace {

namespace fs = std::filesystem;
using echotrain::Batch;
using echotrain::Options;
using echotrain::Pipeline;

// A folder of two classes of small PGM-free records: the stages under test read only labels.
class Labels {
 public:
  Labels() {
    for (int i = 0; i < 40; ++i) {
      const fs::path folder = dir_.path(std::to_string(i % 2));
      fs::create_directories(folder);
      std::ofstream(folder / (std::to_string(i) + ".png")) << "not decoded here " << i;
    }
  }

  std::string root() const { return dir_.path(); }

  Pipeline pipeline(int threads = 2, const char* on_error = "fail") const {
    Pipeline p(Options{{"threads", threads}, {"epochs", 1}, {"on_error", on_error}});
    p.add("folder", {{"root", root()}}).add("label");
    return p;
  }

 private:
  etr::test::TempDir dir_;
};

std::vector<int32_t> labels_of(Pipeline& p) {
  std::vector<int32_t> out;
  while (auto batch = p.next()) out.push_back(*(*batch)["label"].as<int32_t>());
  return out;
}

void set_label(Batch& item, int32_t value) { item.set("label", &value, {}); }

// Numbers 0 to 9 in each pass; the epoch beside them.
Pipeline counting(Options options) {
  Pipeline p(std::move(options));
  p.source("count", [](Batch& item) {
    const auto info = item.info();
    const auto number = static_cast<int32_t>(info.ordinal & 0xFFFFFFFFFF);
    if (number >= 10) return false;
    set_label(item, number + 100 * static_cast<int32_t>(info.epoch));
    return true;
  });
  return p;
}

TEST(OwnSource, GivesSamplesUntilItsPassEnds) {
  Pipeline p = counting({{"epochs", 2}});
  std::vector<int32_t> expected(10);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_FALSE(p.length());
  EXPECT_EQ(labels_of(p), expected);
  EXPECT_EQ(p.length(), 10);
  std::iota(expected.begin(), expected.end(), 100);
  EXPECT_EQ(labels_of(p), expected);
  Pipeline shared = counting({{"epochs", 1}, {"rank", 1}, {"world_size", 3}});
  EXPECT_EQ(labels_of(shared), (std::vector<int32_t>{1, 4, 7}));
}

TEST(OwnSource, IsRestoredAndRepeated) {
  Pipeline original = counting({{"seed", 1}});
  original.add("repeat", {{"count", 2}}).add("shuffle", {{"buffer", 4}});
  for (int i = 0; i < 7; ++i) original.next();
  Pipeline restored = counting({{"seed", 1}});
  restored.add("repeat", {{"count", 2}}).add("shuffle", {{"buffer", 4}});
  restored.restore(original.save());
  EXPECT_EQ(labels_of(original), labels_of(restored));
}

TEST(OwnSource, ItsExceptionsAreThrownAgainOrSkipped) {
  for (const char* on_error : {"fail", "skip"}) {
    Pipeline p(Options{{"epochs", 1}, {"on_error", on_error}});
    p.source("flaky", [](Batch& item) {
      const auto number = static_cast<int32_t>(item.info().ordinal);
      if (number == 3) throw std::out_of_range("three");
      set_label(item, number);
      return number < 5 ? true : false;
    });
    if (on_error == std::string("fail"))
      EXPECT_THROW(labels_of(p), std::out_of_range);
    else
      EXPECT_EQ(labels_of(p), (std::vector<int32_t>{0, 1, 2, 4}));
  }
  Pipeline twice = counting({});
  EXPECT_THROW(twice.source("again", [](Batch&) { return false; }), echotrain::Error);
}

TEST(OwnSource, AndStageAreNoEmptyFunctions) {
  Pipeline p;
  EXPECT_THROW(p.source("none", nullptr), echotrain::Error);
  p.source("ended", [](Batch&) { return false; });
  try {
    p.map("none", {});
    ADD_FAILURE() << "no error";
  } catch (const echotrain::Error& error) {
    EXPECT_EQ(error.status(), ETR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.what()).find("'none' is empty"), std::string::npos) << error.what();
  }
}

// As a garbage collector does that runs in the function.
TEST(OwnStage, MayDestroyItsOwnPipeline) {
  const Labels data;
  struct Shared {
    std::atomic<etr_pipeline*> pipeline{nullptr};
    std::atomic<bool> ended{false};
  };
  for (int round = 0; round < 20; ++round) {
    Shared shared;
    etr_pipeline* p = nullptr;
    echotrain::check(etr_pipeline_create(nullptr, &p));
    const Options folder{{"root", data.root()}};
    echotrain::check(etr_pipeline_add(p, "folder", folder.get()));
    const auto destroy_it = [](void* data_, etr_batch*) -> int32_t {
      auto* s = static_cast<Shared*>(data_);
      while (!s->pipeline.load()) std::this_thread::yield();
      etr_pipeline* mine = s->pipeline.load();
      if (s->pipeline.compare_exchange_strong(mine, reinterpret_cast<etr_pipeline*>(1)) &&
          mine != reinterpret_cast<etr_pipeline*>(1))
        etr_pipeline_destroy(mine);
      return ETR_OK;
    };
    echotrain::check(etr_pipeline_add_map(p, "destroy", destroy_it, &shared, [](void* data_) {
      static_cast<Shared*>(data_)->ended = true;
    }));
    etr_pipeline_wait(p, 0);  // starts it
    shared.pipeline = p;
    ASSERT_TRUE(etr::test::eventually([&] { return shared.ended.load(); }))
        << "the function is dropped when the pipeline has ended";
  }
}

TEST(OwnStage, ChangesSamplesInOrderAtAnyThreadCount) {
  const Labels data;
  for (const int threads : {1, 4}) {
    Pipeline p = data.pipeline(threads);
    p.map("ordinal",
          [](Batch& item) { set_label(item, static_cast<int32_t>(item.info().ordinal)); });
    const auto labels = labels_of(p);
    std::vector<int32_t> expected(40);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(labels, expected);
  }
}

TEST(OwnStage, SeesWholeBatchesBehindBatch) {
  const Labels data;
  Pipeline p = data.pipeline();
  p.map("drop_image", [](Batch& item) {
    const auto names = item.fields();
    for (const std::string& name : names)
      if (name != "label") item.remove(name);
  });
  p.add("batch", {{"size", 8}});
  p.map("sum", [](Batch& batch) {
    const auto labels = batch["label"];
    ASSERT_EQ(labels.shape, std::vector<int64_t>{8});
    const float sum = std::accumulate(labels.as<int32_t>(), labels.as<int32_t>() + 8, 0.0f);
    batch.set("sum", &sum, {1});
  });
  int batches = 0;
  while (auto batch = p.next()) {
    ++batches;
    EXPECT_GE(*(*batch)["sum"].as<float>(), 0.0f);
  }
  EXPECT_EQ(batches, 5);
}

TEST(OwnStage, WhatItThrowsReachesTheConsumer) {
  const Labels data;
  Pipeline p = data.pipeline();
  p.map("picky", [](Batch& item) {
    if (item.info().ordinal == 17) throw std::domain_error("seventeen");
  });
  int delivered = 0;
  try {
    while (p.next()) ++delivered;
    FAIL() << "no error";
  } catch (const std::domain_error& error) {
    EXPECT_STREQ(error.what(), "seventeen");
  }
  EXPECT_EQ(delivered, 17) << "everything before the error is delivered";
}

TEST(OwnStage, TheExceptionThatEndsTheRunIsThrownAndNoToleratedOne) {
  struct NoStandardException {};
  const auto thrown_after_tolerated = [](const std::function<void()>& last) {
    Pipeline p(Options{{"on_error", "skip"}, {"max_bad_records", 2}, {"threads", 1}});
    p.source("numbers", [](Batch& item) {
      set_label(item, static_cast<int32_t>(item.info().ordinal));
      return true;
    });
    p.map("picky", [last](Batch& item) {
      const int32_t number = *item["label"].as<int32_t>();
      if (number == 1 || number == 5) throw std::out_of_range("record 1");
      if (number == 15) last();
    });
    labels_of(p);
  };
  const auto runtime_error_of = [&](const std::string& text) {
    try {
      thrown_after_tolerated([&] { throw std::runtime_error(text); });
    } catch (const std::runtime_error& error) {
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  EXPECT_EQ(runtime_error_of("record 15"), "record 15");
  EXPECT_EQ(runtime_error_of(""), "");
  EXPECT_EQ(runtime_error_of("caf\xe9"), "caf\xe9") << "not UTF-8";
  const std::string long_text = std::string(2000, 'x') + "15";
  EXPECT_EQ(runtime_error_of(long_text), long_text);
  EXPECT_THROW(thrown_after_tolerated([] { throw NoStandardException(); }), NoStandardException);
}

TEST(OwnStage, AnErrorThatIsNoExceptionOfTheProgramIsAnErrorOfTheLibrary) {
  Pipeline p(Options{{"on_error", "skip"}, {"max_bad_records", 1}, {"threads", 1}});
  p.source("numbers", [](Batch& item) {
    if (item.info().ordinal == 1) throw std::out_of_range("record 1");
    if (item.info().ordinal != 3) set_label(item, 0);  // a sample without fields is bad, too
    return true;
  });
  try {
    labels_of(p);
    FAIL() << "no error";
  } catch (const echotrain::Error& error) {
    EXPECT_EQ(error.status(), ETR_CALLBACK);
    EXPECT_NE(std::string(error.what()).find("has set no field"), std::string::npos)
        << error.what();
  }
}

TEST(OwnStage, ItsFailuresObeyTheErrorPolicyAndNameIt) {
  const Labels data;
  Pipeline p = data.pipeline(2, "skip");
  p.map("picky", [](Batch& item) {
    if (item.info().ordinal % 10 == 0) throw std::runtime_error("too round");
  });
  EXPECT_EQ(labels_of(p).size(), 36u);
  const std::string bad = p.bad_records();
  EXPECT_NE(bad.find("picky"), std::string::npos) << bad;
  EXPECT_NE(bad.find("too round"), std::string::npos) << bad;
}

TEST(OwnStage, DestroyRunsExactlyOnce) {
  static std::atomic<int> destroyed;
  destroyed = 0;
  const auto destroy = [](void*) { ++destroyed; };
  const auto identity = [](void*, etr_batch*) -> int32_t { return ETR_OK; };
  {
    const Labels data;
    Pipeline p = data.pipeline();
    ASSERT_EQ(etr_pipeline_add_map(p.get(), "a", identity, nullptr, destroy), ETR_OK);
    EXPECT_EQ(etr_pipeline_add_map(p.get(), "a", identity, nullptr, destroy), ETR_INVALID_ARGUMENT);
    EXPECT_EQ(destroyed, 1) << "the refused one";
    EXPECT_EQ(etr_pipeline_add_map(p.get(), "b", nullptr, nullptr, destroy), ETR_INVALID_ARGUMENT);
    EXPECT_EQ(destroyed, 2);
    p.next();
    EXPECT_EQ(destroyed, 2);
  }
  EXPECT_EQ(destroyed, 3);
}

TEST(OwnStage, AJobFileCannotBringAFunction) {
  try {
    Pipeline::from_json(R"({"stages": [{"stage": "folder", "root": "x"},
                                       {"stage": "map", "function": "f"}]})");
    FAIL() << "no error";
  } catch (const echotrain::Error& error) {
    EXPECT_EQ(error.status(), ETR_NOT_FOUND);
    EXPECT_NE(std::string(error.what()).find("'f'"), std::string::npos) << error.what();
  }
}

TEST(OwnBatch, CopiesOrWrapsAndChecksWhatItIsGiven) {
  Batch batch;
  std::vector<float> values{1, 2, 3, 4, 5, 6};
  batch.set("copy", values.data(), {2, 3});
  auto owner = std::make_shared<std::vector<float>>(values);
  const std::weak_ptr<std::vector<float>> watch = owner;
  batch.wrap("view", owner->data(), {6}, owner);
  const float* address = owner->data();
  owner.reset();
  EXPECT_NE(batch["copy"].data, values.data());
  EXPECT_EQ(batch["view"].data, address);
  EXPECT_FALSE(watch.expired());
  batch.remove("view");
  EXPECT_TRUE(watch.expired()) << "released with its last user";

  etr_tensor wrong{};
  wrong.struct_size = sizeof wrong;
  wrong.dtype = ETR_F32;
  wrong.rank = 1;
  wrong.shape[0] = 7;
  wrong.data = values.data();
  wrong.size_bytes = 24;
  EXPECT_EQ(etr_batch_set(batch.get(), "w", &wrong), ETR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(etr_last_error()).find("28"), std::string::npos) << etr_last_error();
  wrong.dtype = 9;
  EXPECT_EQ(etr_batch_set(batch.get(), "w", &wrong), ETR_INVALID_ARGUMENT);
}

TEST(OwnBatch, ThatWasMovedFromIsNone) {
  Batch batch;
  set_label(batch, 7);
  const Batch moved = std::move(batch);
  EXPECT_EQ(*moved["label"].as<int32_t>(), 7);
  EXPECT_EQ(batch.get(), nullptr);  // NOLINT(bugprone-use-after-move)
  try {
    batch.info();
    FAIL() << "it still is the other's batch";
  } catch (const echotrain::Error& error) {
    EXPECT_STREQ(error.what(), "argument 'batch' is NULL");
  }
}

TEST(OwnBatch, DlpackSharesMemoryBothWays) {
  void* managed = nullptr;
  const void* address = nullptr;
  {
    Batch source;
    const std::vector<int32_t> values{1, 2, 3, 4};
    source.set("x", values.data(), {2, 2});
    address = source["x"].data;
    echotrain::check(etr_batch_to_dlpack(source.get(), "x", &managed));
  }  // the tensor outlives its batch
  Batch target;
  echotrain::check(etr_batch_set_dlpack(target.get(), "y", managed));
  const auto y = target["y"];
  EXPECT_EQ(y.data, address);
  EXPECT_EQ(y.dtype, ETR_I32);
  EXPECT_EQ(y.shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(y.as<int32_t>()[3], 4);
}

TEST(OwnBatch, HoldsSixteenBits) {
  Batch batch;
  const std::vector<uint16_t> values{1, 40000, 65535};
  batch.set("x", values.data(), {3});
  EXPECT_EQ(batch["x"].dtype, ETR_U16);
  EXPECT_EQ(batch["x"].size_bytes, 6u);
  EXPECT_EQ(batch["x"].as<uint16_t>()[1], 40000);
}

TEST(Predict, GivesTheLogitsOfTheTrainedModel) {
  const echotrain::Runtime runtime(
      std::getenv("ECHOTRAIN_TEST_DEVICE") ? std::getenv("ECHOTRAIN_TEST_DEVICE") : "");
  echotrain::Model model;
  model.add("dense", {{"units", 2}});
  const echotrain::Optimizer sgd("sgd", {}, {{"learning_rate", 0.5}});
  echotrain::Trainer trainer(runtime, model, sgd, 3);
  // Two classes told apart by the sign of the first value.
  std::vector<float> images;
  std::vector<int32_t> labels;
  for (int i = 0; i < 32; ++i) {
    const float sign = i % 2 ? 1.0f : -1.0f;
    images.insert(images.end(), {sign, 0.3f * static_cast<float>(i % 5), -0.2f});
    labels.push_back(i % 2);
  }
  Batch batch;
  batch.set("image", images.data(), {32, 3});
  batch.set("label", labels.data(), {32});
  for (int i = 0; i < 60; ++i) trainer.step(batch);
  Batch few;  // fewer rows than it trained on, and no labels
  few.set("image", images.data(), {5, 3});
  const Batch outputs = trainer.predict(few);
  const auto logits = outputs["output"];
  ASSERT_EQ(logits.shape, (std::vector<int64_t>{5, 2}));
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(logits.as<float>()[2 * i + 1] > logits.as<float>()[2 * i], i % 2 == 1) << i;
  while (trainer.result(true)) {
  }
  Batch wide;
  wide.set("image", images.data(), {8, 12});
  EXPECT_THROW(trainer.predict(wide), echotrain::Error);
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const echotrain::Error& error) {
    return error.what();
  }
  return "";
}

TEST(Predict, SaysWhatADetectorFound) {
  const float row[] = {0, 9, 0, 0, 0, 0, 0, 0.5f, 0.5f, 0.25f, 0.5f};
  echotrain::Batch output;
  output.set("output", row, {1, 1, 11});
  const echotrain::Batch found = echotrain::Trainer::detections(output, 0.5, 0.45, 2);
  const float* boxes = found["boxes"].as<float>();
  EXPECT_EQ(boxes[0], 0);
  EXPECT_EQ(boxes[1], 0.375f);
  EXPECT_GT(boxes[5], 0.99f);
  EXPECT_EQ(boxes[6], -1);
  EXPECT_THROW(echotrain::Trainer::detections(output, 0.5, 0.45, 0), std::exception);
}

TEST(Model, IsAGraphOrAReadyMadeOne) {
  const echotrain::Model ready(R"({"model": "mlp", "hidden": [8], "classes": 3})");
  EXPECT_NE(ready.json().find(R"("layer":"flatten")"), std::string::npos) << ready.json();
  const echotrain::Model again(ready.json());
  EXPECT_EQ(again.json(), ready.json()) << "what it gives it takes";
  EXPECT_NE(message_of([] { echotrain::Model(R"({"model": "mpl"})"); }).find("did you mean 'mlp'?"),
            std::string::npos);
  EXPECT_NE(message_of([] { echotrain::Model("{"); }).find("the model"), std::string::npos);
  EXPECT_NE(message_of([] { echotrain::Model().json(); }).find("at least one layer"),
            std::string::npos);
  char* text = nullptr;
  ASSERT_EQ(etr_schema("models", &text), ETR_OK);
  EXPECT_NE(std::string(text).find("cifar_resnet"), std::string::npos);
  etr_string_free(text);
}

TEST(Model, SaysWhatItIsMadeOf) {
  const echotrain::Model model(
      R"({"inputs": ["image", "text"], "layers": [{"layer": "conv2d", "filters": 4, "name": "c"},
          {"layer": "batch_norm"}, {"layer": "global_avg_pool", "name": "p"},
          {"layer": "embedding", "entries": 9, "width": 2, "input": "text"}, {"layer": "flatten", "name": "f"},
          {"layer": "concat", "axis": 1, "input": ["p", "f"]}, {"layer": "dense", "units": 3, "name": "d"}]})");
  const std::string fields = R"({"image": [8, 8, 1], "text": {"dtype": "i32", "shape": [5]}})";
  const std::string text = model.summary(fields);
  for (const char* row :
       {"image         [N, 8, 8, 1]           f32\n", "c             [N, 8, 8, 4]            40\n",
        "embedding_4   [N, 5, 2]               18\n", "d             [N, 3]                  45\n",
        "111 parameters, 8 running statistics\n"})
    EXPECT_NE(text.find(row), std::string::npos) << row << text;
  const std::string json = model.summary(fields, "json");
  EXPECT_NE(json.find(R"({"name":"c","op":"conv2d","parameters":40,"shape":[-1,8,8,4]})"),
            std::string::npos)
      << json;
  const std::pair<const char*, const char*> wrong[] = {
      {R"({"image": [8, 8, 1]})", "reads field 'text'"},
      {R"({"image": [8, 8, 1], "test": [5]})", "did you mean 'text'?"},
      {R"({"image": [8, 8, 1], "text": {"dtype": "i64", "shape": [5]}})", "field 'text' is"},
      {R"({"image": [8, 8, 1], "text": {"dtype": "i32"}})", "field 'text' is"},
      {R"({"image": [8, -1, 1], "text": [5]})", "field 'image' is [8,-1,1]"},
      {R"({"image": [2147483647, 2147483647, 2147483647], "text": [5]})", "field 'image' is"},
      {R"({"image": [1, 2, 3, 4, 5, 6, 7, 8], "text": [5]})", ""},
      {R"([1])", "JSON object"},
      {R"({)", "the fields of a summary"}};
  for (const auto& [given, words] : wrong)
    EXPECT_NE(message_of([&] { model.summary(given); }).find(words), std::string::npos) << given;
  EXPECT_NE(message_of([&] { model.summary(fields, "txt"); }).find("did you mean 'text'?"),
            std::string::npos);
}

TEST(Trainer, GivesAndTakesItsWeightsByName) {
  const echotrain::Runtime runtime(
      std::getenv("ECHOTRAIN_TEST_DEVICE") ? std::getenv("ECHOTRAIN_TEST_DEVICE") : "");
  echotrain::Model model;
  model.add("dense", {{"units", 2}, {"name", "d"}});
  // A mean that keeps nearly everything is what predictions are made with.
  const echotrain::Optimizer sgd("sgd", {{"ema_decay", 0.999999}}, {{"learning_rate", 0.5}});
  echotrain::Trainer trainer(runtime, model, sgd, 3);
  EXPECT_NE(message_of([&] { trainer.weights(); }).find("before the first batch"),
            std::string::npos);
  EXPECT_NE(message_of([&] { trainer.summary(); }).find("before the first batch"),
            std::string::npos);
  const std::vector<float> images(12, 1.0f);
  const std::vector<int32_t> labels(4, 1);
  Batch batch;
  batch.set("image", images.data(), {4, 3});
  batch.set("label", labels.data(), {4});
  for (int i = 0; i < 3; ++i) trainer.step(batch);
  const Batch all = trainer.weights();
  EXPECT_EQ(all.fields(), (std::vector<std::string>{"d.weight", "d.bias"}));
  EXPECT_EQ(all["d.weight"].shape, (std::vector<int64_t>{3, 2}));
  const Batch one = trainer.weights("d.bias");
  EXPECT_EQ(one.fields(), std::vector<std::string>{"d.bias"});
  EXPECT_EQ(one["d.bias"].as<float>()[1], all["d.bias"].as<float>()[1]);
  const float weight[] = {1, 2, 3, 4, 5, 6}, bias[] = {0.5f, -0.5f};
  Batch mine;
  mine.set("d.weight", weight, {3, 2});
  mine.set("d.bias", bias, {2});
  trainer.set_weights(mine);
  const Batch outputs = trainer.predict(batch);
  EXPECT_EQ(outputs["output"].as<float>()[0], 9.5f);
  EXPECT_EQ(outputs["output"].as<float>()[1], 11.5f);
  trainer.set_hyperparameter("weight_decay", 10);
  EXPECT_NE(
      message_of([&] { trainer.set_hyperparameter("weight_decay", 11); }).find("weight_decay"),
      std::string::npos);
  EXPECT_NE(message_of([&] { trainer.set_hyperparameter("rate", 1); }).find("weight_decay"),
            std::string::npos);
  trainer.set_hyperparameter("weight_decay", 0);
  trainer.step(batch);  // and training goes on from there
  EXPECT_NEAR(trainer.weights("d.weight")["d.weight"].as<float>()[0], 1, 0.5);
  Batch wrong;
  wrong.set("d.bias", bias, {2});
  wrong.set("d.weight", weight, {2, 3});
  const float before = trainer.weights("d.bias")["d.bias"].as<float>()[0];
  EXPECT_NE(message_of([&] {
              trainer.set_weights(wrong);
            }).find("weight 'd.weight' is f32 [3, 2], not f32 [2, 3]"),
            std::string::npos);
  EXPECT_EQ(trainer.weights("d.bias")["d.bias"].as<float>()[0], before) << "all or nothing";
  EXPECT_NE(message_of([&] { trainer.weights("d.wait"); }).find("did you mean 'd.weight'?"),
            std::string::npos);
  EXPECT_NE(trainer.summary().find("8 parameters"), std::string::npos) << trainer.summary();
}

// C would see their beginnings.
TEST(Wrapper, RefusesTextsWithANulInside) {
  const std::string cut("a\0b", 3);
  EXPECT_NE(message_of([&] {
              const Options options{{"root", cut}};
            }).find("argument 'root' has a NUL"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              Pipeline(Options{}).map(cut, [](Batch&) {});
            }).find("argument 'name' has a NUL"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              echotrain::Job::load("x", {"y", cut});
            }).find("argument 'overrides'"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              Pipeline(Options{}).add("folder", Options::from_json(R"({"root": "a\u0000b"})"));
            }).find(R"(option 'root' is "a\u0000b")"),
            std::string::npos);
}

TEST(Trainer, UpdatesAndProfilesWaitUntilEveryResultIsTaken) {
  const echotrain::Runtime runtime(
      std::getenv("ECHOTRAIN_TEST_DEVICE") ? std::getenv("ECHOTRAIN_TEST_DEVICE") : "");
  echotrain::Model model;
  model.add("dense", {{"units", 2}});
  const echotrain::Optimizer sgd("sgd", {}, {{"learning_rate", 0.01}});
  echotrain::Trainer trainer(runtime, model, sgd);
  const std::vector<float> images(24, 0.5f), gradient(16, 0.1f);
  const std::vector<int32_t> labels(8, 1);
  Batch batch, to_output;
  batch.set("image", images.data(), {8, 3});
  batch.set("label", labels.data(), {8});
  to_output.set("output", gradient.data(), {8, 2});
  trainer.step(batch);
  trainer.step(batch);
  trainer.weights();  // both have ended
  EXPECT_EQ(trainer.result(false)->step, 1u);
  trainer.forward(batch);
  trainer.backward(to_output);
  EXPECT_NE(message_of([&] { trainer.update(); }).find("not been taken"), std::string::npos);
  EXPECT_NE(message_of([&] { trainer.profile(batch, 1, "text"); }).find("not been taken"),
            std::string::npos);
  EXPECT_EQ(trainer.result(false)->step, 2u);
  EXPECT_EQ(trainer.update().step, 3u) << "the gradients are still there";
}

TEST(Trainer, ProfilesAndExports) {
  const echotrain::Runtime runtime(
      std::getenv("ECHOTRAIN_TEST_DEVICE") ? std::getenv("ECHOTRAIN_TEST_DEVICE") : "");
  echotrain::Model model;
  model.add("dense", {{"units", 4}, {"name", "first"}}).add("relu");
  model.add("dense", {{"units", 2}});
  const echotrain::Optimizer adam("adam", {{"clip_norm", 1.0}}, {{"learning_rate", 0.01}});
  echotrain::Trainer trainer(runtime, model, adam, 3);
  const etr::test::TempDir dir;
  const fs::path path = dir.path("model.onnx");
  EXPECT_NE(message_of([&] { trainer.export_onnx(path.string()); }).find("before the first batch"),
            std::string::npos);
  const std::vector<float> images(24, 0.5f);
  const std::vector<int32_t> labels(8, 1);
  Batch batch;
  batch.set("image", images.data(), {8, 3});
  batch.set("label", labels.data(), {8});
  EXPECT_NE(trainer.profile(batch, 2, "text").find("op: kernel\n"), std::string::npos);
  EXPECT_FALSE(trainer.result(true)) << "its steps give none";
  // The text shows the slowest kernels, whichever they are; the trace shows all.
  const std::string trace = trainer.profile(batch, 2, "trace");
  EXPECT_EQ(trace.find(R"({"traceEvents":[)"), 0u);
  EXPECT_NE(trace.find("first: gemm"), std::string::npos) << trace;
  trainer.step(batch);
  EXPECT_NE(message_of([&] { trainer.profile(batch, 2, "text"); }).find("not been taken"),
            std::string::npos);
  EXPECT_TRUE(trainer.result(true));
  EXPECT_NE(message_of([&] { trainer.profile(batch, 2, "txt"); }).find("did you mean 'text'?"),
            std::string::npos);
  EXPECT_NE(message_of([&] { trainer.profile(batch, 0, "text"); }).find("steps is 0"),
            std::string::npos);
  trainer.export_onnx(path.string());
  std::ifstream in(path, std::ios::binary);
  const std::string file((std::istreambuf_iterator<char>(in)), {});
  in.close();  // Windows removes no file that is open
  EXPECT_NE(file.find("first.weight"), std::string::npos);
  echotrain::Model again = echotrain::Model::from_onnx(path.string());
  again.add("dense", {{"units", 2}, {"name", "head"}}).freeze("first.*");
  EXPECT_NE(again.json().find("head"), std::string::npos) << again.json();
  echotrain::Trainer tuned(runtime, again, adam, 3);
  fs::remove(path);  // it has been read
  tuned.predict(batch);
  EXPECT_NE(message_of([&] { echotrain::Model::from_onnx(path.string()); }).find("model.onnx"),
            std::string::npos);
  EXPECT_NE(
      message_of([&] { trainer.export_onnx("/no/such/folder/x.onnx"); }).find("/no/such/folder"),
      std::string::npos);
}

}  // namespace

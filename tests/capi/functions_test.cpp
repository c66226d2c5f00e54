// What functions of a program do wrong: each is an error that names the function and says what to
// do.
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "capi/support.h"
#include "echotrain/echotrain.h"

namespace {

int32_t set_number(etr_batch* item, int32_t number) {
  const etr_tensor t{sizeof t, ETR_I32, 0, 0, {}, &number, sizeof number};
  return etr_batch_set(item, "x", &t);
}

uint64_t index_of(const etr_batch* item) {
  etr_batch_info info{};
  info.struct_size = sizeof info;
  etr_batch_get_info(item, &info);
  return info.ordinal & 0xFFFFFFFFFF;
}

int32_t five_samples(void*, etr_batch* item) {
  return index_of(item) == 5 ? ETR_END : set_number(item, 1);
}

// What a pipeline of these functions gives: samples before its end, and how it ended.
struct Outcome {
  int samples = 0;
  int32_t status = ETR_OK;
  std::string message;
};

Outcome run(etr_map_function source, etr_map_function map = nullptr,
            const char* options_json = R"({"epochs": 1})") {
  etr_options* options = nullptr;
  etr_pipeline* pipeline = nullptr;
  EXPECT_EQ(etr_options_create_from_json(options_json, &options), ETR_OK) << etr_last_error();
  EXPECT_EQ(etr_pipeline_create(options, &pipeline), ETR_OK);
  etr_options_destroy(options);
  EXPECT_EQ(etr_pipeline_add_source(pipeline, "mine", source, nullptr, nullptr), ETR_OK);
  if (map) {
    EXPECT_EQ(etr_pipeline_add_map(pipeline, "change", map, nullptr, nullptr), ETR_OK);
  }
  Outcome out;
  etr_batch* batch = nullptr;
  while ((out.status = etr_pipeline_next(pipeline, &batch)) == ETR_OK) {
    ++out.samples;
    etr_batch_destroy(batch);
  }
  if (out.status != ETR_END) out.message = etr_last_error();
  etr_pipeline_destroy(pipeline);
  return out;
}

void expect_words(const Outcome& outcome, std::initializer_list<const char*> words) {
  EXPECT_EQ(outcome.status, ETR_CALLBACK);
  for (const char* word : words)
    EXPECT_NE(outcome.message.find(word), std::string::npos) << word << " in " << outcome.message;
}

TEST(Functions, ASourceThatSetsNoField) {
  expect_words(run([](void*, etr_batch*) -> int32_t { return ETR_OK; }),
               {"'mine' returned ETR_OK and has set no field", "return ETR_END", "key '0'"});
  const auto forgets_the_third = [](void*, etr_batch* item) -> int32_t {
    const uint64_t i = index_of(item);
    return i == 6 ? ETR_END : i == 2 ? ETR_OK : set_number(item, 1);
  };
  const Outcome third = run(forgets_the_third);
  EXPECT_EQ(third.samples, 2);
  expect_words(third, {"key '2'"});
  const Outcome skipped = run(forgets_the_third, nullptr, R"({"epochs": 1, "on_error": "skip"})");
  EXPECT_EQ(skipped.status, ETR_END);
  EXPECT_EQ(skipped.samples, 5);
  // One that never sets any does not go on for ever.
  expect_words(run([](void*, etr_batch*) -> int32_t { return ETR_OK; }, nullptr,
                   R"({"on_error": "skip", "max_bad_records": 20})"),
               {"max_bad_records"});
}

TEST(Functions, ASourceMayEndAPassWithFieldsOrAtOnce) {
  EXPECT_EQ(run([](void*, etr_batch* item) -> int32_t {
              set_number(item, 7);
              return index_of(item) == 3 ? ETR_END : ETR_OK;
            }).samples,
            3);
  EXPECT_EQ(run([](void*, etr_batch*) -> int32_t { return ETR_END; }).status, ETR_END);
}

TEST(Functions, WhatAMapMayNotReturn) {
  expect_words(run(five_samples, [](void*, etr_batch*) -> int32_t { return ETR_END; }),
               {"'change' returned ETR_END, which only sources may", "key '0'", "mine"});
  expect_words(run(five_samples, [](void*, etr_batch*) -> int32_t { return 77; }),
               {"'change' returned 77, which is not a status"});
  expect_words(run(five_samples,
                   [](void*, etr_batch* item) -> int32_t { return etr_batch_remove(item, "x"); }),
               {"'change' has removed every field"});
  expect_words(run(five_samples,
                   [](void*, etr_batch* item) -> int32_t {
                     etr_batch_fail(item, "too round");
                     return ETR_END;
                   }),
               {"'change' failed: too round"});
}

// It is the pipeline's; the function fails, and its process lives.
TEST(Functions, WhichDestroyTheirItem) {
  constexpr const char* kWhy = "has destroyed its item (etr_batch_destroy)";
  const auto destroys = [](void*, etr_batch* item) -> int32_t {
    etr_batch_destroy(item);
    EXPECT_NE(std::string(etr_last_error()).find("belongs to the pipeline"), std::string::npos);
    EXPECT_EQ(set_number(item, 2), ETR_OK) << "it is still there";
    etr_batch_destroy(item);
    return ETR_OK;
  };
  expect_words(run(five_samples, destroys), {"'change'", kWhy, "key '0'"});
  expect_words(run(destroys), {"'mine'", kWhy});
  expect_words(run([](void*, etr_batch* item) -> int32_t {
                 etr_batch_destroy(item);
                 return ETR_END;
               }),
               {"'mine'", kWhy});
  const Outcome skipped =
      run(five_samples, destroys, R"({"epochs": 1, "on_error": "skip", "max_bad_share": 1})");
  EXPECT_EQ(skipped.status, ETR_END) << skipped.message;
  EXPECT_EQ(skipped.samples, 0);
}

// An exception of a C++ function behind the C API makes a bad record, and does not end the process.
TEST(Functions, ExceptionsAreFailuresOfTheirRecord) {
  const auto throws = [](void*, etr_batch* item) -> int32_t {
    const uint64_t i = index_of(item);
    if (i == 1) throw std::out_of_range("one");
    if (i == 3) throw 3;
    return ETR_OK;
  };
  expect_words(run(five_samples, throws),
               {"the function 'change' threw an exception: one", "key '1'", "mine"});
  expect_words(run([](void*, etr_batch*) -> int32_t { throw 3; }),
               {"'mine' threw an exception that is not of std::exception", "key '0'"});
  const Outcome skipped = run(five_samples, throws, R"({"epochs": 1, "on_error": "skip"})");
  EXPECT_EQ(skipped.status, ETR_END);
  EXPECT_EQ(skipped.samples, 3);
}

TEST(Functions, ExceptionsOfProgressFunctions) {
  const auto throws = [](void*, int64_t, int64_t) -> int32_t { throw std::domain_error("enough"); };
  const Images images;
  const etr::test::TempDir packed;
  EXPECT_EQ(
      etr_pack(images.path().c_str(), packed.path("p").c_str(), nullptr, throws, nullptr, nullptr),
      ETR_CALLBACK);
  EXPECT_STREQ(etr_last_error(), "the progress function threw an exception: enough");
}

TEST(Functions, AThreadInAFunctionIsNotCancelled) {
  const auto cancels_itself = [](void*, etr_batch*) -> int32_t {
    pthread_cancel(pthread_self());
    pthread_testcancel();
    return ETR_OK;
  };
  EXPECT_EQ(run(five_samples, cancels_itself).samples, 5);
}

// Not under the address sanitizer, which takes the stack that an unwinding by force leaves for
// memory in use, and a reference to what glibc throws for one to nothing.
#if defined(__GLIBCXX__) && !defined(__SANITIZE_ADDRESS__)
// The cancellation takes effect after the call.
TEST(Functions, AThreadInACallIsNotCancelled) {
  struct Shared {
    bool returned = false, went_on = false;
  } shared;
  pthread_t thread;
  const auto reads = [](void* given) -> void* {
    auto* s = static_cast<Shared*>(given);
    pthread_cancel(pthread_self());
    s->returned = run(five_samples).samples == 5;
    pthread_testcancel();
    s->went_on = true;
    return nullptr;
  };
  // run() makes objects of C++ between its calls; none of them is a point of cancellation.
  ASSERT_EQ(pthread_create(&thread, nullptr, reads, &shared), 0);
  void* result = nullptr;
  pthread_join(thread, &result);
  EXPECT_EQ(result, PTHREAD_CANCELED);
  EXPECT_TRUE(shared.returned);
  EXPECT_FALSE(shared.went_on);
}

TEST(FunctionsDeathTest, OneThatEndsItsThreadIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto ends = [](void*, etr_batch*) -> int32_t {
    pthread_exit(nullptr);
    return ETR_OK;  // mingw-w64's header does not say that it does not return
  };
  EXPECT_DEATH(run(five_samples, ends), "the function 'change' has ended its thread");
  EXPECT_DEATH(run(ends), "the function 'mine' has ended its thread");
}
#endif

struct EmptyShape {
  std::vector<int64_t> extents;
  bool allowed;
};

// Whatever a line says, its subject tells whether it is of a bad record.
TEST(Log, SaysWhatALineIsAbout) {
  struct Lines {
    int bad = 0, other = 0;
  } lines;
  ASSERT_OK(etr_set_log_hook(
      [](void* user_data, int32_t, const char* text) {
        const bool about = std::string(text).find("too round") != std::string::npos;
        Lines& counted = *static_cast<Lines*>(user_data);
        if (about && etr_log_subject() == ETR_LOG_ABOUT_BAD_RECORD) ++counted.bad;
        if (!about && etr_log_subject() == ETR_LOG_ABOUT_BAD_RECORD) ++counted.other;
      },
      &lines, nullptr));
  run(
      five_samples,
      [](void*, etr_batch* item) -> int32_t {
        etr_batch_fail(item, "too round");
        return ETR_CORRUPT_DATA;
      },
      R"({"epochs": 1, "on_error": "skip", "max_bad_share": 1})");
  ASSERT_OK(etr_set_log_hook(nullptr, nullptr, nullptr));
  EXPECT_EQ(lines.bad, 5);
  EXPECT_EQ(lines.other, 0);
  EXPECT_EQ(etr_log_subject(), ETR_LOG_ABOUT_OTHER);
}

// Every way to give a field or a function its name takes the same ones.
TEST(Names, AreTextOfAFewBytes) {
  const struct {
    std::string name;
    const char* problem;  // nullptr: allowed
  } names[] = {{"x", nullptr},
               {"\xC3\xBC/0 weight", nullptr},
               {std::string(1000, 'x'), nullptr},
               {"", "is empty"},
               {"a\nb", "control character at byte 1"},
               {"\x1B[2J", "control character at byte 0"},
               {"x\x7F", "control character at byte 1"},
               {"\xC2\x85", "control character at byte 0"},
               {"a\xFF", "'a\\xFF', is not UTF-8"},
               {"\xED\xA0\x80", "is not UTF-8"},
               {std::string(1001, 'x'), "has 1001 bytes"},
               {std::string(10'000'000, '\xFF'), "has 10000000 bytes"}};
  etr_batch* batch = nullptr;
  ASSERT_OK(etr_batch_create(&batch));
  const float one = 1;
  const etr_tensor t{sizeof t, ETR_F32, 0, 0, {}, &one, sizeof one};
  for (const auto& [name, problem] : names) {
    const auto check = [&](int32_t status) {
      EXPECT_EQ(status, problem ? ETR_INVALID_ARGUMENT : ETR_OK) << name.substr(0, 40);
      const std::string said = etr_last_error();
      EXPECT_LT(said.size(), 2000u);
      if (problem) {
        EXPECT_NE(said.find(problem), std::string::npos) << said;
      }
    };
    check(etr_batch_set(batch, name.c_str(), &t));
    check(etr_batch_wrap(batch, name.c_str(), &t, nullptr, nullptr));
    etr_vulkan_buffer buffer{};
    buffer.struct_size = sizeof buffer;
    buffer.dtype = ETR_F32;
    buffer.buffer = &buffer;
    check(etr_batch_wrap_vulkan(batch, name.c_str(), &buffer, nullptr, nullptr));
    ASSERT_OK(etr_batch_set(batch, "lent", &t));
    void* managed = nullptr;
    ASSERT_OK(etr_batch_to_dlpack(batch, "lent", &managed));
    const int32_t taken = etr_batch_set_dlpack(batch, name.c_str(), managed);
    check(taken);
    if (taken != ETR_OK) {
      ASSERT_OK(etr_batch_set_dlpack(batch, "lent", managed));  // it is still the caller's
    }
    etr_pipeline* pipeline = nullptr;
    ASSERT_OK(etr_pipeline_create(nullptr, &pipeline));
    check(etr_pipeline_add_source(pipeline, name.c_str(), five_samples, nullptr, nullptr));
    etr_pipeline_destroy(pipeline);
  }
  etr_batch_destroy(batch);
}

// Seconds, shares and rates of any value: an error that names it, or what it says.
TEST(Numbers, BeyondReasonAreRefused) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double wrong[] = {
      -1, -1e300, 1e300, 1e19, kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN()};
  const auto refused = [](int32_t status, const char* name) {
    EXPECT_EQ(status, ETR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(etr_last_error()).find(name), std::string::npos) << etr_last_error();
  };
  constexpr const char* kSpec = R"({"stages": [{"stage": "folder", "root": "nowhere"}]})";
  etr_pipeline* pipeline = nullptr;
  ASSERT_OK(etr_pipeline_create(nullptr, &pipeline));
  ASSERT_OK(etr_pipeline_add_source(pipeline, "mine", five_samples, nullptr, nullptr));
  etr_options *factor = nullptr, *pixels = nullptr;
  ASSERT_OK(etr_options_create(&factor));
  ASSERT_OK(etr_options_create(&pixels));
  etr_batch *outputs = nullptr, *boxes = nullptr;
  ASSERT_OK(etr_batch_create(&outputs));
  char* text = nullptr;
  for (const double value : wrong) {
    refused(etr_pipeline_tune(kSpec, value, 0, nullptr, nullptr, &text), "seconds is");
    refused(etr_pipeline_tune(kSpec, 1, value, nullptr, nullptr, &text), "step_ms is");
    refused(etr_pipeline_wait(pipeline, value), "seconds is");
    refused(etr_job_advise(nullptr, nullptr, value, 0, nullptr, nullptr, &text), "seconds is");
    refused(etr_detections(outputs, value, 0.5, 1, &boxes), "score_threshold is");
    refused(etr_detections(outputs, 0.5, value, 1, &boxes), "iou_threshold is");
    refused(etr_report_write("", nullptr, nullptr, 0, value, "out.html", nullptr),
            "target_accuracy is");
    ASSERT_OK(etr_options_set_number(factor, "factor", value));
    refused(etr_pipeline_add(pipeline, "echo", factor), "option 'factor'");
  }
  refused(etr_pipeline_tune(kSpec, 0, 0, nullptr, nullptr, &text), "seconds is");
  etr_trainer* trainer = nullptr;
  refused(etr_trainer_create(nullptr, nullptr, nullptr, 1, -1, &trainer), "total_steps is -1");
  refused(etr_options_set_numbers(pixels, "pixels", nullptr, -1), "'count' is -1");
  refused(etr_options_set_numbers(pixels, "pixels", nullptr, 1), "'values' is NULL");
  for (const double value : {1e300, kInfinity, 0.5, std::numeric_limits<double>::quiet_NaN()}) {
    ASSERT_OK(etr_options_set_numbers(pixels, "pixels", &value, 1));
    refused(etr_pipeline_add(pipeline, "pad", pixels), "option 'pixels'");
  }
  etr_model* model = nullptr;
  ASSERT_OK(etr_model_create(&model));  // nothing validates it before it has layers
  for (const int32_t bits : {5, -4, 9, 16})
    refused(etr_model_quantize(model, bits), "it takes 8, 4 or 0");
  for (const int32_t bits : {8, 4, 0}) ASSERT_OK(etr_model_quantize(model, bits));
  etr_model_destroy(model);
  etr_batch_destroy(outputs);
  etr_options_destroy(factor);
  etr_options_destroy(pixels);
  etr_pipeline_destroy(pipeline);
}

TEST(Models, AnOptionThatTheLossDoesNotUseIsRefused) {
  etr_model* model = nullptr;
  ASSERT_OK(etr_model_create(&model));
  etr_options* options = nullptr;
  ASSERT_OK(etr_options_create_from_json(R"({"label_smoothing": 0.1})", &options));
  EXPECT_EQ(etr_model_set_loss(model, "mse", options), ETR_INVALID_ARGUMENT);
  for (const char* part : {"label_smoothing is 0.1", "'mse'"})
    EXPECT_NE(std::string(etr_last_error()).find(part), std::string::npos) << etr_last_error();
  ASSERT_OK(etr_model_set_loss(model, "softmax_cross_entropy", options));
  etr_options_destroy(options);
  etr_model_destroy(model);
}

// Without elements there need be no memory, and what a shape says otherwise does not depend on its
// order.
TEST(Batches, ArraysWithoutElements) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  const EmptyShape shapes[] = {{{0}, true},
                               {{0, 3}, true},
                               {{3, 0}, true},
                               {{0, 0}, true},
                               {{0, kHuge}, false},
                               {{kHuge, 0}, false},
                               {{0, kHuge / 4}, true},
                               {{kHuge / 4, 0}, true},
                               {{kHuge, kHuge, 0}, false},
                               {{0, kHuge, kHuge}, false},
                               {{kHuge, 0, kHuge}, false},
                               {{0, -1}, false}};
  etr_batch* batch = nullptr;
  ASSERT_OK(etr_batch_create(&batch));
  const float one = 1;
  for (const EmptyShape& shape : shapes)
    for (const void* data : {static_cast<const void*>(nullptr), static_cast<const void*>(&one)}) {
      etr_tensor t{sizeof t, ETR_F32, static_cast<int32_t>(shape.extents.size()), 0, {}, data, 0};
      std::copy(shape.extents.begin(), shape.extents.end(), t.shape);
      const int32_t expected = shape.allowed ? ETR_OK : ETR_INVALID_ARGUMENT;
      EXPECT_EQ(etr_batch_set(batch, "x", &t), expected) << etr_last_error();
      int released = 0;
      const auto release = [](void* p) { ++*static_cast<int*>(p); };
      EXPECT_EQ(etr_batch_wrap(batch, "y", &t, release, &released), expected);
      EXPECT_EQ(released, 1) << "nothing holds memory that no element lies in";
      if (!shape.allowed) continue;
      etr_tensor got{};
      got.struct_size = sizeof got;
      ASSERT_OK(etr_batch_get(batch, "y", &got));
      EXPECT_EQ(got.size_bytes, 0u);
      EXPECT_EQ(got.rank, t.rank);
      void* managed = nullptr;  // and through DLPack
      ASSERT_OK(etr_batch_to_dlpack(batch, "x", &managed));
      EXPECT_EQ(etr_batch_set_dlpack(batch, "z", managed), ETR_OK) << etr_last_error();
    }
  etr_tensor scalar{sizeof scalar, ETR_F32, 0, 0, {}, nullptr, 4};
  EXPECT_EQ(etr_batch_set(batch, "x", &scalar), ETR_INVALID_ARGUMENT) << "that has an element";
  etr_batch_destroy(batch);
}

}  // namespace

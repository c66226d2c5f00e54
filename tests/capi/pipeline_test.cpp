// Pipelines, batches and their memory through the C API.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "capi/support.h"
#include "echotrain/echotrain.h"

namespace {

TEST(CApi, PipelineGivesBatchesStatisticsAndItsPosition) {
  Images images;
  etr_pipeline *pipeline = nullptr, *again = nullptr;
  ASSERT_OK(etr_pipeline_create_from_json(images.spec().c_str(), &pipeline));
  etr_batch* batch = nullptr;
  ASSERT_OK(etr_pipeline_next(pipeline, &batch));
  etr_batch_info info{};
  info.struct_size = sizeof info;
  ASSERT_OK(etr_batch_get_info(batch, &info));
  EXPECT_EQ(info.samples, 16);
  EXPECT_EQ(info.fresh + info.echoed, 16);
  etr_tensor image{}, label{};
  image.struct_size = label.struct_size = sizeof(etr_tensor);
  ASSERT_OK(etr_batch_get(batch, "image", &image));
  ASSERT_OK(etr_batch_get(batch, "label", &label));
  EXPECT_EQ(image.dtype, ETR_F32);
  EXPECT_EQ(std::vector<int64_t>(image.shape, image.shape + image.rank),
            (std::vector<int64_t>{16, 8, 8, 1}));
  EXPECT_EQ(label.dtype, ETR_I32);
  EXPECT_EQ(etr_batch_get(batch, "imgae", &image), ETR_NOT_FOUND);
  etr_batch_destroy(batch);
  char* state = nullptr;
  ASSERT_OK(etr_pipeline_save(pipeline, &state));
  ASSERT_OK(etr_pipeline_create_from_json(images.spec().c_str(), &again));
  ASSERT_OK(etr_pipeline_restore(again, state));
  etr_string_free(state);
  for (int i = 0; i < 7; ++i) {
    etr_batch *a = nullptr, *b = nullptr;
    ASSERT_OK(etr_pipeline_next(pipeline, &a));
    ASSERT_OK(etr_pipeline_next(again, &b));
    etr_tensor x{}, y{};
    x.struct_size = y.struct_size = sizeof x;
    etr_batch_get(a, "image", &x);
    etr_batch_get(b, "image", &y);
    EXPECT_EQ(std::memcmp(x.data, y.data, x.size_bytes), 0);
    etr_batch_destroy(a);
    etr_batch_destroy(b);
  }
  EXPECT_EQ(etr_pipeline_next(pipeline, &batch), ETR_END);
  ASSERT_OK(etr_pipeline_next(pipeline, &batch)) << "the next epoch";
  char* json = nullptr;
  ASSERT_OK(etr_pipeline_stats(pipeline, &json));
  EXPECT_NE(std::string(json).find("\"name\":\"echo\""), std::string::npos);
  etr_string_free(json);
  ASSERT_OK(etr_pipeline_bad_records(pipeline, &json));
  EXPECT_STREQ(json, "[]");
  etr_string_free(json);
  ASSERT_OK(etr_pipeline_cancel(pipeline));
  etr_batch* none = nullptr;
  EXPECT_EQ(etr_pipeline_next(pipeline, &none), ETR_CANCELLED);
  etr_pipeline_destroy(pipeline);
  etr_pipeline_destroy(again);
  etr_batch_get(batch, "image", &image);
  EXPECT_NE(static_cast<const float*>(image.data)[100], 1e30f) << "batches outlive their pipeline";
  etr_batch_destroy(batch);
}

// A budget is a matter of the whole pipeline: its first stages alone may well need more.
TEST(CApi, PipelinesWithABudgetAreMadeStageByStage) {
  Images images;
  etr_options* options = nullptr;
  ASSERT_OK(etr_options_create(&options));
  ASSERT_OK(etr_options_set_integer(options, "budget_bytes", 1000));
  etr_pipeline* pipeline = nullptr;
  ASSERT_OK(etr_pipeline_create(options, &pipeline));
  etr_options_destroy(options);
  ASSERT_OK(etr_options_create(&options));
  ASSERT_OK(etr_options_set_string(options, "pattern", "nothing-of-this-name-is-read.tar"));
  ASSERT_OK(etr_pipeline_add(pipeline, "webdataset", options));
  ASSERT_OK(etr_pipeline_add(pipeline, "decode", nullptr));
  etr_batch* batch = nullptr;
  EXPECT_NE(etr_pipeline_next(pipeline, &batch), ETR_OK);
  etr_options_destroy(options);
  etr_pipeline_destroy(pipeline);
}

TEST(CApi, TheBuilderChecksEachStageAsItIsAdded) {
  Images images;
  etr_pipeline* pipeline = nullptr;
  ASSERT_OK(etr_pipeline_create(nullptr, &pipeline));
  etr_options* options = nullptr;
  ASSERT_OK(etr_options_create(&options));
  EXPECT_EQ(etr_pipeline_add(pipeline, "folder", options), ETR_INVALID_ARGUMENT)
      << "root is required";
  ASSERT_OK(etr_options_set_string(options, "root", images.path().c_str()));
  ASSERT_OK(etr_pipeline_add(pipeline, "folder", options));
  EXPECT_EQ(etr_pipeline_add(pipeline, "folder", options), ETR_INVALID_ARGUMENT)
      << "a second source";
  ASSERT_OK(etr_pipeline_add(pipeline, "decode", nullptr));
  etr_batch* batch = nullptr;
  ASSERT_OK(etr_pipeline_next(pipeline, &batch));
  etr_batch_destroy(batch);
  EXPECT_EQ(etr_pipeline_add(pipeline, "flip", nullptr), ETR_STATE);
  etr_options_destroy(options);
  etr_pipeline_destroy(pipeline);
}

struct Counted {
  std::atomic<int64_t> blocks{0}, bytes{0}, taken{0}, destroyed{0}, most{1 << 30};
};

int32_t use_allocator(Counted& counted) {
  return etr_set_allocator(
      [](void* p, uint64_t size, uint64_t alignment) -> void* {
        auto& c = *static_cast<Counted*>(p);
        if (c.taken.fetch_add(1) >= c.most) return nullptr;
        ++c.blocks, c.bytes += static_cast<int64_t>(size);
        return take_aligned(size, alignment);
      },
      [](void* p, void* memory, uint64_t size) {
        auto& c = *static_cast<Counted*>(p);
        --c.blocks, c.bytes -= static_cast<int64_t>(size);
        free_aligned(memory);
      },
      &counted, [](void* p) { ++static_cast<Counted*>(p)->destroyed; });
}

TEST(CApi, BatchesComeFromTheProgramsAllocator) {
  Images images;
  Counted counted;
  ASSERT_OK(use_allocator(counted));
  etr_pipeline* pipeline = nullptr;
  ASSERT_OK(etr_pipeline_create_from_json(images.spec().c_str(), &pipeline));
  etr_batch* batch = nullptr;
  ASSERT_OK(etr_pipeline_next(pipeline, &batch));
  EXPECT_GT(counted.bytes, 16 * 64 * 4);
  etr_tensor image{};
  image.struct_size = sizeof image;
  ASSERT_OK(etr_batch_get(batch, "image", &image));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(image.data) % 64, 0u);
  ASSERT_OK(etr_set_allocator(nullptr, nullptr, nullptr, nullptr));
  etr_pipeline_destroy(pipeline);
  EXPECT_GT(counted.blocks, 0) << "the batch is still there";
  EXPECT_EQ(counted.destroyed, 0);
  etr_batch_destroy(batch);
  EXPECT_EQ(counted.blocks, 0);
  EXPECT_EQ(counted.bytes, 0);
  EXPECT_EQ(counted.destroyed, 1);
  EXPECT_EQ(etr_set_allocator([](void*, uint64_t, uint64_t) -> void* { return nullptr; }, nullptr,
                              nullptr, nullptr),
            ETR_INVALID_ARGUMENT);
}

TEST(CApi, AnAllocatorMayHaveNothingLeft) {
  Images images;
  for (const int64_t most : {0, 1, 5, 40, 70}) {
    Counted counted;
    counted.most = most;
    ASSERT_OK(use_allocator(counted));
    etr_pipeline* pipeline = nullptr;
    int32_t status = etr_pipeline_create_from_json(images.spec().c_str(), &pipeline);
    for (int i = 0; i < 9 && status == ETR_OK; ++i) {
      etr_batch* batch = nullptr;
      status = etr_pipeline_next(pipeline, &batch);
      etr_batch_destroy(batch);
    }
    EXPECT_EQ(status, ETR_OUT_OF_MEMORY) << most << " " << etr_last_error();
    etr_pipeline_destroy(pipeline);
    ASSERT_OK(etr_set_allocator(nullptr, nullptr, nullptr, nullptr));
    EXPECT_EQ(counted.blocks, 0);
    EXPECT_EQ(counted.destroyed, 1);
  }
}

TEST(CApi, FieldsOfSixteenBits) {
  const uint16_t values[] = {1, 40000, 65535, 7, 8, 9};
  etr_tensor given{sizeof given, ETR_U16, 2, 0, {2, 3}, values, sizeof values};
  etr_batch *batch = nullptr, *other = nullptr;
  ASSERT_OK(etr_batch_create(&batch));
  ASSERT_OK(etr_batch_create(&other));
  ASSERT_OK(etr_batch_set(batch, "x", &given));
  void* managed = nullptr;  // through DLPack into the other
  ASSERT_OK(etr_batch_to_dlpack(batch, "x", &managed));
  ASSERT_OK(etr_batch_set_dlpack(other, "y", managed));
  etr_tensor got{};
  got.struct_size = sizeof got;
  ASSERT_OK(etr_batch_get(other, "y", &got));
  EXPECT_EQ(got.dtype, ETR_U16);
  ASSERT_EQ(got.size_bytes, sizeof values);
  EXPECT_EQ(std::memcmp(got.data, values, sizeof values), 0);
  given.size_bytes = 24;
  EXPECT_EQ(etr_batch_set(batch, "x", &given), ETR_INVALID_ARGUMENT);
  given.dtype = ETR_U16 + 1;
  EXPECT_EQ(etr_batch_set(batch, "x", &given), ETR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(etr_last_error()).find("ETR_U16"), std::string::npos);
  etr_batch_destroy(batch);
  etr_batch_destroy(other);
}

TEST(CApi, ManyHandlesLeaveNothingBehind) {
  Images images;
  for (int i = 0; i < 100; ++i) {
    etr_pipeline* pipeline = nullptr;
    ASSERT_OK(etr_pipeline_create_from_json(images.spec().c_str(), &pipeline));
    etr_batch* batch = nullptr;
    if (i % 3 == 0) {
      ASSERT_OK(etr_pipeline_next(pipeline, &batch));
    }
    etr_pipeline_destroy(pipeline);
    etr_batch_destroy(batch);
  }
}

}  // namespace

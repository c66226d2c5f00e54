// The C API as its users see it: only the public header and the shared library.
#include <gtest/gtest.h>
#include <png.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "echotrain/echotrain.h"

namespace {

namespace fs = std::filesystem;

// A folder of class folders with small images.
class Images {
 public:
  Images() : root_(fs::temp_directory_path() / ("echotrain-capi-" + std::to_string(std::rand()))) {
    for (int i = 0; i < 64; ++i) {
      const fs::path folder = root_ / std::to_string(i % 2);
      fs::create_directories(folder);
      std::vector<uint8_t> pixels(64, static_cast<uint8_t>(i % 2 ? 200 : 40));
      for (size_t p = 0; p < 64; ++p)
        pixels[p] = static_cast<uint8_t>(pixels[p] + (p * 13 + static_cast<size_t>(i) * 7) % 40);
      png_image image{};
      image.version = PNG_IMAGE_VERSION;
      image.width = image.height = 8;
      image.format = PNG_FORMAT_GRAY;
      png_image_write_to_file(&image, (folder / (std::to_string(i) + ".png")).c_str(), 0,
                              pixels.data(), 0, nullptr);
    }
  }
  ~Images() { fs::remove_all(root_); }
  std::string path(const std::string& name = "") const { return (root_ / name).string(); }

  std::string spec(const std::string& extra = "") const {
    return R"({"seed": 1, "stages": [{"stage": "folder", "root": ")" + path() +
           R"("}, {"stage": "label"}, {"stage": "decode"},
        {"stage": "echo", "factor": 2}, )" +
           extra + R"({"stage": "batch", "size": 16}, {"stage": "normalize"}]})";
  }

 private:
  fs::path root_;
};

#define ASSERT_OK(call) ASSERT_EQ(call, ETR_OK) << etr_last_error()

struct Net {
  Net() {
    etr_model_create(&model);
    add("flatten");
    etr_options* dense = nullptr;
    etr_options_create(&dense);
    etr_options_set_integer(dense, "units", 2);
    EXPECT_EQ(etr_model_add(model, "dense", dense), ETR_OK) << etr_last_error();
    etr_options_destroy(dense);
    etr_options *sgd = nullptr, *schedule = nullptr;
    etr_options_create(&sgd);
    etr_options_set_number(sgd, "momentum", 0.9);
    etr_options_create(&schedule);
    etr_options_set_number(schedule, "learning_rate", 0.02);
    EXPECT_EQ(etr_optimizer_create("sgd", sgd, schedule, &optimizer), ETR_OK) << etr_last_error();
    etr_options_destroy(sgd);
    etr_options_destroy(schedule);
  }
  ~Net() {
    etr_model_destroy(model);
    etr_optimizer_destroy(optimizer);
  }
  void add(const char* layer) {
    EXPECT_EQ(etr_model_add(model, layer, nullptr), ETR_OK) << etr_last_error();
  }
  etr_model* model = nullptr;
  etr_optimizer* optimizer = nullptr;
};

TEST(CApi, VersionStatusAndSchemas) {
  EXPECT_STREQ(etr_version(), "0.1.0");
  EXPECT_STREQ(etr_status_name(ETR_NO_DEVICE), "no Vulkan device");
  for (const char* kind : {"stages", "layers", "optimizers", "job"}) {
    char* json = nullptr;
    ASSERT_OK(etr_schema(kind, &json));
    EXPECT_GT(std::string(json).size(), 200u);
    etr_string_free(json);
  }
  char* json = nullptr;
  EXPECT_EQ(etr_schema("stage", &json), ETR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(etr_last_error()).find("did you mean 'stages'?"), std::string::npos);
}

TEST(CApi, NullAndMisuseAreErrorsNotCrashes) {
  EXPECT_EQ(etr_pipeline_next(nullptr, nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_options_create(nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_model_add(nullptr, "dense", nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_job_load(nullptr, nullptr, 0, nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_job_load("/none.json", nullptr, 1, nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_trainer_step(nullptr, nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_trainer_stop(nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_trainer_get_weights(nullptr, nullptr, nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_trainer_set_weights(nullptr, nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_trainer_summary(nullptr, "text", nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_model_summary(nullptr, "{}", "text", nullptr), ETR_INVALID_ARGUMENT);
  etr_pipeline_destroy(nullptr);
  etr_trainer_destroy(nullptr);
  etr_batch_destroy(nullptr);
  etr_string_free(nullptr);
  etr_device_info info{};  // struct_size not set
  EXPECT_EQ(etr_device_get(0, &info), ETR_INVALID_ARGUMENT);
  etr_pipeline* pipeline = nullptr;
  EXPECT_EQ(etr_pipeline_create_from_json("{\"stages\": [{\"stage\": \"fold\"}]}", &pipeline),
            ETR_NOT_FOUND);
  EXPECT_EQ(pipeline, nullptr);
  EXPECT_NE(std::string(etr_last_error()).find("did you mean 'folder'?"), std::string::npos);
}

TEST(CApi, ErrorsBelongToTheThread) {
  etr_options_create(nullptr);
  const std::string mine = etr_last_error();
  std::thread([] { EXPECT_STREQ(etr_last_error(), ""); }).join();
  EXPECT_EQ(etr_last_error(), mine);
}

TEST(CApi, StructsOfOlderHeadersAreFilledAsFarAsTheyGo) {
  int32_t count = 0;
  ASSERT_OK(etr_device_count(&count));
  ASSERT_GE(count, 1);
  etr_device_info info{};
  info.struct_size = offsetof(etr_device_info, memory_bytes);
  info.memory_bytes = 77;
  ASSERT_OK(etr_device_get(0, &info));
  EXPECT_EQ(info.memory_bytes, 77u) << "beyond the caller's struct";
  EXPECT_GE(info.api_major, 1u);
}

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

TEST(CApi, StringsAreUtf8) {
  etr_options* options = nullptr;
  ASSERT_OK(etr_options_create(&options));
  EXPECT_EQ(etr_options_set_string(options, "pattern", "caf\xE9"), ETR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(etr_last_error()).find("'caf\\xE9' is not UTF-8"), std::string::npos);
  EXPECT_EQ(etr_options_set_string(options, "pattern", "caf\xC3\xA9"), ETR_OK);
  etr_options_destroy(options);
}

TEST(CApi, TrainsEvaluatesSavesAndLoads) {
  Images images;
  Net net;
  etr_runtime* runtime = nullptr;
  ASSERT_OK(etr_runtime_create(nullptr, &runtime));
  etr_trainer *trainer = nullptr, *second = nullptr;
  ASSERT_OK(etr_trainer_create(runtime, net.model, net.optimizer, 1, 0, &trainer));
  ASSERT_OK(etr_trainer_create(runtime, net.model, net.optimizer, 2, 0, &second));
  etr_runtime_destroy(runtime);  // the trainers keep what they need
  etr_pipeline* pipeline = nullptr;
  ASSERT_OK(etr_pipeline_create_from_json(images.spec().c_str(), &pipeline));
  etr_step_result result{};
  result.struct_size = sizeof result;
  uint64_t results = 0;
  for (int epoch = 0; epoch < 4; ++epoch) {
    etr_batch* batch = nullptr;
    int32_t status;
    while ((status = etr_pipeline_next(pipeline, &batch)) == ETR_OK) {
      ASSERT_OK(etr_trainer_step(trainer, batch));
      etr_batch_destroy(batch);
      while (etr_trainer_result(trainer, 0, &result) == ETR_OK) EXPECT_EQ(result.step, ++results);
    }
    ASSERT_EQ(status, ETR_END) << etr_last_error();
  }
  while (etr_trainer_result(trainer, 1, &result) == ETR_OK) EXPECT_EQ(result.step, ++results);
  EXPECT_EQ(results, 32u);
  std::string once = images.spec();
  once.replace(once.find("\"seed\""), 6, "\"epochs\": 1, \"seed\"");
  etr_pipeline *first_eval = nullptr, *second_eval = nullptr;
  ASSERT_OK(etr_pipeline_create_from_json(once.c_str(), &first_eval));
  ASSERT_OK(etr_pipeline_create_from_json(once.c_str(), &second_eval));
  etr_eval_result a{}, b{};
  a.struct_size = b.struct_size = sizeof a;
  ASSERT_OK(etr_trainer_evaluate(trainer, first_eval, &a));
  EXPECT_GT(a.accuracy, 0.95);
  ASSERT_OK(etr_trainer_save(trainer, images.path("ckpt").c_str()));
  ASSERT_OK(etr_trainer_load(second, images.path("ckpt").c_str()));
  ASSERT_OK(etr_trainer_evaluate(second, second_eval, &b));
  EXPECT_EQ(a.loss, b.loss);
  const auto stop_at_two = [](void* told, int64_t done, int64_t batches) -> int32_t {
    EXPECT_EQ(batches, 8);
    return *static_cast<int64_t*>(told) = done, done < 2;
  };
  static int64_t told, ended;
  told = ended = 0;
  const auto end = [](void*) { ++ended; };
  etr_pipeline* stopped_eval = nullptr;
  ASSERT_OK(etr_pipeline_create_from_json(once.c_str(), &stopped_eval));
  EXPECT_EQ(etr_trainer_on_evaluation(nullptr, stop_at_two, &told, end), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(ended, 1) << "also where the call fails";
  ASSERT_OK(etr_trainer_on_evaluation(second, stop_at_two, &told, end));
  EXPECT_EQ(etr_trainer_evaluate(second, stopped_eval, &b), ETR_CANCELLED);
  EXPECT_EQ(told, 2);
  EXPECT_NE(std::string(etr_last_error()).find("after 2 batches"), std::string::npos);
  etr_pipeline_destroy(stopped_eval);
  EXPECT_EQ(ended, 1);
  ASSERT_OK(etr_trainer_on_evaluation(second, nullptr, &told, end));
  EXPECT_EQ(ended, 3) << "the one that it had, and that which came with NULL";
  ASSERT_OK(etr_trainer_on_evaluation(second, stop_at_two, &told, end));
  EXPECT_EQ(etr_trainer_load(second, "/none"), ETR_NOT_FOUND);
  EXPECT_EQ(etr_trainer_evaluate(second, nullptr, &b), ETR_STATE) << "this trainer has no job";
  for (etr_pipeline* p : {pipeline, first_eval, second_eval}) etr_pipeline_destroy(p);
  etr_trainer_destroy(trainer);
  etr_trainer_destroy(second);
  EXPECT_EQ(ended, 4);
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

// A model works on floats: bytes and u16 are refused with what to do.
TEST(CApi, TrainersRefuseSixteenBits) {
  Net net;
  etr_runtime* runtime = nullptr;
  etr_trainer* trainer = nullptr;
  etr_batch* batch = nullptr;
  ASSERT_OK(etr_runtime_create(nullptr, &runtime));
  ASSERT_OK(etr_trainer_create(runtime, net.model, net.optimizer, 1, 0, &trainer));
  const uint16_t pixels[12] = {};
  const int32_t labels[2] = {};
  const etr_tensor image{sizeof image, ETR_U16, 2, 0, {2, 6}, pixels, sizeof pixels};
  const etr_tensor label{sizeof label, ETR_I32, 1, 0, {2}, labels, sizeof labels};
  ASSERT_OK(etr_batch_create(&batch));
  ASSERT_OK(etr_batch_set(batch, "image", &image));
  ASSERT_OK(etr_batch_set(batch, "label", &label));
  EXPECT_EQ(etr_trainer_step(trainer, batch), ETR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(etr_last_error()).find("u16"), std::string::npos) << etr_last_error();
  EXPECT_NE(std::string(etr_last_error()).find("normalize"), std::string::npos);
  etr_batch_destroy(batch);
  etr_trainer_destroy(trainer);
  etr_runtime_destroy(runtime);
}

// One step on `rows` samples of ones.
void step_on_ones(etr_trainer* trainer, int32_t rows) {
  const std::vector<float> ones(static_cast<size_t>(rows) * 6, 1.0f);
  const std::vector<int32_t> labels(static_cast<size_t>(rows), 1);
  etr_tensor image{sizeof image, ETR_F32, 2, 0, {rows, 6}, ones.data(), ones.size() * 4};
  etr_tensor label{sizeof label, ETR_I32, 1, 0, {rows}, labels.data(), labels.size() * 4};
  etr_batch* batch = nullptr;
  ASSERT_OK(etr_batch_create(&batch));
  ASSERT_OK(etr_batch_set(batch, "image", &image));
  ASSERT_OK(etr_batch_set(batch, "label", &label));
  ASSERT_OK(etr_trainer_step(trainer, batch));
  etr_batch_destroy(batch);
}

TEST(CApi, KernelsAreTunedIntoAFile) {
  Images images;  // for its folder
  Net net;
  const std::string path = images.path("kernels.json");
  etr_runtime_options options{};
  options.struct_size = sizeof options;
  options.tuning = "";
  etr_runtime *runtime = nullptr, *tuned = nullptr;
  etr_trainer *trainer = nullptr, *second = nullptr;
  ASSERT_OK(etr_runtime_create(&options, &runtime));
  ASSERT_OK(etr_trainer_create(runtime, net.model, net.optimizer, 1, 0, &trainer));
  step_on_ones(trainer, 4);
  std::vector<std::string> products;
  const auto note = [](void* user_data, int64_t done, int64_t total, const char* product,
                       const char* kernel) -> int32_t {
    auto& seen = *static_cast<std::vector<std::string>*>(user_data);
    seen.emplace_back(product);
    EXPECT_EQ(done, static_cast<int64_t>(seen.size()));
    EXPECT_EQ(total, 2);
    EXPECT_NE(std::string(kernel).find("gemm_"), std::string::npos);
    return 1;
  };
  ASSERT_OK(etr_runtime_tune(runtime, path.c_str(), note, &products));
  EXPECT_EQ(products, (std::vector<std::string>{"nn 4x2x6 fp32", "tn 6x2x4 fp32"}));
  ASSERT_OK(etr_runtime_tune(runtime, path.c_str(), note, &products));
  EXPECT_EQ(products.size(), 2u) << "what is known is not measured again";

  options.tuning = path.c_str();
  ASSERT_OK(etr_runtime_create(&options, &tuned));
  ASSERT_OK(etr_trainer_create(tuned, net.model, net.optimizer, 1, 0, &second));
  step_on_ones(second, 4);
  const auto none = [](void*, int64_t, int64_t, const char*, const char*) -> int32_t {
    ADD_FAILURE() << "the file had everything";
    return 1;
  };
  ASSERT_OK(etr_runtime_tune(tuned, path.c_str(), none, nullptr));
  for (etr_trainer* t : {trainer, second}) etr_trainer_destroy(t);
  for (etr_runtime* r : {runtime, tuned}) etr_runtime_destroy(r);

  options.tuning = "/no/such/file";
  EXPECT_EQ(etr_runtime_create(&options, &runtime), ETR_NOT_FOUND);
  EXPECT_NE(std::string(etr_last_error()).find("'/no/such/file'"), std::string::npos);
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

TEST(CApi, LogHookIsDestroyedOnce) {
  static int destroyed = 0;
  destroyed = 0;
  ASSERT_OK(etr_set_log_hook([](void*, int32_t, const char*) {}, &destroyed,
                             [](void* p) { ++*static_cast<int*>(p); }));
  ASSERT_OK(etr_set_log_hook(nullptr, nullptr, nullptr));
  EXPECT_EQ(destroyed, 1);
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
        return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
      },
      [](void* p, void* memory, uint64_t size) {
        auto& c = *static_cast<Counted*>(p);
        --c.blocks, c.bytes -= static_cast<int64_t>(size);
        std::free(memory);
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
  etr_trainer* trainer = nullptr;
  ASSERT_OK(etr_trainer_create_from_job(runtime, handle, 0, &trainer));
  etr_job_destroy(handle);
  etr_runtime_destroy(runtime);
  etr_event event{};
  event.struct_size = sizeof event;
  char* text = nullptr;
  ASSERT_OK(etr_trainer_summary(trainer, "text", &text)) << "a job knows its batches";
  EXPECT_NE(std::string(text).find(" parameters\n"), std::string::npos) << text;
  etr_string_free(text);
  while (etr_trainer_next_event(trainer, &event) == ETR_OK) {
    // The job's own results are not for the taking.
    etr_step_result result{};
    result.struct_size = sizeof result;
    EXPECT_EQ(etr_trainer_result(trainer, 1, &result), ETR_STATE);
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
  EXPECT_EQ(etr_trainer_next_event(trainer, &event), ETR_END);
  etr_trainer_destroy(trainer);
}

// What a folder of runs allows, through every way to begin one.
TEST(CApi, AFolderHoldsOneRun) {
  Images images;
  const std::string out =
      fs::path(images.path()).parent_path().string() + "-run";  // beside the data
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
    etr_trainer* trainer = nullptr;
    if (const int32_t status = etr_trainer_start_job(runtime, what, start, &trainer)) return status;
    etr_event event{};
    event.struct_size = sizeof event;
    int32_t status = ETR_OK;
    while ((status = etr_trainer_next_event(trainer, &event)) == ETR_OK) continue;
    etr_trainer_destroy(trainer);
    return status == ETR_END ? static_cast<int64_t>(event.step) : status;
  };
  EXPECT_EQ(run(job, ETR_START_RESUME), ETR_NOT_FOUND);
  EXPECT_EQ(run(job, ETR_START_TRIAL), 4);
  EXPECT_EQ(run(job, ETR_START_NEW), 4) << "a trial leaves nothing: " << etr_last_error();
  EXPECT_EQ(run(job, ETR_START_NEW), ETR_STATE);
  EXPECT_NE(std::string(etr_last_error()).find("--overwrite"), std::string::npos)
      << etr_last_error();
  etr_trainer* trainer = nullptr;
  EXPECT_EQ(etr_trainer_create_from_job(runtime, job, 0, &trainer), ETR_STATE);
  EXPECT_EQ(run(longer, ETR_START_RESUME), 6) << etr_last_error();
  EXPECT_EQ(run(longer, ETR_START_EVALUATE), ETR_STATE) << "it does not train";
  EXPECT_EQ(run(job, ETR_START_OVERWRITE), 4) << etr_last_error();
  for (const int32_t start : {-1, ETR_START_TRIAL + 1})
    EXPECT_EQ(run(job, start), ETR_INVALID_ARGUMENT) << start;
  fs::remove_all(out);
  for (etr_job* handle : {open_end, job, longer}) etr_job_destroy(handle);
  etr_runtime_destroy(runtime);
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

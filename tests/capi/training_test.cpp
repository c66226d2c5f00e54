// Trainers and runtimes through the C API.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "capi/support.h"
#include "echotrain/echotrain.h"

namespace {

namespace fs = std::filesystem;

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
  EXPECT_EQ(etr_trainer_evaluate(second, nullptr, &b), ETR_INVALID_ARGUMENT);
  for (etr_pipeline* p : {pipeline, first_eval, second_eval}) etr_pipeline_destroy(p);
  etr_trainer_destroy(trainer);
  etr_trainer_destroy(second);
  EXPECT_EQ(ended, 4);
}

// Of a pipeline that is within an epoch; and a checkpoint is for the optimizer that made it.
TEST(CApi, EvaluationsAreWholeEpochsAndCheckpointsNameTheirOptimizer) {
  Images images;
  Net net;
  etr_runtime* runtime = nullptr;
  etr_trainer *trainer = nullptr, *other = nullptr;
  etr_pipeline* pipeline = nullptr;
  etr_batch* batch = nullptr;
  ASSERT_OK(etr_runtime_create(nullptr, &runtime));
  ASSERT_OK(etr_trainer_create(runtime, net.model, net.optimizer, 1, 0, &trainer));
  std::string twice = images.spec();
  twice.replace(twice.find("\"seed\""), 6, "\"epochs\": 2, \"seed\"");
  ASSERT_OK(etr_pipeline_create_from_json(twice.c_str(), &pipeline));
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(etr_pipeline_next(pipeline, &batch));
    etr_batch_destroy(batch);
  }
  etr_eval_result result{};
  result.struct_size = sizeof result;
  ASSERT_OK(etr_trainer_evaluate(trainer, pipeline, &result));
  EXPECT_EQ(result.samples, 128);
  EXPECT_EQ(etr_trainer_evaluate(trainer, pipeline, &result), ETR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(etr_last_error()).find("no epoch left"), std::string::npos);

  ASSERT_OK(etr_trainer_save(trainer, images.path("ckpt").c_str()));
  etr_optimizer* lion = nullptr;
  etr_options* schedule = nullptr;
  ASSERT_OK(etr_options_create(&schedule));
  ASSERT_OK(etr_options_set_number(schedule, "learning_rate", 0.001));
  ASSERT_OK(etr_optimizer_create("lion", nullptr, schedule, &lion));
  etr_options_destroy(schedule);
  ASSERT_OK(etr_trainer_create(runtime, net.model, lion, 1, 0, &other));
  EXPECT_EQ(etr_trainer_load(other, images.path("ckpt").c_str()), ETR_INVALID_ARGUMENT);
  EXPECT_NE(std::string(etr_last_error()).find("made with 'sgd', and this trainer has 'lion'"),
            std::string::npos)
      << etr_last_error();
  etr_optimizer_destroy(lion);
  etr_pipeline_destroy(pipeline);
  for (etr_trainer* t : {trainer, other}) etr_trainer_destroy(t);
  etr_runtime_destroy(runtime);
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
#ifndef _WIN32  // which says of too long a name that there is no such file
  const std::string too_long(5000, 'x');
  options.tuning = too_long.c_str();
  EXPECT_EQ(etr_runtime_create(&options, &runtime), ETR_IO) << etr_last_error();
  // The user's cache directory cannot be made below a file.
  const char* const home = std::getenv("XDG_CACHE_HOME");
  const std::string before = home ? home : "";
  options.tuning = "";
  ASSERT_OK(etr_runtime_create(&options, &runtime));
  ::setenv("XDG_CACHE_HOME", path.c_str(), 1);
  EXPECT_EQ(etr_runtime_tune(runtime, nullptr, nullptr, nullptr), ETR_IO) << etr_last_error();
  home ? ::setenv("XDG_CACHE_HOME", before.c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
  etr_runtime_destroy(runtime);
#endif
  options.tuning = path.c_str();
  for (const char* damaged :
       {"", "{", "[]", R"({"format": 1, "devices": {}})", R"({"format": "echotrain kernels 1"})",
        R"({"format": "echotrain kernels 1", "devices": {"any": "gemm"}})",
        R"({"format": "echotrain kernels 1", "devices": {"any": {"nn 4x2x6 fp32": 1}}})"}) {
    std::ofstream(path, std::ios::trunc) << damaged;
    EXPECT_EQ(etr_runtime_create(&options, &runtime), ETR_CORRUPT_DATA) << damaged;
    EXPECT_NE(std::string(etr_last_error()).find(path), std::string::npos) << etr_last_error();
  }
}

// A loss of the program's own; and two models, one behind the other.
TEST(CApi, ALoopPassByPass) {
  etr_runtime* runtime = nullptr;
  ASSERT_OK(etr_runtime_create(nullptr, &runtime));
  etr_options* schedule = nullptr;
  ASSERT_OK(etr_options_create_from_json(R"({"learning_rate": 0.5})", &schedule));
  etr_optimizer* optimizer = nullptr;
  ASSERT_OK(etr_optimizer_create("sgd", nullptr, schedule, &optimizer));
  etr_options_destroy(schedule);
  etr_model* model = nullptr;
  ASSERT_OK(etr_model_create_from_json(
      R"({"inputs": ["x"], "layers": [{"layer": "dense", "units": 2}, {"layer": "dense", "units": 1}],
          "loss": {"loss": "mse"}})",
      &model));
  EXPECT_EQ(etr_model_freeze(model, nullptr), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_model_freeze(model, "caf\xe9.*"), ETR_INVALID_ARGUMENT);
  EXPECT_STREQ(etr_last_error(), "argument 'pattern': 'caf\\xE9.*' is not UTF-8");
  for (const char* spec : {R"({"model": "mlp"})", R"({"model": "mlp", "frozen": "dense_1.*"})"}) {
    etr_model* ready = nullptr;
    char* json = nullptr;
    ASSERT_OK(etr_model_create_from_json(spec, &ready));
    ASSERT_OK(etr_model_freeze(ready, "dense_2.*"));
    ASSERT_OK(etr_model_json(ready, &json));
    EXPECT_NE(std::string(json).find("dense_2.*\"]"), std::string::npos) << json;
    etr_string_free(json);
    etr_model_destroy(ready);
  }
  ASSERT_OK(etr_model_freeze(model, "dense_1.*"));
  etr_trainer* trainer = nullptr;
  ASSERT_OK(etr_trainer_create(runtime, model, optimizer, 1, 0, &trainer));

  const auto batch_of = [](const char* field, std::vector<float> values, int64_t columns) {
    etr_batch* batch = nullptr;
    EXPECT_EQ(etr_batch_create(&batch), ETR_OK);
    etr_tensor t{};
    t.struct_size = sizeof t;
    t.dtype = ETR_F32;
    t.rank = columns > 0 ? 2 : 1;
    t.shape[0] = static_cast<int64_t>(values.size()) / std::max<int64_t>(columns, 1);
    t.shape[1] = columns;
    t.data = values.data();
    t.size_bytes = values.size() * sizeof(float);
    EXPECT_EQ(etr_batch_set(batch, field, &t), ETR_OK);
    return batch;
  };
  const auto value_of = [](const etr_batch* batch, const char* field) {
    etr_tensor t{};
    t.struct_size = sizeof t;
    EXPECT_EQ(etr_batch_get(batch, field, &t), ETR_OK) << field;
    return *static_cast<const float*>(t.data);
  };
  etr_batch *x = batch_of("x", {1, 2, 3, 4, 5, 6}, 3), *ones = batch_of("output", {1, 1}, 1);
  etr_batch *out = nullptr, *inputs = nullptr, *gradients = nullptr, *weights = nullptr;
  etr_step_result result{};
  result.struct_size = sizeof result;
  EXPECT_EQ(etr_trainer_backward(trainer, ones, 0, nullptr), ETR_STATE);
  EXPECT_EQ(etr_trainer_update(trainer, &result), ETR_STATE);
  EXPECT_EQ(etr_trainer_get_gradients(trainer, nullptr, &gradients), ETR_STATE);
  EXPECT_EQ(etr_trainer_forward(trainer, ones, 0, &out), ETR_NOT_FOUND);
  EXPECT_EQ(etr_trainer_forward(trainer, x, 0, nullptr), ETR_INVALID_ARGUMENT);
  ASSERT_OK(etr_trainer_forward(trainer, x, 0, &out));
  etr_batch_info info{};
  info.struct_size = sizeof info;
  ASSERT_OK(etr_batch_get_info(out, &info));
  EXPECT_EQ(info.samples, 2);
  EXPECT_EQ(etr_trainer_backward(trainer, x, 0, nullptr), ETR_NOT_FOUND);
  EXPECT_EQ(etr_trainer_backward(trainer, ones, 0, &inputs), ETR_STATE) << "not asked for";
  ASSERT_OK(etr_trainer_backward(trainer, ones, 0, nullptr));
  ASSERT_OK(etr_trainer_get_gradients(trainer, "dense_2.bias", &gradients));
  EXPECT_EQ(value_of(gradients, "dense_2.bias"), 2);
  etr_batch_destroy(gradients);
  EXPECT_EQ(etr_trainer_get_gradients(trainer, "dense_1.bias", &gradients), ETR_INVALID_ARGUMENT);
  EXPECT_EQ(etr_trainer_get_gradients(trainer, "dense_3.bias", &gradients), ETR_NOT_FOUND);

  etr_batch_destroy(out);
  ASSERT_OK(etr_trainer_forward(trainer, x, 1, &out));
  ASSERT_OK(etr_trainer_backward(trainer, ones, 1, &inputs));
  ASSERT_OK(etr_trainer_get_weights(trainer, nullptr, &weights));
  etr_tensor first{}, second{}, to_input{};
  first.struct_size = second.struct_size = to_input.struct_size = sizeof first;
  ASSERT_OK(etr_batch_get(weights, "dense_1.weight", &first));  // [3, 2]
  ASSERT_OK(etr_batch_get(weights, "dense_2.weight", &second));
  ASSERT_OK(etr_batch_get(inputs, "x", &to_input));
  EXPECT_EQ(to_input.shape[1], 3);
  const auto* a = static_cast<const float*>(first.data);
  const auto* b = static_cast<const float*>(second.data);
  for (int i = 0; i < 6; ++i)
    EXPECT_NEAR(static_cast<const float*>(to_input.data)[i],
                a[2 * (i % 3)] * b[0] + a[2 * (i % 3) + 1] * b[1], 1e-5);

  etr_batch *given = batch_of("dense_2.bias", {3}, 0), *wrong = batch_of("dense_2.bias", {3, 4}, 0);
  EXPECT_EQ(etr_trainer_set_gradients(trainer, wrong), ETR_INVALID_ARGUMENT);
  ASSERT_OK(etr_trainer_set_gradients(trainer, given));
  ASSERT_OK(etr_trainer_update(trainer, &result));
  EXPECT_EQ(result.step, 1u);
  EXPECT_EQ(result.samples, 4);
  EXPECT_EQ(result.learning_rate, 0.5);
  EXPECT_TRUE(std::isnan(result.loss) && std::isnan(result.accuracy));
  etr_batch* after = nullptr;
  ASSERT_OK(etr_trainer_get_weights(trainer, nullptr, &after));
  EXPECT_FLOAT_EQ(value_of(after, "dense_2.bias"), value_of(weights, "dense_2.bias") - 1.5f);
  EXPECT_EQ(value_of(after, "dense_1.weight"), a[0]);
  for (etr_batch* each : {x, ones, out, inputs, weights, after, given, wrong})
    etr_batch_destroy(each);
  etr_trainer_destroy(trainer);

  etr_model_destroy(model);
  etr_optimizer_destroy(optimizer);
  etr_runtime_destroy(runtime);
}

}  // namespace

#include "workloads.h"

#include <gtest/gtest.h>
#include <png.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

namespace etr::failing {

namespace fs = std::filesystem;

Outcome outcome_of(int32_t status) { return {status, status < 0 ? etr_last_error() : ""}; }

Scenario through_c(std::function<int32_t(std::string& results)> work) {
  return [work = std::move(work)](std::string& results) { return outcome_of(work(results)); };
}

void write_images(const fs::path& folder) {
  for (int i = 0; i < 24; ++i) {
    const fs::path of_class = folder / std::to_string(i % 2);
    fs::create_directories(of_class);
    std::vector<uint8_t> pixels(12 * 12 * 3);
    for (size_t p = 0; p < pixels.size(); ++p)
      pixels[p] = static_cast<uint8_t>(40 + 5 * i + static_cast<int>(p * 13 % 31));
    png_image image{};
    image.version = PNG_IMAGE_VERSION;
    image.width = image.height = 12;
    image.format = PNG_FORMAT_RGB;
    ASSERT_TRUE(png_image_write_to_file(&image, (of_class / (std::to_string(i) + ".png")).c_str(),
                                        0, pixels.data(), 0, nullptr));
  }
}

int32_t open(Runtime& runtime, const std::string& cache, double hang_seconds, bool compare) {
  etr_runtime_options options{};
  options.struct_size = sizeof options;
  options.device = std::getenv("ECHOTRAIN_TEST_DEVICE");
  options.cache_dir = cache.c_str();
  options.trust_driver = !compare;
  options.hang_seconds = hang_seconds;
  return etr_runtime_create(&options, &runtime.p);
}

namespace {

int32_t fill(etr_batch* batch) {
  const float x[12] = {1, 2, 3, -1, 0, 1, 2, 2, 2, 0, 0, 1};
  const int32_t labels[4] = {0, 1, 0, 1};
  etr_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.dtype = ETR_F32;
  tensor.data = const_cast<float*>(x);
  tensor.rank = 2;
  tensor.shape[0] = 4;
  tensor.shape[1] = 3;
  tensor.size_bytes = sizeof x;
  ETR_TRY(etr_batch_set(batch, "image", &tensor));
  tensor.dtype = ETR_I32;
  tensor.data = const_cast<int32_t*>(labels);
  tensor.rank = 1;
  tensor.size_bytes = sizeof labels;
  return etr_batch_set(batch, "label", &tensor);
}

int32_t create_trainer(etr_runtime* runtime, etr_trainer** trainer) {
  Handle<etr_model, etr_model_destroy> model;
  ETR_TRY(etr_model_create_from_json(
      R"({"layers": [{"layer": "dense", "units": 5, "activation": "relu"},
                     {"layer": "dense", "units": 2}]})",
      &model.p));
  Handle<etr_options, etr_options_destroy> none, schedule;
  ETR_TRY(etr_options_create(&none.p));
  ETR_TRY(etr_options_create(&schedule.p));
  ETR_TRY(etr_options_set_number(schedule.p, "learning_rate", 0.01));
  Handle<etr_optimizer, etr_optimizer_destroy> optimizer;
  ETR_TRY(etr_optimizer_create("adam", none.p, schedule.p, &optimizer.p));
  return etr_trainer_create(runtime, model.p, optimizer.p, 1, 0, trainer);
}

int32_t append(const etr_batch* batch, const char* field, std::string& results) {
  etr_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  ETR_TRY(etr_batch_get(batch, field, &tensor));
  results.append(static_cast<const char*>(tensor.data), tensor.size_bytes);
  return ETR_OK;
}

}  // namespace

int32_t append_fields(const etr_batch* batch, std::string& results) {
  for (int32_t i = 0;; ++i) {
    const char* name = nullptr;
    const int32_t status = etr_batch_field_name(batch, i, &name);
    if (status == ETR_NOT_FOUND) return ETR_OK;
    ETR_TRY(status);
    ETR_TRY(append(batch, name, results));
  }
}

int32_t read_epoch(etr_pipeline* pipeline, std::string& results) {
  while (true) {
    Batch batch;
    const int32_t status = etr_pipeline_next(pipeline, &batch.p);
    ETR_TRY(status);
    if (status == ETR_END) return ETR_OK;
    ETR_TRY(append_fields(batch.p, results));
  }
}

Outcome read_epochs(const std::string& spec, std::string& results, int epochs) {
  Pipeline pipeline;
  int32_t status = etr_pipeline_create_from_json(spec.c_str(), &pipeline.p);
  if (status < 0) return outcome_of(status);
  for (int i = 0; i < epochs && status == ETR_OK; ++i) status = read_epoch(pipeline.p, results);
  char* text = nullptr;
  if (status == ETR_OK) status = etr_pipeline_save(pipeline.p, &text);
  const Outcome outcome = outcome_of(status);
  etr_string_free(text);
  Batch batch;
  if (status < 0) etr_pipeline_next(pipeline.p, &batch.p);
  if (etr_pipeline_stats(pipeline.p, &text) == ETR_OK) etr_string_free(text);
  return outcome;
}

namespace {

int32_t losses(etr_trainer* trainer, std::string& results) {
  etr_step_result result{};
  result.struct_size = sizeof result;
  int32_t status = ETR_OK;
  while ((status = etr_trainer_result(trainer, 1, &result)) == ETR_OK)
    results += std::to_string(result.loss) + " ";
  return status;
}

}  // namespace

int32_t train_loop(etr_runtime* runtime, const std::string& folder, std::string& results) {
  Handle<etr_trainer, etr_trainer_destroy> trainer;
  ETR_TRY(create_trainer(runtime, &trainer.p));
  Batch batch, outputs, weights;
  ETR_TRY(etr_batch_create(&batch.p));
  ETR_TRY(fill(batch.p));
  for (int i = 0; i < 5; ++i) ETR_TRY(etr_trainer_step(trainer.p, batch.p));
  ETR_TRY(losses(trainer.p, results));
  ETR_TRY(etr_trainer_predict(trainer.p, batch.p, &outputs.p));
  ETR_TRY(append(outputs.p, "output", results));
  ETR_TRY(etr_trainer_save(trainer.p, folder.c_str()));
  ETR_TRY(etr_trainer_load(trainer.p, folder.c_str()));
  ETR_TRY(etr_trainer_step(trainer.p, batch.p));
  ETR_TRY(losses(trainer.p, results));
  ETR_TRY(etr_trainer_get_weights(trainer.p, nullptr, &weights.p));
  ETR_TRY(etr_trainer_export_onnx(trainer.p, (folder + "/model.onnx").c_str()));
  return append_fields(weights.p, results);
}

std::string job_on(const fs::path& images, const fs::path& output, bool device_echo) {
  const std::string folder = R"({"stage": "folder", "root": ")" + images.string() + R"("})";
  const std::string decoded = folder + R"(, {"stage": "label"}, {"stage": "decode"})";
  const std::string echo = R"({"stage": "echo", "factor": 2, "buffer": 8)" +
                           std::string(device_echo ? R"(, "device": true})" : "}");
  return R"({"seed": 1, "pipeline": {"threads": 2, "stages": [)" + decoded +
         R"(, {"stage": "shuffle", "buffer": 10}, )" + echo +
         R"(, {"stage": "random_crop", "pad": 1}, {"stage": "flip"},
         {"stage": "batch", "size": 6}, {"stage": "normalize"}]},
      "evaluation": {"pipeline": {"stages": [)" +
         decoded + R"(, {"stage": "batch", "size": 8}, {"stage": "normalize"}]}, "every_epochs": 1},
      "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 2}]},
      "optimizer": {"optimizer": "adam"}, "schedule": {"learning_rate": 0.01},
      "train": {"steps": 20},
      "output": {"dir": ")" +
         output.string() + R"(", "checkpoint_every_steps": 3, "checkpoint_every_epochs": 0}})";
}

namespace {

// What a program may call on a run that has failed.
void call_everything(etr_run* run, etr_trainer* trainer) {
  etr_event event{};
  event.struct_size = sizeof event;
  EXPECT_LT(etr_run_next_event(run, &event), 0) << "a run goes on after its failure";
  etr_eval_result evaluated{};
  evaluated.struct_size = sizeof evaluated;
  etr_run_evaluate(run, &evaluated);
  char* text = nullptr;
  if (etr_run_pipeline_stats(run, &text) == ETR_OK) etr_string_free(text);
  etr_run_stop(run);
  if (!trainer) return;
  Batch weights, batch, outputs;
  etr_trainer_get_weights(trainer, nullptr, &weights.p);
  if (etr_batch_create(&batch.p) == ETR_OK && fill(batch.p) == ETR_OK)
    etr_trainer_predict(trainer, batch.p, &outputs.p);
  if (etr_trainer_summary(trainer, "text", &text) == ETR_OK) etr_string_free(text);
}

int32_t start_job(etr_runtime* runtime, const std::string& json, int32_t start, etr_run** run,
                  etr_trainer** trainer) {
  Handle<etr_job, etr_job_destroy> job;
  ETR_TRY(etr_job_parse(json.c_str(), nullptr, 0, &job.p));
  ETR_TRY(etr_run_start(runtime, job.p, start, run));
  return etr_run_trainer(*run, trainer);
}

}  // namespace

Outcome run_job(etr_runtime* runtime, const std::string& json, int32_t start) {
  Handle<etr_run, etr_run_destroy> run;
  Handle<etr_trainer, etr_trainer_destroy> trainer;
  int32_t status = start_job(runtime, json, start, &run.p, &trainer.p);
  if (status < 0) return outcome_of(status);
  etr_event event{};
  event.struct_size = sizeof event;
  while ((status = etr_run_next_event(run.p, &event)) == ETR_OK) continue;
  if (status == ETR_END) return {};
  const Outcome outcome = outcome_of(status);
  call_everything(run.p, trainer.p);
  return outcome;
}

std::string tensors(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().extension() != ".safetensors") continue;
    std::stringstream text;
    text << std::ifstream(entry.path(), std::ios::binary).rdbuf();
    files[fs::relative(entry.path(), folder).string()] = text.str();
  }
  std::string all;
  for (const auto& [name, text] : files) all += name + "\n" + text + "\n";
  return all;
}

std::string rows(const fs::path& folder) {
  std::ifstream in(folder / "metrics.jsonl");
  std::string all;
  for (std::string line; std::getline(in, line);)
    all += line.substr(0, line.find(",\"seconds\"")) + "\n";  // what follows depends on time
  return all;
}

}  // namespace etr::failing

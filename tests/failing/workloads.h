// What the library is made to do while calls fail: through the C API, with results that can be
// compared to the bit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "echotrain/echotrain.h"
#include "failing/failures.h"
#include "support/temp_dir.h"

namespace etr::failing {

// Returns the status if the call failed.
#define ETR_TRY(call) \
  if (const int32_t status_ = (call); status_ < 0) return status_

template <typename T, void (*destroy)(T*)>
struct Handle {
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { destroy(p); }
  T* p = nullptr;
};
using Runtime = Handle<etr_runtime, etr_runtime_destroy>;
using Pipeline = Handle<etr_pipeline, etr_pipeline_destroy>;
using Batch = Handle<etr_batch, etr_batch_destroy>;

// The outcome of a call that has just returned.
Outcome outcome_of(int32_t status);
// A scenario that calls the C API.
Scenario through_c(std::function<int32_t(std::string& results)> work);

// A folder of class folders with 24 small images.
void write_images(const std::filesystem::path& folder);

// Opens the device of ECHOTRAIN_TEST_DEVICE. A device that does not finish for `hang_seconds` is
// taken for lost; 0: the library's default. `compare`: kernels are compared with the host.
int32_t open(Runtime& runtime, const std::string& cache = "", double hang_seconds = 0,
             bool compare = false);

// Appends all fields of a batch, or of all batches in the rest of an epoch.
int32_t append_fields(const etr_batch* batch, std::string& results);
int32_t read_epoch(etr_pipeline* pipeline, std::string& results);

// Creates a pipeline and reads so many epochs. After a failure, calls what can still be called on
// the pipeline.
Outcome read_epochs(const std::string& spec, std::string& results, int epochs = 2);

// A loop of one's own on a small model: trains, predicts, saves, loads, trains on, and exports to
// model.onnx. Appends what it computed to `results`.
int32_t train_loop(etr_runtime* runtime, const std::string& folder, std::string& results);

// A job on `images`: 20 steps, a checkpoint after each third one, an evaluation after each epoch;
// an echo node, on the device if `device_echo` is set.
std::string job_on(const std::filesystem::path& images, const std::filesystem::path& output,
                   bool device_echo);

// Runs a job to its end. After a failure, calls whatever can still be called on the run and its
// trainer: that must give errors, too.
Outcome run_job(etr_runtime* runtime, const std::string& json, int32_t start);

// The weights and states of optimizers below a folder, by file.
std::string tensors(const std::filesystem::path& folder);
// The rows of a run's metrics, without what depends on time.
std::string rows(const std::filesystem::path& folder);

}  // namespace etr::failing

// The host has no memory left, at every allocation of the library in turn: a typed error, nothing
// hangs, nothing is lost but the call, and the next one works.
//
// This program's operator new takes the place of the standard one. It fails for callers within the
// library; those within the driver, its compiler and oneTBB are theirs to survive. So is what
// nlohmann::json allocates
// where it destroys a value: it may not throw there.
#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>
#include <link.h>
#include <png.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "echotrain/echotrain.h"
#include "support/temp_dir.h"

namespace {

uintptr_t library_begin = 0, library_end = 0;
std::atomic<bool> armed{false};
std::atomic<int64_t> countdown{0};  // allocations until one fails
std::atomic<bool> for_ever{false};  // and all after it
std::atomic<int64_t> counted{0};

uintptr_t json_begin = 0, json_end = 0;  // of its function that destroys

bool destroys_json() {
  void* frames[16];
  const int count = backtrace(frames, 16);
  for (int i = 0; i < count; ++i) {
    const auto address = reinterpret_cast<uintptr_t>(frames[i]);
    if (address >= json_begin && address < json_end) return true;
  }
  return false;
}

bool fails(const void* caller) {
  const auto address = reinterpret_cast<uintptr_t>(caller);
  if (address < library_begin || address >= library_end) return false;
  counted.fetch_add(1, std::memory_order_relaxed);
  if (!armed) return false;
  const int64_t left = countdown.fetch_sub(1, std::memory_order_relaxed);
  if (left > 1 || (left < 1 && !for_ever)) return false;
  if (!destroys_json()) return true;
  if (left == 1) countdown = 1;  // the next one
  return false;
}

void* allocate(size_t size, size_t alignment, const void* caller) {
  if (fails(caller)) return nullptr;
  size = size ? size : 1;
  return alignment ? std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment)
                   : std::malloc(size);
}

void* allocate_or_throw(size_t size, size_t alignment, const void* caller) {
  if (void* memory = allocate(size, alignment, caller)) return memory;
  throw std::bad_alloc();
}

}  // namespace

#define CALLER __builtin_return_address(0)
#define ALIGNMENT static_cast<size_t>(alignment)
// Not inlined: the compiler would see new without its delete. NOLINTBEGIN
#define OPERATOR [[gnu::noinline]] void
OPERATOR* operator new(size_t n) { return allocate_or_throw(n, 0, CALLER); }
OPERATOR* operator new[](size_t n) { return allocate_or_throw(n, 0, CALLER); }
OPERATOR* operator new(size_t n, std::align_val_t alignment) {
  return allocate_or_throw(n, ALIGNMENT, CALLER);
}
OPERATOR* operator new[](size_t n, std::align_val_t alignment) {
  return allocate_or_throw(n, ALIGNMENT, CALLER);
}
OPERATOR* operator new(size_t n, const std::nothrow_t&) noexcept { return allocate(n, 0, CALLER); }
OPERATOR* operator new[](size_t n, const std::nothrow_t&) noexcept {
  return allocate(n, 0, CALLER);
}
OPERATOR operator delete(void* p) noexcept { std::free(p); }
OPERATOR operator delete[](void* p) noexcept { std::free(p); }
OPERATOR operator delete(void* p, size_t) noexcept { std::free(p); }
OPERATOR operator delete[](void* p, size_t) noexcept { std::free(p); }
OPERATOR operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
OPERATOR operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
OPERATOR operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
OPERATOR operator delete[](void* p, size_t, std::align_val_t) noexcept { std::free(p); }
// NOLINTEND

namespace {

namespace fs = std::filesystem;

// Where the library's code lies.
void find_library() {
  Dl_info info{};
  ASSERT_NE(dladdr(reinterpret_cast<void*>(&etr_version), &info), 0);
  const auto base = reinterpret_cast<uintptr_t>(info.dli_fbase);
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* wanted) {
        if (object->dlpi_addr != *static_cast<uintptr_t*>(wanted)) return 0;
        for (int i = 0; i < object->dlpi_phnum; ++i)
          if (object->dlpi_phdr[i].p_type == PT_LOAD && (object->dlpi_phdr[i].p_flags & PF_X)) {
            library_begin = object->dlpi_addr + object->dlpi_phdr[i].p_vaddr;
            library_end = library_begin + object->dlpi_phdr[i].p_memsz;
          }
        return 1;
      },
      const_cast<uintptr_t*>(&base));
  ASSERT_LT(library_begin, library_end);
  // Symbols that are not exported, by the tool that came with the compiler.
  const std::string command = std::string("nm -S --defined-only '") + info.dli_fname + "'";
  FILE* symbols = popen(command.c_str(), "r");
  ASSERT_NE(symbols, nullptr);
  char line[4096];
  while (std::fgets(line, sizeof line, symbols))
    if (std::strstr(line, "json_value7destroy")) {
      unsigned long long at = 0, size = 0;
      ASSERT_EQ(std::sscanf(line, "%llx %llx", &at, &size), 2);
      json_begin = base + at;
      json_end = json_begin + size;
    }
  pclose(symbols);
  ASSERT_LT(json_begin, json_end) << "is the library stripped?";
}

// Calls `scenario` once with each of its allocations failing, and once more with all after that one
// failing, too; of more than `places` allocations, with so many that lie evenly. The scenario gives
// the status of its
// first call that failed, or ETR_OK.
void check(const char* name, const std::function<int32_t()>& scenario,
           int64_t places = std::numeric_limits<int64_t>::max()) {
  SCOPED_TRACE(name);
  find_library();
  destroys_json();                                    // the first backtrace loads a library
  ASSERT_EQ(scenario(), ETR_OK) << etr_last_error();  // fills caches of the process
  counted = 0;
  ASSERT_EQ(scenario(), ETR_OK) << etr_last_error();
  const int64_t total = counted;
  ASSERT_GT(total, 50);
  std::map<int32_t, int> statuses;
  places = std::min(places, total);
  if (const char* asked = std::getenv("ECHOTRAIN_TEST_FAILURES"))  // 0: at every allocation
    places = std::atoll(asked) > 0 ? std::min<int64_t>(std::atoll(asked), total) : total;
  for (int64_t run = 0; run < 2 * places; ++run) {
    const int64_t at = 1 + (total - 1) * (run / 2) / std::max<int64_t>(places - 1, 1);
    alarm(300);  // a hang ends the program
    countdown = at;
    for_ever = run % 2 == 1;
    armed = true;
    const int32_t status = scenario();
    armed = false;
    alarm(0);
    ++statuses[status];
    ASSERT_TRUE(status == ETR_OK || status == ETR_OUT_OF_MEMORY)
        << "allocation " << at << " of " << total << (for_ever ? " and all after it: " : ": ")
        << status << " " << etr_last_error();
  }
  std::cout << name << ": " << total << " allocations, " << statuses[ETR_OUT_OF_MEMORY] << " of "
            << 2 * places << " runs ended with an error\n";
  EXPECT_GT(statuses[ETR_OUT_OF_MEMORY], places / 3);
  EXPECT_EQ(scenario(), ETR_OK) << etr_last_error();
}

#define TRY(call) \
  if (const int32_t status_ = (call); status_ < 0) return status_

template <typename T, void (*destroy)(T*)>
struct Handle {
  T* p = nullptr;
  ~Handle() { destroy(p); }
};

class Allocation : public testing::Test {
 protected:
  void SetUp() override {
    std::ofstream lines(root_ / "rows.jsonl");
    for (int i = 0; i < 60; ++i)
      lines << "{\"image\": [" << i % 7 << ".5, 1.5, " << i % 3 << ".25], \"label\": " << i % 2
            << "}\n";
    for (int i = 0; i < 24; ++i) {
      fs::create_directories(root_ / "images" / std::to_string(i % 2));
      std::vector<uint8_t> pixels(12 * 12 * 3, static_cast<uint8_t>(40 + 5 * i));
      png_image image{};
      image.version = PNG_IMAGE_VERSION;
      image.width = image.height = 12;
      image.format = PNG_FORMAT_RGB;
      const std::string name = std::to_string(i % 2) + "/" + std::to_string(i) + ".png";
      ASSERT_TRUE(png_image_write_to_file(&image, (root_ / "images" / name).c_str(), 0,
                                          pixels.data(), 0, nullptr));
    }
  }

  std::string stages(const std::string& more) const {
    return R"([{"stage": "jsonl", "pattern": ")" + (root_ / "rows.jsonl").string() +
           R"(", "columns": "image:f32,label:i32"}, {"stage": "label"}, )" + more +
           R"({"stage": "batch", "size": 8}])";
  }

  const etr::test::TempDir dir_;
  const fs::path root_ = dir_.path();
};

int32_t read_epochs(const std::string& json, int64_t batches) {
  Handle<etr_pipeline, etr_pipeline_destroy> pipeline;
  TRY(etr_pipeline_create_from_json(json.c_str(), &pipeline.p));
  int64_t got = 0;
  for (int epochs = 0; epochs < 2;) {
    Handle<etr_batch, etr_batch_destroy> batch;
    const int32_t status = etr_pipeline_next(pipeline.p, &batch.p);
    TRY(status);
    if (status == ETR_END)
      ++epochs;
    else
      ++got;
  }
  char* stats = nullptr;
  TRY(etr_pipeline_stats(pipeline.p, &stats));
  etr_string_free(stats);
  char* state = nullptr;
  TRY(etr_pipeline_save(pipeline.p, &state));
  etr_string_free(state);
  return got == batches ? ETR_OK : ETR_INTERNAL;
}

TEST_F(Allocation, MayFailAnywhereInAPipeline) {
  for (const int threads : {1, 4})
    check("pipeline", [&] {
      return read_epochs(
          R"({"seed": 3, "epochs": 2, "threads": )" + std::to_string(threads) + R"(, "stages": )" +
              stages(R"({"stage": "shuffle", "buffer": 20}, {"stage": "cache", "bytes": 100000},
                                       {"stage": "echo", "factor": 2}, {"stage": "prefetch", "items": 3},)") +
              "}",
          30);
    });
}

TEST_F(Allocation, MayFailAnywhereInAPipelineOfImages) {
  const std::string spec =
      R"({"seed": 3, "epochs": 2, "threads": 2, "stages": [{"stage": "folder", "root": ")" +
      (root_ / "images").string() +
      R"("}, {"stage": "label"}, {"stage": "decode"}, {"stage": "shuffle", "buffer": 10}, {"stage": "random_crop", "pad": 1},
          {"stage": "flip"}, {"stage": "color_jitter", "hue": 0.1}, {"stage": "batch", "size": 6}, {"stage": "normalize"}]})";
  check("images", [&] { return read_epochs(spec, 8); });
}

// Threads of interleave, and a log of decisions that is completed where the stage goes.
TEST_F(Allocation, MayFailInThreadsThatReadAheadAndInLogs) {
  for (int file = 0; file < 3; ++file) {
    std::ofstream lines(root_ / ("part" + std::to_string(file) + ".jsonl"));
    for (int i = 0; i < 20; ++i)
      lines << "{\"image\": [" << i << ".5], \"label\": " << i % 2 << "}\n";
  }
  const std::string spec =
      R"({"seed": 3, "epochs": 2, "threads": 2, "stages": [{"stage": "interleave", "cycle_length": 3, "sources": [
          {"stage": "jsonl", "pattern": ")" +
      (root_ / "part*.jsonl").string() +
      R"(", "columns": "image:f32,label:i32"}]}, {"stage": "echo", "mode": "on_demand", "factor": 2, "log": ")" +
      (root_ / "echo.jsonl").string() +
      R"("}, {"stage": "take", "count": 48}, {"stage": "batch", "size": 8}]})";
  check(
      "interleave", [&] { return read_epochs(spec, 12); }, 1000);
}

struct Runtime : Handle<etr_runtime, etr_runtime_destroy> {
  Runtime() {
    etr_runtime_options options{};
    options.struct_size = sizeof options;
    options.device = std::getenv("ECHOTRAIN_TEST_DEVICE");
    etr_runtime_create(&options, &p);
  }
};

// A trainer for a loop of one's own, on a runtime that stays.
int32_t train(etr_runtime* runtime, const std::string& folder) {
  Handle<etr_model, etr_model_destroy> model;
  TRY(etr_model_create_from_json(
      R"({"layers": [{"layer": "dense", "units": 5, "activation": "relu"}, {"layer": "dense", "units": 2}]})",
      &model.p));
  Handle<etr_options, etr_options_destroy> none, schedule;
  TRY(etr_options_create(&none.p));
  TRY(etr_options_create(&schedule.p));
  TRY(etr_options_set_number(schedule.p, "learning_rate", 0.01));
  Handle<etr_optimizer, etr_optimizer_destroy> optimizer;
  TRY(etr_optimizer_create("adam", none.p, schedule.p, &optimizer.p));
  Handle<etr_trainer, etr_trainer_destroy> trainer;
  TRY(etr_trainer_create(runtime, model.p, optimizer.p, 1, 0, &trainer.p));
  const float x[12] = {1, 2, 3, -1, 0, 1, 2, 2, 2, 0, 0, 1};
  const int32_t labels[4] = {0, 1, 0, 1};
  const int64_t shape[2] = {4, 3};
  Handle<etr_batch, etr_batch_destroy> batch;
  TRY(etr_batch_create(&batch.p));
  etr_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.dtype = ETR_F32;
  tensor.data = const_cast<float*>(x);
  tensor.rank = 2;
  tensor.size_bytes = sizeof x;
  std::copy(shape, shape + 2, tensor.shape);
  TRY(etr_batch_set(batch.p, "image", &tensor));
  tensor.dtype = ETR_I32;
  tensor.data = const_cast<int32_t*>(labels);
  tensor.rank = 1;
  tensor.size_bytes = sizeof labels;
  TRY(etr_batch_set(batch.p, "label", &tensor));
  for (int i = 0; i < 3; ++i) TRY(etr_trainer_step(trainer.p, batch.p));
  etr_step_result result{};
  result.struct_size = sizeof result;
  int32_t status = ETR_OK;
  while ((status = etr_trainer_result(trainer.p, 1, &result)) == ETR_OK) continue;
  TRY(status);
  Handle<etr_batch, etr_batch_destroy> outputs;
  TRY(etr_trainer_predict(trainer.p, batch.p, &outputs.p));
  TRY(etr_trainer_save(trainer.p, folder.c_str()));
  TRY(etr_trainer_load(trainer.p, folder.c_str()));
  TRY(etr_trainer_export_onnx(trainer.p, (folder + "/model.onnx").c_str()));
  return ETR_OK;
}

TEST_F(Allocation, MayFailAnywhereInTraining) {
  const Runtime runtime;
  ASSERT_NE(runtime.p, nullptr) << etr_last_error();
  check("training", [&] { return train(runtime.p, (root_ / "run").string()); });
}

// A whole job: its own pipeline, metrics, checkpoints, an evaluation.
TEST_F(Allocation, MayFailAnywhereInAJob) {
  const Runtime runtime;
  ASSERT_NE(runtime.p, nullptr) << etr_last_error();
  const std::string pipeline = R"({"threads": 2, "stages": )" + stages("") + "}";
  const std::string json =
      R"({"seed": 1, "pipeline": )" + pipeline + R"(, "evaluation": {"pipeline": )" + pipeline +
      R"(}, "model": {"layers": [{"layer": "dense", "units": 2}]}, "optimizer": {"optimizer": "sgd"},
      "schedule": {"learning_rate": 0.01}, "train": {"steps": 10},
      "output": {"dir": ")" +
      (root_ / "job").string() + R"(", "checkpoint_every_steps": 4}})";
  check(
      "job",
      [&] {
        fs::remove_all(root_ / "job");
        Handle<etr_job, etr_job_destroy> job;
        TRY(etr_job_parse(json.c_str(), nullptr, 0, &job.p));
        Handle<etr_run, etr_run_destroy> run;
        Handle<etr_trainer, etr_trainer_destroy> trainer;
        TRY(etr_run_start(runtime.p, job.p, ETR_START_NEW, &run.p));
        TRY(etr_run_trainer(run.p, &trainer.p));
        etr_event event{};
        event.struct_size = sizeof event;
        int32_t status = ETR_OK;
        while ((status = etr_run_next_event(run.p, &event)) == ETR_OK) continue;
        TRY(status);
        return int32_t{ETR_OK};
      },
      500);
}

}  // namespace

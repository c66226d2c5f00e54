// Status, log, allocator, schemas, options, devices, runtime.
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "core/log.h"
#include "core/memory.h"
#include "core/platform.h"
#include "core/utf8.h"
#include "functions.h"
#include "gpu/wide_vectors.h"
#include "handles.h"
#include "nn/layer.h"
#include "nn/models.h"
#include "optim/update.h"
#include "sources/pack.h"
#include "study/study.h"

#define X(name, value, text) static_assert(static_cast<int>(etr::Code::name) == value);
ETR_STATUS_LIST(X)
#undef X

namespace etr::capi {
namespace {

std::string& last_error() {
  thread_local std::string message;
  return message;
}

// Returns the rows of a table as JSON. Each row's options are followed by those that all rows
// share.
template <typename Table>
Json table_json(const Table& table, Schema shared = {}) {
  Json out = Json::array();
  const Json more = schema_json(shared);
  for (const auto* row : table) {
    Json options = schema_json(row->options);
    options.insert(options.end(), more.begin(), more.end());
    out.push_back({{"name", row->name}, {"doc", row->doc}, {"options", std::move(options)}});
    if constexpr (requires { row->prepares; }) out.back()["prepares"] = row->prepares;
  }
  return out;
}

Json schema_of(const std::string& kind) {
  if (kind == "stages") return table_json(pipeline::stage_table());
  if (kind == "layers") return table_json(nn::layer_table(), nn::layer_common_schema());
  if (kind == "models") return table_json(nn::model_table());
  if (kind == "optimizers") return table_json(optim::optimizer_table(), optim::update_schema());
  if (kind == "job") return train::job_schema();
  if (kind == "pack") return schema_json(sources::pack_schema());
  if (kind == "study") return study::study_schema();
  const std::string kinds[] = {"stages", "layers", "models", "optimizers", "job", "pack", "study"};
  fail(Code::invalid_argument, "there is no schema of kind '", kind, "'", suggestion(kind, kinds));
}

etr_device_info c_info(const gpu::DeviceInfo& info) {
  etr_device_info out{};
  out.index = info.index;
  out.kind = static_cast<int32_t>(info.kind);
  out.api_major = info.api_major;
  out.api_minor = info.api_minor;
  out.subgroup_size = info.subgroup_size;
  out.memory_bytes = info.memory_bytes;
  std::strncpy(out.name, info.name.c_str(), sizeof out.name - 1);
  std::strncpy(out.driver, info.driver.c_str(), sizeof out.driver - 1);
  return out;
}

template <typename T>
int32_t set_option(etr_options* options, const char* name, T value) {
  return guarded([&] { required(options, "options").values[&required(name, "name")] = value; });
}

gpu::DeviceOptions device_options(const etr_runtime_options* given) {
  const etr_runtime_options options =
      given ? read_struct(*given, "etr_runtime_options") : etr_runtime_options{};
  if (options.kernels < ETR_KERNELS_AUTOMATIC || options.kernels > ETR_KERNELS_MATRIX)
    fail(Code::invalid_argument, "kernels is ", options.kernels, ", not one of ETR_KERNELS_*");
  gpu::DeviceOptions out;
  if (options.device) out.selector = options.device;
  out.cache_directory = options.cache_dir ? options.cache_dir : platform::cache_directory();
  out.validation = options.validation != 0;
  if (!options.trust_driver) out.compare = gpu::Compare::kernels;
  out.family = static_cast<gpu::KernelFamily>(options.kernels);
  out.memory_limit_bytes = options.memory_limit_bytes;
  if (!(options.hang_seconds >= 0 && options.hang_seconds <= 1e6))
    fail(Code::invalid_argument, "hang_seconds is ", options.hang_seconds, "; expected 0 to 1e6");
  out.hang_seconds = static_cast<float>(options.hang_seconds);
  return out;
}

constexpr const char* kTuningFile = "/tuning.json";

// A problem with the file `path` that the caller names is an error. A problem with the file in the
// cache is only logged.
void read_tuning(gpu::Kernels& kernels, const char* path, const std::string& cache_directory) {
  const std::string& device = kernels.device()->info().name;
  if (path && !*path) return;
  if (path) {
    std::error_code error;
    const bool there = std::filesystem::exists(path, error);
    if (error) fail(Code::io, "cannot read the tuning file '", path, "': ", error.message());
    if (!there) fail(Code::not_found, "there is no tuning file '", path, "'");
    return kernels.tuning().read(path, device);
  }
  if (cache_directory.empty()) return;
  try {
    kernels.tuning().read(cache_directory + kTuningFile, device);
  } catch (const Error& error) {
    log_line(LogLevel::warning, cat("kernels are not tuned: ", error.what()));
  }
}

std::shared_ptr<gpu::Kernels> kernels_on(const gpu::DeviceOptions& options,
                                         const std::optional<std::string>& tuning) {
  auto made = std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(options));
  read_tuning(*made, tuning ? tuning->c_str() : nullptr, options.cache_directory);
  return made;
}

std::unique_ptr<etr_runtime> runtime_on(const gpu::DeviceOptions& options,
                                        const etr_runtime_options* given) {
  const char* const file = given ? read_struct(*given, "etr_runtime_options").tuning : nullptr;
  const auto tuning = file ? std::optional<std::string>(file) : std::nullopt;
  auto made = std::make_unique<etr_runtime>();
  made->kernels = kernels_on(options, tuning);
  made->open = [options, tuning](const std::string& selector) {
    gpu::DeviceOptions other = options;
    other.selector = selector;
    other.host.reset();
    return kernels_on(other, tuning);
  };
  return made;
}

gpu::HostDevice host_device(const etr_vulkan_device& given) {
  const etr_vulkan_device shared = read_struct(given, "etr_vulkan_device");
  gpu::HostDevice out;
  out.get_instance_proc_addr = shared.get_instance_proc_addr;
  out.instance = shared.instance;
  out.physical_device = shared.physical_device;
  out.device = shared.device;
  out.queue = shared.queue;
  out.queue_family = shared.queue_family;
  out.buffer_addresses = shared.buffer_addresses != 0;
  out.matrix_units = shared.matrix_units != 0;
  if (shared.lock) out.lock = [f = shared.lock, p = shared.user_data] { f(p); };
  if (shared.unlock) out.unlock = [f = shared.unlock, p = shared.user_data] { f(p); };
  return out;
}

}  // namespace

void set_last_error(const char* message) noexcept {
  try {
    last_error() = as_utf8(message);
  } catch (...) {  // no memory for the message; this one is short enough to need none
    last_error() = "out of memory";
  }
}

void thread_ended_in(const std::string& function) noexcept {
  constexpr const char* kWhy =
      " has ended its thread (pthread_exit), which belongs to the library; return an error status "
      "instead. The process ends";
  try {
    log_line(LogLevel::error, function + kWhy);
  } catch (...) {  // the hook threw, or no memory: standard error gets the message all the same
  }
  std::fprintf(stderr, "EchoTrain: %s%s\n", function.c_str(), kWhy);
  std::abort();
}

char* copy_string(const std::string& text) {
  auto* out = static_cast<char*>(std::malloc(text.size() + 1));
  if (!out) throw std::bad_alloc();
  std::memcpy(out, text.c_str(), text.size() + 1);
  return out;
}

}  // namespace etr::capi

using namespace etr;
using namespace etr::capi;

const char* etr_version(void) { return ECHOTRAIN_VERSION; }
const char* etr_last_error(void) { return last_error().c_str(); }
const char* etr_status_name(int32_t status) { return code_name(static_cast<Code>(status)); }
void etr_string_free(char* text) { std::free(text); }

int32_t etr_log_subject(void) { return static_cast<int32_t>(log_subject()); }

int32_t etr_set_log_hook(etr_log_function function, void* user_data, void (*destroy)(void*)) {
  return guarded([&] {
    const std::shared_ptr<void> guard = owned(user_data, destroy);
    if (!function) return set_log_hook(nullptr);
    set_log_hook([function, guard](LogLevel level, const char* message) {
      function(guard.get(), static_cast<int32_t>(level), message);
    });
  });
}

int32_t etr_set_allocator(etr_allocate_function allocate, etr_release_function release,
                          void* user_data, void (*destroy)(void*)) {
  return guarded([&] {
    const std::shared_ptr<void> guard = owned(user_data, destroy);
    if (!allocate && !release) return set_allocator(nullptr);
    if (!allocate || !release)
      fail(Code::invalid_argument, "an allocator needs both functions, allocate and release");
    set_allocator(std::make_shared<const Allocator>(Allocator{
        [allocate, guard](size_t size, size_t alignment) {
          return allocate(guard.get(), size, alignment);
        },
        [release, guard](void* memory, size_t size) { release(guard.get(), memory, size); }}));
  });
}

int32_t etr_schema(const char* kind, char** json) {
  return guarded([&] {
    const std::string text = schema_of(&required(kind, "kind")).dump(1);
    hand_out(json, text, "json");
  });
}

int32_t etr_options_create(etr_options** options) {
  return guarded([&] { hand_out(options, std::make_unique<etr_options>(), "options"); });
}
int32_t etr_options_create_from_json(const char* json, etr_options** options) {
  return guarded([&] {
    auto made = std::make_unique<etr_options>();
    made->values = parse_json(&required(json, "json"), "the options' JSON");
    if (!made->values.is_object())
      fail(Code::invalid_argument, "options are a JSON object, not ", made->values.dump());
    hand_out(options, std::move(made), "options");
  });
}
void etr_options_destroy(etr_options* options) { destroy(options); }
int32_t etr_options_set_integer(etr_options* options, const char* name, int64_t value) {
  return set_option(options, name, value);
}
int32_t etr_options_set_number(etr_options* options, const char* name, double value) {
  return set_option(options, name, value);
}
int32_t etr_options_set_boolean(etr_options* options, const char* name, int32_t value) {
  return set_option(options, name, value != 0);
}
int32_t etr_options_set_string(etr_options* options, const char* name, const char* value) {
  return guarded([&] {
    const std::string text = &required(value, "value");
    if (!is_utf8(text))
      fail(Code::invalid_argument, "option '", &required(name, "name"), "': '", text,
           "' is not UTF-8");
    required(options, "options").values[&required(name, "name")] = text;
  });
}
int32_t etr_options_set_numbers(etr_options* options, const char* name, const double* values,
                                int64_t count) {
  return guarded([&] {
    if (count < 0) fail(Code::invalid_argument, "argument 'count' is ", count);
    if (count > 0) required(values, "values");
    required(options, "options").values[&required(name, "name")] =
        std::vector<double>(values, values + count);
  });
}

int32_t etr_device_count(int32_t* count) {
  return guarded(
      [&] { required(count, "count") = static_cast<int32_t>(gpu::list_devices().size()); });
}

int32_t etr_device_get(int32_t index, etr_device_info* info) {
  return guarded([&] {
    const auto devices = gpu::list_devices();
    if (index < 0 || static_cast<size_t>(index) >= devices.size())
      fail(Code::not_found, "there is no device ", index, "; there are ", devices.size());
    fill_struct(info, c_info(devices[static_cast<size_t>(index)]));
  });
}

int32_t etr_runtime_create(const etr_runtime_options* options, etr_runtime** runtime) {
  return guarded(
      [&] { hand_out(runtime, runtime_on(device_options(options), options), "runtime"); });
}
int32_t etr_runtime_create_shared(const etr_vulkan_device* vulkan,
                                  const etr_runtime_options* options, etr_runtime** runtime) {
  return guarded([&] {
    gpu::DeviceOptions with = device_options(options);
    with.host = host_device(required(vulkan, "vulkan"));
    hand_out(runtime, runtime_on(with, options), "runtime");
  });
}
void etr_runtime_destroy(etr_runtime* runtime) { destroy(runtime); }

int32_t etr_runtime_tune(etr_runtime* runtime, const char* path,
                         int32_t (*progress)(void*, int64_t, int64_t, const char*, const char*),
                         void* user_data) {
  return guarded([&] {
    gpu::Kernels& kernels = *required(runtime, "runtime").kernels;
    std::string target = path ? path_of(path, "path") : platform::cache_directory();
    if (!path) {
      if (target.empty())
        fail(Code::invalid_argument,
             "there is no cache directory to keep the tuning file in: give a path");
      platform::create_directories_synced(target);
      target += kTuningFile;
    }
    kernels.tuning().measure_into(target, kernels, [&](const gpu::Tuning::Progress& at) {
      return goes_on(progress, user_data, static_cast<int64_t>(at.done),
                     static_cast<int64_t>(at.total), at.problem.c_str(), at.choice.c_str());
    });
  });
}

int32_t etr_runtime_device(etr_runtime* runtime, etr_device_info* info) {
  return guarded(
      [&] { fill_struct(info, c_info(any_thread(runtime, "runtime").kernels->device()->info())); });
}

int32_t etr_prefer_wide_cpu_vectors(void) {
  return guarded([] { gpu::prefer_wide_cpu_vectors(); });
}

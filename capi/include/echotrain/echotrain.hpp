// EchoTrain for C++17 and later: echotrain.h with owned handles, exceptions and functions as
// stages.
//
// The header calls nothing but the C API, so a program also works with later versions of the
// library, as long as they have the functions that it uses (docs/compatibility.md). Objects own
// their handle; they are movable, not copyable. Failures are exceptions of type Error. The rules
// for threads, units, shapes and lifetimes are those of echotrain.h.
#ifndef ECHOTRAIN_ECHOTRAIN_HPP_
#define ECHOTRAIN_ECHOTRAIN_HPP_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#ifdef __GLIBCXX__
#include <cxxabi.h>
#endif

#include "echotrain/echotrain.h"

namespace echotrain {

// A failed call. status() is one of the negative ETR_ values of echotrain.h.
class Error : public std::runtime_error {
 public:
  Error(int32_t status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  int32_t status() const { return status_; }

 private:
  int32_t status_;
};

// Thrown by a Transport when ranks of its group are dead, frozen or unreachable; missing() lists
// them.
class RankLost : public Error {
 public:
  RankLost(const std::string& message, std::vector<int32_t> missing)
      : Error(ETR_RANK_LOST, message), missing_(std::move(missing)) {}
  const std::vector<int32_t>& missing() const { return missing_; }

 private:
  std::vector<int32_t> missing_;
};

// Throws Error for an error status; passes ETR_OK and ETR_END through.
inline int32_t check(int32_t status) {
  if (status < 0) throw Error(status, etr_last_error());
  return status;
}

namespace detail {

// Functions that are safe in a signal handler set no message.
inline void check_stop(int32_t status, const char* why) {
  if (status < 0) throw Error(status, why);
}

template <typename T, void (*destroy)(T*)>
struct Destroyer {
  void operator()(T* handle) const { destroy(handle); }
};
template <typename T, void (*destroy)(T*)>
using Handle = std::unique_ptr<T, Destroyer<T, destroy>>;

// Calls `make(&raw)` and takes ownership of the handle that it creates.
template <typename Owned, typename Make>
Owned made_by(Make&& make) {
  typename Owned::pointer raw = nullptr;
  check(make(&raw));
  return Owned(raw);
}

template <typename Make>
std::string text_by(Make&& make) {
  char* raw = nullptr;
  check(make(&raw));
  const std::unique_ptr<char, void (*)(char*)> owned(raw, etr_string_free);
  return owned.get();
}

// Returns `text` for a C function. Throws Error if it contains a NUL character, at which C would
// cut it off.
inline const char* c_string(const std::string& text, const char* name) {
  if (text.find('\0') != std::string::npos)
    throw Error(ETR_INVALID_ARGUMENT, std::string("argument '") + name +
                                          "' has a NUL character inside, where C would cut it off");
  return text.c_str();
}

// The latest exceptions that left functions of the program, with the reasons that were given to the
// library. Under on_error "skip" there may be many of them, and the pipeline goes on. If a call
// fails because of one of them, its message repeats the reason.
class Failures {
 public:
  // Keeps an exception and returns the reason to tell the library.
  std::string add(std::exception_ptr thrown) {
    std::string reason = reason_of(thrown);
    const std::lock_guard<std::mutex> lock(mutex_);
    kept_.emplace_back(reason, std::move(thrown));
    if (kept_.size() > kMost) kept_.pop_front();
    return reason;
  }
  // Does what check() does, but rethrows the program's own exception if `status` says that one of
  // its functions failed.
  int32_t check(int32_t status) const {
    rethrow(status);
    return echotrain::check(status);
  }
  void rethrow(int32_t status) const {
    if (status != ETR_CALLBACK) return;
    if (const std::exception_ptr thrown = find(etr_last_error())) std::rethrow_exception(thrown);
  }

 private:
  static constexpr size_t kMost = 64;
  static constexpr size_t kCompared = 900;  // messages of a transport are cut after 1023 bytes

  static std::string reason_of(const std::exception_ptr& thrown) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
      return *error.what() ? error.what() : "an exception without a message";
    } catch (...) {
      return "an exception that is not of std::exception";
    }
  }
  static bool repeats(const std::string& message, const std::string& reason) {
    if (message.find(reason) != std::string::npos) return true;
    std::string escaped;  // as the library shows bytes that are not UTF-8, such as those of Latin-1
    for (const char c : reason) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x80)
        escaped += c;
      else
        escaped.append("\\x").append(1, kHex[byte / 16]).append(1, kHex[byte % 16]);
    }
    return message.find(escaped) != std::string::npos;
  }
  // Returns the exception that `message` is about; nullptr if it is not known any more.
  std::exception_ptr find(const std::string& message) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::exception_ptr found;
    size_t most = 0;  // one reason may be a part of another, as "record 1" is of "record 12"
    for (const auto& [reason, thrown] : kept_)
      if (reason.size() >= most && repeats(message, reason.substr(0, kCompared))) {
        most = reason.size();
        found = thrown;
      }
    return found;
  }

  static constexpr char kHex[] = "0123456789ABCDEF";

  mutable std::mutex mutex_;
  std::deque<std::pair<std::string, std::exception_ptr>> kept_;
};

}  // namespace detail

// Returns the library's version, such as "0.1.0".
inline std::string version() { return etr_version(); }

// Returns the name of a status, such as "invalid argument".
inline std::string status_name(int32_t status) { return etr_status_name(status); }

// Speeds up training on a CPU device. Call it first in main(); see etr_prefer_wide_cpu_vectors.
inline void prefer_wide_cpu_vectors() { check(etr_prefer_wide_cpu_vectors()); }

enum class LogLevel : int32_t {
  debug = ETR_LOG_DEBUG,
  info = ETR_LOG_INFO,
  warning = ETR_LOG_WARNING,
  error = ETR_LOG_ERROR
};

// What a log line is about; see etr_log_subject.
enum class LogSubject : int32_t {
  other = ETR_LOG_ABOUT_OTHER,
  bad_record = ETR_LOG_ABOUT_BAD_RECORD,
  partition = ETR_LOG_ABOUT_PARTITION
};

// Receives the log lines of the whole process; see etr_set_log_hook. It is called on the thread
// that logs, one call at a time, and must not call the library. Its exceptions are dropped.
using LogFunction = std::function<void(LogLevel level, LogSubject subject, const char* message)>;

// Replaces the process's log function. An empty one, the default, drops all lines.
inline void set_log_hook(LogFunction function) {
  if (!function) {
    check(etr_set_log_hook(nullptr, nullptr, nullptr));
    return;
  }
  auto owned = std::make_unique<LogFunction>(std::move(function));
  check(etr_set_log_hook(
      [](void* hook, int32_t level, const char* message) {
        try {
          (*static_cast<LogFunction*>(hook))(static_cast<LogLevel>(level),
                                             static_cast<LogSubject>(etr_log_subject()), message);
        } catch (...) {
        }
      },
      owned.release(), [](void* hook) { delete static_cast<LogFunction*>(hook); }));
}

// Allocates the memory of samples and batches, for the whole process; see etr_set_allocator, whose
// arguments these are.
inline void set_allocator(etr_allocate_function allocate, etr_release_function release,
                          void* user_data = nullptr, void (*destroy)(void* user_data) = nullptr) {
  check(etr_set_allocator(allocate, release, user_data, destroy));
}

// Returns the options of "stages", "layers", "models", "optimizers", "job", "study" or "pack" as
// JSON; see etr_schema.
inline std::string schema(const std::string& kind) {
  return detail::text_by(
      [&](char** out) { return etr_schema(detail::c_string(kind, "kind"), out); });
}

// A set of named values: Options{{"factor", 2.5}, {"mode", "fixed"}}.
class Options {
 public:
  struct Value {
    template <typename T>
    static constexpr bool kIsNumber = std::is_convertible_v<T, int64_t> &&
                                      (std::is_arithmetic_v<T> || std::is_enum_v<T>);

    // A template, so that each type of number is taken as it is, and no pointer as a boolean.
    template <typename T, std::enable_if_t<kIsNumber<T>, int> = 0>
    Value(const char* key, T value) : name(key) {
      if constexpr (std::is_floating_point_v<T>) {
        kind = 'n';
        number = static_cast<double>(value);
      } else {
        kind = std::is_same_v<T, bool> ? 'b' : 'i';
        integer = static_cast<int64_t>(value);
        if (integer < 0 && value > T{})
          throw Error(ETR_INVALID_ARGUMENT, std::string("option '") + key + "' is " +
                                                std::to_string(static_cast<uint64_t>(value)) +
                                                "; an integer is at most 9223372036854775807");
      }
    }
    Value(const char* key, const char* value) : name(key), kind('s'), text(value) {}
    Value(const char* key, std::string value) : name(key), kind('s'), text(std::move(value)) {}
    Value(const char* key, std::vector<double> value)
        : name(key), kind('v'), numbers(std::move(value)) {}
    Value(const char* key, std::initializer_list<double> value)
        : name(key), kind('v'), numbers(value) {}

    const char* name;
    char kind;
    int64_t integer = 0;
    double number = 0;
    std::string text;
    std::vector<double> numbers;
  };

  Options() : handle_(detail::made_by<Owned>(etr_options_create)) {}
  Options(std::initializer_list<Value> values) : Options() {
    for (const Value& value : values) set(value);
  }
  static Options from_json(const std::string& json) {
    return Options(detail::made_by<Owned>([&](etr_options** out) {
      return etr_options_create_from_json(detail::c_string(json, "json"), out);
    }));
  }

  Options& set(const Value& v) {
    switch (v.kind) {
      case 'i': check(etr_options_set_integer(get(), v.name, v.integer)); break;
      case 'b': check(etr_options_set_boolean(get(), v.name, v.integer != 0)); break;
      case 'n': check(etr_options_set_number(get(), v.name, v.number)); break;
      case 's':
        check(etr_options_set_string(get(), v.name, detail::c_string(v.text, v.name)));
        break;
      default:
        check(etr_options_set_numbers(get(), v.name, v.numbers.data(),
                                      static_cast<int64_t>(v.numbers.size())));
    }
    return *this;
  }
  etr_options* get() const { return handle_.get(); }

 private:
  using Owned = detail::Handle<etr_options, etr_options_destroy>;
  explicit Options(Owned handle) : handle_(std::move(handle)) {}
  Owned handle_;
};

namespace detail {

// Calls a C function that reports its progress to `function`, which may be empty and returns false
// to stop. An exception that `function` throws stops the call and is rethrown here.
template <typename... Arguments>
class Progress {
 public:
  using Function = std::function<bool(Arguments...)>;

  template <typename Call>
  static void run(const Function& function, Call&& call) {
    Progress progress{function};
    const int32_t status = call(function ? report : nullptr, &progress);
    if (progress.thrown_) std::rethrow_exception(progress.thrown_);
    check(status);
  }
  template <typename Call>
  static std::string text_by(const Function& function, Call&& call) {
    struct Text {
      ~Text() { etr_string_free(raw); }
      char* raw = nullptr;
    } text;
    run(function, [&](auto report, void* self) { return call(report, self, &text.raw); });
    return text.raw;
  }

 private:
  explicit Progress(const Function& function) : function_(function) {}

  static int32_t report(void* self, Arguments... arguments) {
    auto& progress = *static_cast<Progress*>(self);
    try {
      return progress.function_(arguments...);
#ifdef __GLIBCXX__
    } catch (const abi::__forced_unwind&) {  // pthread_exit(): the library reports it
      throw;
#endif
    } catch (...) {
      progress.thrown_ = std::current_exception();
      return 0;
    }
  }

  const Function& function_;
  std::exception_ptr thrown_;
};

}  // namespace detail

// Packs the images root/CLASS/NAME into shards named `prefix`-*, and returns what etr_pack reports,
// as JSON. `options` are those of schema("pack").
inline std::string pack(const std::string& root, const std::string& prefix,
                        const Options& options = {},
                        const std::function<bool(int64_t done, int64_t total)>& progress = {}) {
  return detail::Progress<int64_t, int64_t>::text_by(
      progress, [&](auto report, void* self, char** json) {
        return etr_pack(detail::c_string(root, "root"), detail::c_string(prefix, "prefix"),
                        options.get(), report, self, json);
      });
}

// Finds good settings for a pipeline, given as JSON, by trying them, and returns them as JSON; see
// etr_pipeline_tune. `progress` receives the JSON of each trial.
inline std::string tune_pipeline(const std::string& spec, double seconds = 2, double step_ms = 0,
                                 const std::function<bool(const char* trial)>& progress = {}) {
  return detail::Progress<const char*>::text_by(progress, [&](auto report, void* self,
                                                              char** json) {
    return etr_pipeline_tune(detail::c_string(spec, "spec"), seconds, step_ms, report, self, json);
  });
}

// Explains the speed of a pipeline from its statistics, Pipeline::stats() or Run::pipeline_stats().
// `format` is "text", "svg" or "json"; see etr_pipeline_explain.
inline std::string explain_stats(const std::string& stats, const std::string& format = "text") {
  return detail::text_by([&](char** out) {
    return etr_explain_stats(detail::c_string(stats, "stats"), detail::c_string(format, "format"),
                             out);
  });
}

// A run for a report: its name, and the path of its metrics.jsonl or of the folder with that file.
// Runs of the same name are repetitions.
struct ReportedRun {
  std::string name, metrics_path;
};

// Compares runs in an HTML file and returns the table as JSON; see etr_report_write.
inline std::string write_report(const std::string& title, const std::vector<ReportedRun>& runs,
                                const std::string& html_path, double target_accuracy = 0) {
  std::vector<const char*> names, paths;
  for (const ReportedRun& run : runs) {
    names.push_back(detail::c_string(run.name, "name"));
    paths.push_back(detail::c_string(run.metrics_path, "metrics_path"));
  }
  return detail::text_by([&](char** json) {
    return etr_report_write(detail::c_string(title, "title"), names.data(), paths.data(),
                            static_cast<int32_t>(runs.size()), target_accuracy,
                            detail::c_string(html_path, "html_path"), json);
  });
}

// Lists the Vulkan devices: discrete GPUs first, CPU devices last.
inline std::vector<etr_device_info> devices() {
  int32_t count = 0;
  check(etr_device_count(&count));
  std::vector<etr_device_info> out(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    out[static_cast<size_t>(i)].struct_size = sizeof(etr_device_info);
    check(etr_device_get(i, &out[static_cast<size_t>(i)]));
  }
  return out;
}

// How a Runtime opens its device; see etr_runtime_options.
struct RuntimeOptions {
  std::string device;               // an index or part of a name; "": the first device
  uint64_t memory_limit_bytes = 0;  // 0: no limit
  std::optional<std::string> tuning = std::nullopt;  // the user's file, if it exists; "": none
  double hang_seconds = 0;
  int32_t kernels = ETR_KERNELS_AUTOMATIC;
  std::optional<std::string> cache_dir = std::nullopt;  // the user's; "": none
  bool validation = false, trust_driver = false;
};

// An open device with its kernels.
class Runtime {
 public:
  // Opens a device. `device` is an index or part of a name; "": the first device.
  // `memory_limit_bytes` is the most device memory to use; 0: no limit. `tuning` is a file that
  // tune() wrote; "": the user's file, if it exists. `hang_seconds`: see etr_runtime_options.
  explicit Runtime(const std::string& device = "", uint64_t memory_limit_bytes = 0,
                   const std::string& tuning = "", double hang_seconds = 0)
      : Runtime(RuntimeOptions{device, memory_limit_bytes,
                               tuning.empty() ? std::nullopt : std::optional<std::string>(tuning),
                               hang_seconds}) {}
  explicit Runtime(const RuntimeOptions& options) {
    const etr_runtime_options given = c_options(options);
    handle_ =
        detail::made_by<Owned>([&](etr_runtime** out) { return etr_runtime_create(&given, out); });
  }
  // Uses a Vulkan device of the program; see etr_runtime_create_shared.
  explicit Runtime(const etr_vulkan_device& shared, const RuntimeOptions& options = {}) {
    const etr_runtime_options given = c_options(options);
    handle_ = detail::made_by<Owned>(
        [&](etr_runtime** out) { return etr_runtime_create_shared(&shared, &given, out); });
  }
  etr_device_info device() const {
    etr_device_info info{};
    info.struct_size = sizeof info;
    check(etr_runtime_device(get(), &info));
    return info;
  }
  // Finds the fastest kernels for what the runtime's trainers have planned and writes them to
  // `path`; "": the user's file. `progress` (may be empty) is told of each product; if it returns
  // false, tuning ends early and what was measured is written. See etr_runtime_tune.
  void tune(const std::string& path = "",
            const std::function<bool(int64_t done, int64_t total, const char* product,
                                     const char* kernel)>& progress = {}) {
    detail::Progress<int64_t, int64_t, const char*, const char*>::run(
        progress, [&](auto report, void* self) {
          return etr_runtime_tune(get(), path.empty() ? nullptr : detail::c_string(path, "path"),
                                  report, self);
        });
  }
  etr_runtime* get() const { return handle_.get(); }

 private:
  using Owned = detail::Handle<etr_runtime, etr_runtime_destroy>;
  // The result refers to the strings of `options`.
  static etr_runtime_options c_options(const RuntimeOptions& options) {
    const auto text = [](const std::optional<std::string>& given, const char* name) {
      return given ? detail::c_string(*given, name) : nullptr;
    };
    etr_runtime_options out{};
    out.struct_size = sizeof out;
    out.device = detail::c_string(options.device, "device");
    out.memory_limit_bytes = options.memory_limit_bytes;
    out.tuning = text(options.tuning, "tuning");
    out.hang_seconds = options.hang_seconds;
    out.kernels = options.kernels;
    out.cache_dir = text(options.cache_dir, "cache_dir");
    out.validation = options.validation ? 1 : 0;
    out.trust_driver = options.trust_driver ? 1 : 0;
    return out;
  }
  Owned handle_;
};

// A view of a field; the batch owns the data.
struct TensorView {
  int32_t dtype = ETR_U8;
  std::vector<int64_t> shape;
  const void* data = nullptr;
  uint64_t size_bytes = 0;

  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
};

// Named tensors: a batch, or in a map function a single sample.
class Batch {
 public:
  Batch() : owned_(detail::made_by<Owned>(etr_batch_create)) {}
  // Takes ownership of `handle` unless it is `borrowed`.
  explicit Batch(etr_batch* handle, bool borrowed = false)
      : owned_(borrowed ? nullptr : handle), borrowed_(borrowed ? handle : nullptr) {}

  etr_batch_info info() const {
    etr_batch_info out{};
    out.struct_size = sizeof out;
    check(etr_batch_get_info(get(), &out));
    return out;
  }
  // Returns the names of the fields in host memory.
  std::vector<std::string> fields() const {
    std::vector<std::string> out;
    const int32_t count = info().fields;
    for (int32_t i = 0; i < count; ++i) {
      const char* name = nullptr;
      check(etr_batch_field_name(get(), i, &name));
      out.emplace_back(name);
    }
    return out;
  }
  // Returns a field without a copy; see etr_batch_get for its lifetime.
  TensorView operator[](const std::string& field) const {
    etr_tensor t{};
    t.struct_size = sizeof t;
    check(etr_batch_get(get(), detail::c_string(field, "field"), &t));
    return {t.dtype, {t.shape, t.shape + t.rank}, t.data, t.size_bytes};
  }

  // Sets a field to a copy of `values`, as many as `shape` has elements.
  template <typename T>
  void set(const std::string& field, const T* values, const std::vector<int64_t>& shape) {
    const etr_tensor t = tensor(values, shape);
    check(etr_batch_set(get(), detail::c_string(field, "field"), &t));
  }
  // Sets a field without a copy; `owner` keeps the values alive.
  template <typename T>
  void wrap(const std::string& field, const T* values, const std::vector<int64_t>& shape,
            std::shared_ptr<const void> owner) {
    const etr_tensor t = tensor(values, shape);
    auto kept = std::make_unique<std::shared_ptr<const void>>(std::move(owner));
    const char* const c_field = detail::c_string(field, "field");  // before it is released
    check(etr_batch_wrap(get(), c_field, &t, release_owner, kept.release()));
  }
  // Sets a field to the contents of a VkBuffer; `owner` is kept until they are no longer read. See
  // etr_batch_wrap_vulkan.
  void wrap(const std::string& field, const etr_vulkan_buffer& buffer,
            std::shared_ptr<const void> owner) {
    auto kept = std::make_unique<std::shared_ptr<const void>>(std::move(owner));
    const char* const c_field = detail::c_string(field, "field");
    check(etr_batch_wrap_vulkan(get(), c_field, &buffer, release_owner, kept.release()));
  }
  // Returns a field as a DLManagedTensor, which the caller deletes; see etr_batch_to_dlpack.
  void* to_dlpack(const std::string& field) const {
    void* managed = nullptr;
    check(etr_batch_to_dlpack(get(), detail::c_string(field, "field"), &managed));
    return managed;
  }
  // Sets a field to a DLManagedTensor, which the batch then owns; see etr_batch_set_dlpack.
  void set_dlpack(const std::string& field, void* managed) {
    check(etr_batch_set_dlpack(get(), detail::c_string(field, "field"), managed));
  }
  void remove(const std::string& field) {
    check(etr_batch_remove(get(), detail::c_string(field, "field")));
  }
  etr_batch* get() const { return owned_ ? owned_.get() : borrowed_; }

 private:
  static void release_owner(void* owner) {
    delete static_cast<std::shared_ptr<const void>*>(owner);
  }
  template <typename T>
  static etr_tensor tensor(const T* values, const std::vector<int64_t>& shape) {
    static_assert(std::is_same_v<T, uint8_t> || std::is_same_v<T, uint16_t> ||
                      std::is_same_v<T, int32_t> || std::is_same_v<T, float>,
                  "fields hold uint8_t, uint16_t, int32_t or float");
    if (shape.size() > ETR_MAX_RANK) throw Error(ETR_UNSUPPORTED, "too many axes");
    etr_tensor t{};
    t.struct_size = sizeof t;
    t.dtype = std::is_same_v<T, uint8_t>    ? ETR_U8
              : std::is_same_v<T, uint16_t> ? ETR_U16
              : std::is_same_v<T, int32_t>  ? ETR_I32
                                            : ETR_F32;
    t.rank = static_cast<int32_t>(shape.size());
    t.size_bytes = sizeof(T);
    for (size_t i = 0; i < shape.size(); ++i) {
      t.shape[i] = shape[i];
      t.size_bytes *= static_cast<uint64_t>(shape[i]);
    }
    t.data = values;
    return t;
  }

  using Owned = detail::Handle<etr_batch, etr_batch_destroy>;
  Owned owned_;
  etr_batch* borrowed_ = nullptr;
};

// A sequence of stages that delivers batches.
class Pipeline {
 public:
  // Creates an empty pipeline. `options` are those of the job section "pipeline": threads, seed,
  // epochs, on_error and so on.
  explicit Pipeline(const Options& options = {})
      : handle_(detail::made_by<Owned>(
            [&](etr_pipeline** out) { return etr_pipeline_create(options.get(), out); })),
        failures_(std::make_shared<detail::Failures>()) {}
  // Creates a whole pipeline; see etr_pipeline_create_from_json.
  static Pipeline from_json(const std::string& json) {
    return Pipeline(detail::made_by<Owned>([&](etr_pipeline** out) {
      return etr_pipeline_create_from_json(detail::c_string(json, "json"), out);
    }));
  }

  // Appends a stage; the first one is a source.
  Pipeline& add(const std::string& stage, const Options& options = {}) {
    check(etr_pipeline_add(get(), detail::c_string(stage, "stage"), options.get()));
    return *this;
  }

  // Appends a function of the program as a stage; see etr_pipeline_add_map. An exception that it
  // throws ends the run or drops the record, as `on_error` says; if it ends the run, next() and
  // Trainer::evaluate() rethrow it.
  Pipeline& map(const std::string& name, std::function<void(Batch&)> function) {
    if (!function) throw Error(ETR_INVALID_ARGUMENT, "the map function '" + name + "' is empty");
    auto goes_on = [f = std::move(function)](Batch& item) {
      f(item);
      return true;
    };
    auto call = std::make_unique<MapCall>(MapCall{std::move(goes_on), failures_});
    const char* const c_name = detail::c_string(name, "name");
    check(etr_pipeline_add_map(get(), c_name, &Pipeline::call, call.release(),
                               [](void* p) { delete static_cast<MapCall*>(p); }));
    return *this;
  }

  // Adds a function of the program as the source; see etr_pipeline_add_source. It sets the fields
  // of a sample and returns true, or returns false at the end of a pass.
  Pipeline& source(const std::string& name, std::function<bool(Batch&)> function) {
    if (!function) throw Error(ETR_INVALID_ARGUMENT, "the source function '" + name + "' is empty");
    auto call = std::make_unique<MapCall>(MapCall{std::move(function), failures_});
    const char* const c_name = detail::c_string(name, "name");
    check(etr_pipeline_add_source(get(), c_name, &Pipeline::call, call.release(),
                                  [](void* p) { delete static_cast<MapCall*>(p); }));
    return *this;
  }

  // Waits for the next batch and returns it; nullopt at the end of each epoch. The next call
  // continues with the next epoch; after the last one it returns nullopt at once.
  std::optional<Batch> next() {
    etr_batch* batch = nullptr;
    if (failures_->check(etr_pipeline_next(get(), &batch)) == ETR_END) return std::nullopt;
    return Batch(batch);
  }

  // Waits until next() would not block, for at most `seconds`; false if it still would.
  bool wait(double seconds) { return check(etr_pipeline_wait(get(), seconds)) == ETR_OK; }

  // Returns the number of batches in the epoch of the next batch; nullopt if it is not known.
  std::optional<int64_t> length() const {
    int64_t batches = 0;
    check(etr_pipeline_length(get(), &batches));
    return batches < 0 ? std::nullopt : std::optional<int64_t>(batches);
  }

  // Stops all work; a blocked next() throws Error(ETR_CANCELLED). Any thread.
  void cancel() { check(etr_pipeline_cancel(get())); }
  // Returns statistics as JSON. Any thread.
  std::string stats() const {
    return detail::text_by([&](char** out) { return etr_pipeline_stats(get(), out); });
  }
  // Explains the pipeline's speed; see etr_pipeline_explain. `format`: "text", "svg" or "json". Any
  // thread.
  std::string explain(const std::string& format = "text") const {
    return detail::text_by([&](char** out) {
      return etr_pipeline_explain(get(), detail::c_string(format, "format"), out);
    });
  }
  // Returns a Chrome trace of the pipeline's work; see etr_pipeline_trace.
  std::string trace() const {
    return detail::text_by([&](char** out) { return etr_pipeline_trace(get(), out); });
  }
  // Returns the bad records that were tolerated as JSON. Any thread.
  std::string bad_records() const {
    return detail::text_by([&](char** out) { return etr_pipeline_bad_records(get(), out); });
  }
  // Returns the position after the last batch that was read as JSON; see etr_pipeline_save.
  std::string save() const {
    return detail::text_by([&](char** out) { return etr_pipeline_save(get(), out); });
  }
  // Continues from a position that save() returned, before the first batch.
  void restore(const std::string& state) {
    check(etr_pipeline_restore(get(), detail::c_string(state, "state")));
  }
  etr_pipeline* get() const { return handle_.get(); }

 private:
  using Owned = detail::Handle<etr_pipeline, etr_pipeline_destroy>;
  friend class Trainer;
  struct MapCall {
    std::function<bool(Batch&)> function;  // returns false if a source's pass is over
    std::shared_ptr<detail::Failures> failures;
  };

  explicit Pipeline(Owned handle)
      : handle_(std::move(handle)), failures_(std::make_shared<detail::Failures>()) {}

  static int32_t call(void* user_data, etr_batch* item) {
    auto* map = static_cast<MapCall*>(user_data);
    try {
      Batch view(item, /*borrowed=*/true);
      return map->function(view) ? ETR_OK : ETR_END;
#ifdef __GLIBCXX__
    } catch (const abi::__forced_unwind&) {  // pthread_exit(): the library reports it
      throw;
#endif
    } catch (...) {
      etr_batch_fail(item, map->failures->add(std::current_exception()).c_str());
      return ETR_CALLBACK;
    }
  }

  Owned handle_;
  std::shared_ptr<detail::Failures> failures_;
};

// A description of a model: layers and a loss.
class Model {
 public:
  Model() : handle_(detail::made_by<Owned>(etr_model_create)) {}
  // Creates a model from JSON in the form that jobs use; see etr_model_create_from_json.
  explicit Model(const std::string& json)
      : handle_(detail::made_by<Owned>([&](etr_model** out) {
          return etr_model_create_from_json(detail::c_string(json, "json"), out);
        })) {}
  // Creates a model from an ONNX file, with its weights; see etr_model_create_from_onnx.
  static Model from_onnx(const std::string& path) {
    return Model(detail::made_by<Owned>([&](etr_model** out) {
      return etr_model_create_from_onnx(detail::c_string(path, "path"), out);
    }));
  }
  // Appends a layer.
  Model& add(const std::string& layer, const Options& options = {}) {
    check(etr_model_add(get(), detail::c_string(layer, "layer"), options.get()));
    return *this;
  }
  // Sets the loss; see etr_model_set_loss.
  Model& loss(const std::string& loss, const Options& options = {}) {
    check(etr_model_set_loss(get(), detail::c_string(loss, "loss"), options.get()));
    return *this;
  }
  // Freezes the parameters whose names match, such as "conv2d_1.*"; see etr_model_freeze.
  Model& freeze(const std::string& pattern) {
    check(etr_model_freeze(get(), detail::c_string(pattern, "pattern")));
    return *this;
  }
  // Adds low-rank adapters and freezes all other parameters; see etr_model_set_lora.
  Model& lora(const Options& options) {
    check(etr_model_set_lora(get(), options.get()));
    return *this;
  }
  // Keeps frozen weights of products in 8 or 4 bits; see etr_model_quantize.
  Model& quantize(int32_t bits) {
    check(etr_model_quantize(get(), bits));
    return *this;
  }
  // Lists layers, shapes and parameters for samples of the shapes in `fields`, such as
  // {"image": [28, 28, 1]}. `format`: "text" or "json". See etr_model_summary.
  std::string summary(const std::string& fields, const std::string& format = "text") const {
    return detail::text_by([&](char** out) {
      return etr_model_summary(get(), detail::c_string(fields, "fields"),
                               detail::c_string(format, "format"), out);
    });
  }
  // Returns the model as JSON; a ready-made model is written with all its layers.
  std::string json() const {
    return detail::text_by([&](char** out) { return etr_model_json(get(), out); });
  }
  etr_model* get() const { return handle_.get(); }

 private:
  using Owned = detail::Handle<etr_model, etr_model_destroy>;
  explicit Model(Owned handle) : handle_(std::move(handle)) {}
  Owned handle_;
};

// A description of an optimizer with its learning rate schedule.
class Optimizer {
 public:
  // `schedule` holds learning_rate and the other options of the job section "schedule".
  Optimizer(const std::string& name, const Options& options, const Options& schedule)
      : handle_(detail::made_by<Owned>([&](etr_optimizer** out) {
          return etr_optimizer_create(detail::c_string(name, "name"), options.get(), schedule.get(),
                                      out);
        })) {}
  etr_optimizer* get() const { return handle_.get(); }

 private:
  using Owned = detail::Handle<etr_optimizer, etr_optimizer_destroy>;
  Owned handle_;
};

// A job from a file or from JSON text; `overrides` are strings "key=value".
class Job {
 public:
  static Job load(const std::string& path, const std::vector<std::string>& overrides = {}) {
    return Job(path, overrides, etr_job_load);
  }
  static Job parse(const std::string& json, const std::vector<std::string>& overrides = {}) {
    return Job(json, overrides, etr_job_parse);
  }
  std::string json() const {
    return detail::text_by([&](char** out) { return etr_job_json(get(), out); });
  }
  // Returns the folder that a run writes into; "": the job says that nothing is written; nullopt:
  // the job does not say, and nothing is written.
  std::optional<std::string> output_dir() const {
    char* text = nullptr;
    check(etr_job_output_dir(get(), &text));
    const std::unique_ptr<char, void (*)(char*)> owned(text, etr_string_free);
    return text ? std::optional<std::string>(text) : std::nullopt;
  }
  // Measures the job and advises on echoing; see etr_job_advise. `goes_on` (may be empty) is told
  // what is being done; if it returns false, advise() throws Error(ETR_CANCELLED). An exception
  // that it throws is rethrown.
  std::string advise(const Runtime& runtime, double seconds = 3, bool check = false,
                     const std::function<bool(const std::string&)>& goes_on = {}) const {
    return detail::Progress<const char*>::text_by(
        goes_on, [&](auto report, void* self, char** out) {
          return etr_job_advise(runtime.get(), get(), seconds, check ? 1 : 0, report, self, out);
        });
  }
  etr_job* get() const { return handle_.get(); }

 private:
  using Owned = detail::Handle<etr_job, etr_job_destroy>;
  template <typename Make>
  Job(const std::string& source, const std::vector<std::string>& overrides, Make make) {
    std::vector<const char*> texts;
    for (const std::string& text : overrides) texts.push_back(detail::c_string(text, "overrides"));
    handle_ = detail::made_by<Owned>([&](etr_job** out) {
      return make(detail::c_string(source, "source"), texts.data(),
                  static_cast<int32_t>(texts.size()), out);
    });
  }
  Owned handle_;
};

// One shard of a job's parameter server; see etr_server.
class Server {
 public:
  Server(const Job& job, int32_t shard)
      : handle_(detail::made_by<Owned>(
            [&](etr_server** out) { return etr_server_start(job.get(), shard, out); })) {}
  // Waits for at most `seconds`; returns whether the run is over. `status` (may be nullptr) is
  // filled in any case. See etr_server_wait.
  bool wait(double seconds, etr_server_status* status = nullptr) {
    if (status) status->struct_size = sizeof *status;
    return check(etr_server_wait(get(), seconds, status)) == ETR_END;
  }
  // Stops the shard. Any thread.
  void stop() { check(etr_server_stop(get())); }
  etr_server* get() const { return handle_.get(); }

 private:
  using Owned = detail::Handle<etr_server, etr_server_destroy>;
  Owned handle_;
};

// A study: many trials of jobs that compare conditions; see the section on studies in echotrain.h.
// Events and results are JSON.
class Study {
 public:
  // Reads a study file. `overrides` are strings "key=value" for the jobs of all trials.
  static Study load(const std::string& path, const std::vector<std::string>& overrides = {}) {
    std::vector<const char*> texts;
    for (const std::string& text : overrides) texts.push_back(detail::c_string(text, "overrides"));
    return Study(detail::made_by<Owned>([&](etr_study** out) {
      return etr_study_load(detail::c_string(path, "path"), texts.data(),
                            static_cast<int32_t>(texts.size()), out);
    }));
  }
  std::string json() const {
    return detail::text_by([&](char** out) { return etr_study_json(get(), out); });
  }
  std::string output_dir() const {
    return detail::text_by([&](char** out) { return etr_study_output_dir(get(), out); });
  }
  // Prepares the study to run; see etr_study_start. `directory`: where it writes; "": output_dir().
  // `parallel`: how many trials run at once; 0: as many as the device has room for, -1: as the
  // study says.
  void start(const Runtime& runtime, const std::string& directory = "", int32_t parallel = -1,
             bool overwrite = false) {
    check(etr_study_start(get(), runtime.get(), folder(directory), parallel, overwrite));
  }
  // Waits for an event, for at most `seconds`; nullopt after the event "end". See
  // etr_study_next_event.
  std::optional<std::string> next_event(double seconds) {
    char* text = nullptr;
    if (check(etr_study_next_event(get(), seconds, &text)) == ETR_END) return std::nullopt;
    const std::unique_ptr<char, void (*)(char*)> owned(text, etr_string_free);
    return std::string(text);
  }
  // Ends the study soon. Any thread.
  void stop() { detail::check_stop(etr_study_stop(get()), "the study was not started"); }
  // Returns the results by condition, from the records in `directory` ("": that of start(), and
  // before it output_dir()); see etr_study_results. Any thread.
  std::string results(const std::string& directory = "") const {
    return detail::text_by(
        [&](char** out) { return etr_study_results(get(), folder(directory), out); });
  }
  // Writes the report, its tables and figures from the same records; see etr_study_write_report.
  // Any thread.
  void write_report(const std::string& directory = "") const {
    check(etr_study_write_report(get(), folder(directory)));
  }
  etr_study* get() const { return handle_.get(); }

 private:
  using Owned = detail::Handle<etr_study, etr_study_destroy>;
  explicit Study(Owned handle) : handle_(std::move(handle)) {}
  static const char* folder(const std::string& directory) {
    return directory.empty() ? nullptr : detail::c_string(directory, "directory");
  }
  Owned handle_;
};

// How a run begins; see ETR_START_NEW to ETR_START_TRIAL.
enum class Start : int32_t {
  new_run = ETR_START_NEW,
  fresh [[deprecated("use new_run")]] = ETR_START_NEW,
  resume = ETR_START_RESUME,
  overwrite = ETR_START_OVERWRITE,
  evaluate = ETR_START_EVALUATE,
  trial = ETR_START_TRIAL
};

// One rank's end of a group of processes, over a transport of the program. The functions and their
// contract are those of echotrain/engine.h, except that failures are exceptions: RankLost, another
// Error, or an exception of any other type, which the run's call then rethrows. After a failure
// only abort() and the destructor are called. A function that is not overridden counts as missing.
class Transport {
 public:
  // Waits until the other ranks have received what this one sent.
  virtual ~Transport() = default;
  virtual int32_t rank() const = 0;
  virtual int32_t size() const = 0;

  virtual void all_reduce(void* /*data*/, uint64_t /*count*/, int32_t /*number*/,
                          int32_t /*reduction*/, double /*timeout_s*/) {
    lacks("all_reduce");
  }
  virtual void reduce_scatter(const void* /*data*/, const uint64_t* /*counts*/, void* /*part*/,
                              int32_t /*number*/, int32_t /*reduction*/, double /*timeout_s*/) {
    lacks("reduce_scatter");
  }
  virtual void all_gather(const void* /*part*/, const uint64_t* /*sizes*/, void* /*data*/,
                          double /*timeout_s*/) {
    lacks("all_gather");
  }
  virtual void broadcast(void* /*data*/, uint64_t /*size_bytes*/, int32_t /*root*/,
                         double /*timeout_s*/) {
    lacks("broadcast");
  }
  virtual void barrier(double /*timeout_s*/) { lacks("barrier"); }
  virtual void send(const void* /*data*/, uint64_t /*size_bytes*/, int32_t /*to*/, uint32_t /*tag*/,
                    double /*timeout_s*/) {
    lacks("send");
  }
  virtual void receive(void* /*data*/, uint64_t /*size_bytes*/, int32_t /*from*/, uint32_t /*tag*/,
                       double /*timeout_s*/) {
    lacks("receive");
  }
  // Returns nullptr for a rank whose colour is negative.
  virtual std::unique_ptr<Transport> split(int32_t /*colour*/, int32_t /*key*/,
                                           double /*timeout_s*/) {
    lacks("split");
  }
  // Called on any thread, also while another function waits.
  virtual void abort(const std::string& reason) = 0;

 protected:
  [[noreturn]] static void lacks(const char* function) {
    throw Error(ETR_UNSUPPORTED, std::string("the transport has no function ") + function);
  }
};

namespace detail {

// Makes the C API's table of functions, which owns the Transport that it calls.
class Engine {
 public:
  static etr_engine table_of(std::unique_ptr<Transport> transport,
                             std::shared_ptr<Failures> failures) {
    etr_engine table{};
    table.struct_size = sizeof table;
    table.rank = transport->rank();
    table.size = transport->size();
    table.all_reduce = [](void* c, void* data, uint64_t count, int32_t number, int32_t reduction,
                          double timeout, etr_engine_error* error) {
      return call(c, error,
                  [&](Transport& t) { t.all_reduce(data, count, number, reduction, timeout); });
    };
    table.reduce_scatter = [](void* c, const void* data, const uint64_t* counts, void* part,
                              int32_t number, int32_t reduction, double timeout,
                              etr_engine_error* error) {
      return call(c, error, [&](Transport& t) {
        t.reduce_scatter(data, counts, part, number, reduction, timeout);
      });
    };
    table.all_gather = [](void* c, const void* part, const uint64_t* sizes, void* data,
                          double timeout, etr_engine_error* error) {
      return call(c, error, [&](Transport& t) { t.all_gather(part, sizes, data, timeout); });
    };
    table.broadcast = [](void* c, void* data, uint64_t size_bytes, int32_t root, double timeout,
                         etr_engine_error* error) {
      return call(c, error, [&](Transport& t) { t.broadcast(data, size_bytes, root, timeout); });
    };
    table.barrier = [](void* c, double timeout, etr_engine_error* error) {
      return call(c, error, [&](Transport& t) { t.barrier(timeout); });
    };
    table.send = [](void* c, const void* data, uint64_t size_bytes, int32_t to, uint32_t tag,
                    double timeout, etr_engine_error* error) {
      return call(c, error, [&](Transport& t) { t.send(data, size_bytes, to, tag, timeout); });
    };
    table.receive = [](void* c, void* data, uint64_t size_bytes, int32_t from, uint32_t tag,
                       double timeout, etr_engine_error* error) {
      return call(c, error, [&](Transport& t) { t.receive(data, size_bytes, from, tag, timeout); });
    };
    table.split = [](void* c, int32_t colour, int32_t key, double timeout, etr_engine* part,
                     etr_engine_error* error) {
      return call(c, error, [&](Transport& t) {
        *part = etr_engine{};
        part->struct_size = sizeof *part;
        if (auto made = t.split(colour, key, timeout))
          *part = table_of(std::move(made), static_cast<Engine*>(c)->failures_);
      });
    };
    table.abort = [](void* c, const char* reason) {
      etr_engine_error ignored{};
      call(c, &ignored, [&](Transport& t) { t.abort(reason ? reason : ""); });
    };
    table.destroy = [](void* c) { delete static_cast<Engine*>(c); };
    table.context = new Engine(std::move(transport), std::move(failures));
    return table;
  }

 private:
  Engine(std::unique_ptr<Transport> transport, std::shared_ptr<Failures> failures)
      : transport_(std::move(transport)), failures_(std::move(failures)) {}

  template <typename Call>
  static int32_t call(void* engine, etr_engine_error* error, Call&& run) {
    auto& self = *static_cast<Engine*>(engine);
    try {
      run(*self.transport_);
      return ETR_OK;
#ifdef __GLIBCXX__
    } catch (const abi::__forced_unwind&) {  // pthread_exit(), which must not be stopped
      throw;
#endif
    } catch (const RankLost& lost) {
      error->missing_count = static_cast<int32_t>(lost.missing().size());
      const size_t listed = std::min<size_t>(lost.missing().size(), ETR_ENGINE_MISSING_MAX);
      std::copy_n(lost.missing().begin(), listed, error->missing);
      return tell(lost.what(), ETR_RANK_LOST, error);
    } catch (const Error& failed) {
      return tell(failed.what(), failed.status(), error);
    } catch (...) {
      return tell(self.failures_->add(std::current_exception()), ETR_CALLBACK, error);
    }
  }
  static int32_t tell(const std::string& message, int32_t status, etr_engine_error* error) {
    error->message[message.copy(error->message, sizeof error->message - 1)] = '\0';
    return status < 0 ? status : int32_t{ETR_CALLBACK};
  }

  std::unique_ptr<Transport> transport_;
  std::shared_ptr<Failures> failures_;
};

}  // namespace detail

namespace detail {

// A function that is told the progress of evaluations. Keeps its exception, and lets it propagate
// into the library, whose call then returns ETR_CALLBACK.
class EvaluationProgress {
 public:
  using Function = std::function<bool(int64_t done, int64_t batches)>;

  // Calls `set`, which is etr_run_on_evaluation or etr_trainer_on_evaluation, on `handle`.
  template <typename T>
  static void give(int32_t (*set)(T*, int32_t (*)(void*, int64_t, int64_t), void*, void (*)(void*)),
                   T* handle, Function function, const std::shared_ptr<Failures>& failures) {
    if (!function) {
      echotrain::check(set(handle, nullptr, nullptr, nullptr));
      return;
    }
    std::unique_ptr<EvaluationProgress> call(new EvaluationProgress(std::move(function), failures));
    echotrain::check(set(
        handle,
        [](void* p, int64_t done, int64_t batches) -> int32_t {
          return static_cast<EvaluationProgress*>(p)->report(done, batches);
        },
        call.release(), [](void* p) { delete static_cast<EvaluationProgress*>(p); }));
  }

 private:
  EvaluationProgress(Function function, std::shared_ptr<Failures> failures)
      : function_(std::move(function)), failures_(std::move(failures)) {}

  bool report(int64_t done, int64_t batches) const {
    try {
      return function_(done, batches);
#ifdef __GLIBCXX__
    } catch (const abi::__forced_unwind&) {  // pthread_exit(): the library reports it
      throw;
#endif
    } catch (...) {
      throw std::runtime_error(failures_->add(std::current_exception()));
    }
  }

  const Function function_;
  const std::shared_ptr<Failures> failures_;
};

}  // namespace detail

// Members that call deprecated functions of echotrain.h are themselves deprecated; programs that do
// not call them should get no warning.
#if defined(_MSC_VER)
#define ETR_DETAIL_DEPRECATED_BEGIN __pragma(warning(push)) __pragma(warning(disable : 4996))
#define ETR_DETAIL_DEPRECATED_END __pragma(warning(pop))
#elif defined(__GNUC__)
#define ETR_DETAIL_DEPRECATED_BEGIN \
  _Pragma("GCC diagnostic push") _Pragma("GCC diagnostic ignored \"-Wdeprecated-declarations\"")
#define ETR_DETAIL_DEPRECATED_END _Pragma("GCC diagnostic pop")
#else
#define ETR_DETAIL_DEPRECATED_BEGIN
#define ETR_DETAIL_DEPRECATED_END
#endif

// A model with its weights and its optimizer on a device, for a custom training loop or, from
// Run::trainer(), that of a run. A run makes its own steps: its trainer throws Error(ETR_STATE) in
// step(), result(), forward(), backward(), update(), gradients() and profile().
class Trainer {
 public:
  Trainer(const Runtime& runtime, const Model& model, const Optimizer& optimizer, uint64_t seed = 0,
          int64_t total_steps = 0)
      : handle_(detail::made_by<Owned>([&](etr_trainer** out) {
          return etr_trainer_create(runtime.get(), model.get(), optimizer.get(), seed, total_steps,
                                    out);
        })) {}

  // Starts a training step and returns while the device works. Take the results in the loop: only
  // result() reports a loss that is not finite.
  void step(const Batch& batch) { check(etr_trainer_step(get(), batch.get())); }

  // Returns the oldest finished step that has not been returned yet; nullopt if there is none. With
  // `wait` it first waits for a step in flight.
  std::optional<etr_step_result> result(bool wait) {
    etr_step_result out{};
    out.struct_size = sizeof out;
    if (check(etr_trainer_result(get(), wait, &out)) == ETR_END) return std::nullopt;
    return out;
  }
  // A step can be made pass by pass: any number of forward() and backward(), and one update(). Runs
  // the model in training mode and returns the field "output"; see etr_trainer_forward.
  Batch forward(const Batch& batch, bool input_gradients = false) {
    return made_batch([&](etr_batch** out) {
      return etr_trainer_forward(get(), batch.get(), input_gradients ? 1 : 0, out);
    });
  }
  // Computes gradients from the gradient of the latest output; see etr_trainer_backward.
  void backward(const Batch& output_gradient, bool accumulate = false) {
    check(etr_trainer_backward(get(), output_gradient.get(), accumulate ? 1 : 0, nullptr));
  }
  // Computes gradients as backward() does, after forward() with `input_gradients`, and returns
  // those of the inputs.
  Batch backward_to_inputs(const Batch& output_gradient, bool accumulate = false) {
    return made_batch([&](etr_batch** out) {
      return etr_trainer_backward(get(), output_gradient.get(), accumulate ? 1 : 0, out);
    });
  }
  // Updates the weights with the gradients; see etr_trainer_update.
  etr_step_result update() {
    etr_step_result out{};
    out.struct_size = sizeof out;
    check(etr_trainer_update(get(), &out));
    return out;
  }
  // Returns the gradients since the last update; `name` selects one of them, "" all.
  Batch gradients(const std::string& name = "") const {
    return made_batch([&](etr_batch** out) {
      return etr_trainer_get_gradients(
          get(), name.empty() ? nullptr : detail::c_string(name, "name"), out);
    });
  }
  // Replaces the gradients that are fields of `gradients`.
  void set_gradients(const Batch& gradients) {
    check(etr_trainer_set_gradients(get(), gradients.get()));
  }

  // Evaluates an epoch of `pipeline`; see etr_trainer_evaluate. Rethrows an exception of a function
  // of the pipeline.
  etr_eval_result evaluate(Pipeline& pipeline) {
    return evaluate(pipeline.get(), pipeline.failures_.get());
  }
  // Sets the function that is called after each batch of an evaluation with the number of batches
  // done and their total (-1: not known). Returning false stops the evaluation. An exception ends
  // it, too, and is rethrown by evaluate(). An empty function removes the callback.
  // See etr_trainer_on_evaluation.
  void on_evaluation(std::function<bool(int64_t done, int64_t batches)> progress) {
    detail::EvaluationProgress::give(etr_trainer_on_evaluation, get(), std::move(progress),
                                     failures_);
  }
  // Returns the model's outputs for `batch` as the field "output"; see etr_trainer_predict.
  Batch predict(const Batch& batch) {
    return made_batch(
        [&](etr_batch** out) { return etr_trainer_predict(get(), batch.get(), out); });
  }
  // Writes the outputs to a VkBuffer; see etr_trainer_predict_vulkan.
  void predict(const Batch& batch, const etr_vulkan_buffer& output) {
    check(etr_trainer_predict_vulkan(get(), batch.get(), &output));
  }
  // Decodes a detector's outputs, as returned by predict(), into boxes; see etr_detections.
  static Batch detections(const Batch& outputs, double score_threshold = 0.5,
                          double iou_threshold = 0.45, int32_t max_detections = 100) {
    return made_batch([&](etr_batch** out) {
      return etr_detections(outputs.get(), score_threshold, iou_threshold, max_detections, out);
    });
  }
  // Returns parameters and running statistics as fields of a batch; `name` selects one of them, ""
  // all.
  Batch weights(const std::string& name = "") const {
    return made_batch([&](etr_batch** out) {
      return etr_trainer_get_weights(get(), name.empty() ? nullptr : detail::c_string(name, "name"),
                                     out);
    });
  }
  // Replaces the parameters and running statistics that are fields of `weights`.
  void set_weights(const Batch& weights) { check(etr_trainer_set_weights(get(), weights.get())); }
  // Changes a hyperparameter of the optimizer or the loss from the next step on: "momentum",
  // "weight_decay", "label_smoothing" and so on. See etr_trainer_set_hyperparameter.
  void set_hyperparameter(const std::string& name, double value) {
    check(etr_trainer_set_hyperparameter(get(), detail::c_string(name, "name"), value));
  }
  // Lists layers, shapes and parameters. `format`: "text" or "json". See etr_trainer_summary.
  std::string summary(const std::string& format = "text") const {
    return detail::text_by([&](char** out) {
      return etr_trainer_summary(get(), detail::c_string(format, "format"), out);
    });
  }
  // Saves a checkpoint; see etr_trainer_save.
  void save(const std::string& directory) {
    check(etr_trainer_save(get(), detail::c_string(directory, "directory")));
  }
  // Exports the model as an ONNX file; see etr_trainer_export_onnx.
  void export_onnx(const std::string& path) {
    check(etr_trainer_export_onnx(get(), detail::c_string(path, "path")));
  }
  // Measures where a step's time goes; see etr_trainer_profile. `format`: "text", "json" or
  // "trace".
  std::string profile(const Batch& batch, int32_t steps, const std::string& format) {
    return profile_on(batch.get(), steps, format);
  }
  // Loads the newest intact checkpoint; see etr_trainer_load.
  void load(const std::string& directory) {
    check(etr_trainer_load(get(), detail::c_string(directory, "directory")));
  }
  // Loads weights that PyTorch trained. `names` is a JSON object; see etr_trainer_load_pytorch.
  void load_pytorch(const std::string& path, const std::string& names = "{}") {
    check(etr_trainer_load_pytorch(get(), detail::c_string(path, "path"),
                                   detail::c_string(names, "names")));
  }

  ETR_DETAIL_DEPRECATED_BEGIN
  // Deprecated: a trainer that is also a job's run. Use Run. These members will be removed with the
  // functions that they call.
  [[deprecated("use Run")]] Trainer(const Runtime& runtime, const Job& job, Start start)
      : handle_(detail::made_by<Owned>([&](etr_trainer** out) {
          return etr_trainer_start_job(runtime.get(), job.get(), static_cast<int32_t>(start), out);
        })) {}
  [[deprecated("use Run")]] Trainer(const Runtime& runtime, const Job& job, bool resume = false)
      : handle_(detail::made_by<Owned>([&](etr_trainer** out) {
          return etr_trainer_create_from_job(runtime.get(), job.get(), resume ? 1 : 0, out);
        })) {}
  [[deprecated("use Run")]] Trainer(const Runtime& runtime, const Job& job, Start start,
                                    std::unique_ptr<Transport> transport) {
    if (!transport) throw Error(ETR_INVALID_ARGUMENT, "the transport is nullptr");
    const etr_engine engine = detail::Engine::table_of(std::move(transport), failures_);
    etr_trainer* raw = nullptr;
    failures_->check(etr_trainer_start_job_over(runtime.get(), job.get(),
                                                static_cast<int32_t>(start), &engine, &raw));
    handle_.reset(raw);
  }
  [[deprecated("use Run::evaluate")]] etr_eval_result evaluate() {
    return evaluate(nullptr, nullptr);
  }
  [[deprecated("pass the batch, or use Run::profile")]] std::string profile(
      const Batch* batch, int32_t steps, const std::string& format) {
    return profile_on(batch ? batch->get() : nullptr, steps, format);
  }
  [[deprecated("use Run::next_event")]] std::optional<etr_event> next_event(double seconds = 0) {
    etr_event out{};
    out.struct_size = sizeof out;
    if (failures_->check(etr_trainer_next_event_within(get(), seconds, &out)) == ETR_END)
      return std::nullopt;
    return out;
  }
  [[deprecated("use Run::stop")]] void stop() {
    detail::check_stop(etr_trainer_stop(get()), "the trainer runs no job");
  }
  [[deprecated("use Run::pipeline_stats")]] std::string pipeline_stats() const {
    return detail::text_by([&](char** out) { return etr_trainer_pipeline_stats(get(), out); });
  }
  ETR_DETAIL_DEPRECATED_END

  etr_trainer* get() const { return handle_.get(); }

 private:
  using Owned = detail::Handle<etr_trainer, etr_trainer_destroy>;
  friend class Run;
  explicit Trainer(Owned handle) : handle_(std::move(handle)) {}
  template <typename Make>
  static Batch made_batch(Make&& make) {
    return Batch(detail::made_by<detail::Handle<etr_batch, etr_batch_destroy>>(make).release());
  }
  etr_eval_result evaluate(etr_pipeline* pipeline, const detail::Failures* of_pipeline) {
    etr_eval_result out{};
    out.struct_size = sizeof out;
    const int32_t status = etr_trainer_evaluate(get(), pipeline, &out);
    failures_->rethrow(status);
    if (of_pipeline) of_pipeline->rethrow(status);
    check(status);
    return out;
  }
  std::string profile_on(const etr_batch* batch, int32_t steps, const std::string& format) {
    return detail::text_by([&](char** out) {
      return etr_trainer_profile(get(), batch, steps, detail::c_string(format, "format"), out);
    });
  }
  Owned handle_;
  std::shared_ptr<detail::Failures> failures_ = std::make_shared<detail::Failures>();
};

// A job that runs: while (const auto event = run.next_event()) ... See the section on runs in
// echotrain.h.
class Run {
 public:
  Run(const Runtime& runtime, const Job& job, Start start = Start::new_run)
      : handle_(detail::made_by<Owned>([&](etr_run** out) {
          return etr_run_start(runtime.get(), job.get(), static_cast<int32_t>(start), out);
        })) {}
  // As one of several ranks, over a transport of the program; see etr_run_start_with_engine.
  Run(const Runtime& runtime, const Job& job, Start start, std::unique_ptr<Transport> transport) {
    if (!transport) throw Error(ETR_INVALID_ARGUMENT, "the transport is nullptr");
    const etr_engine engine = detail::Engine::table_of(std::move(transport), failures_);
    etr_run* raw = nullptr;
    failures_->check(etr_run_start_with_engine(runtime.get(), job.get(),
                                               static_cast<int32_t>(start), &engine, &raw));
    handle_.reset(raw);
  }

  // Trains until there is an event; nullopt when the run is over. `seconds` is the most that the
  // call may take, see etr_run_next_event_within; 0: as the job says.
  std::optional<etr_event> next_event(double seconds = 0) {
    etr_event out{};
    out.struct_size = sizeof out;
    if (failures_->check(etr_run_next_event_within(get(), seconds, &out)) == ETR_END)
      return std::nullopt;
    return out;
  }
  // Asks the run to end gracefully and soon. Any thread.
  void stop() { detail::check_stop(etr_run_stop(get()), "there is no run"); }
  // Evaluates the job's evaluation pipeline; see etr_run_evaluate.
  etr_eval_result evaluate() {
    etr_eval_result out{};
    out.struct_size = sizeof out;
    failures_->check(etr_run_evaluate(get(), &out));
    return out;
  }
  // Sets the function that is told the progress of the run's evaluations, as
  // Trainer::on_evaluation does. An exception is rethrown by evaluate() or next_event().
  void on_evaluation(std::function<bool(int64_t done, int64_t batches)> progress) {
    detail::EvaluationProgress::give(etr_run_on_evaluation, get(), std::move(progress), failures_);
  }
  // Measures where a step's time goes, on a batch of the job's pipeline; see etr_run_profile.
  // `format`: "text", "json" or "trace".
  std::string profile(int32_t steps, const std::string& format) {
    return detail::text_by([&](char** out) {
      return failures_->check(
          etr_run_profile(get(), steps, detail::c_string(format, "format"), out));
    });
  }
  // Returns statistics of the run's input pipeline as JSON; see etr_run_pipeline_stats.
  std::string pipeline_stats() const {
    return detail::text_by([&](char** out) { return etr_run_pipeline_stats(get(), out); });
  }
  // Returns the run's trainer: its weights and hyperparameters, predictions, exports. It outlives
  // the run; see etr_run_trainer and etr_run_destroy.
  Trainer trainer() {
    return Trainer(detail::made_by<Trainer::Owned>(
        [&](etr_trainer** out) { return etr_run_trainer(get(), out); }));
  }
  etr_run* get() const { return handle_.get(); }

 private:
  using Owned = detail::Handle<etr_run, etr_run_destroy>;
  Owned handle_;
  std::shared_ptr<detail::Failures> failures_ = std::make_shared<detail::Failures>();
};

#undef ETR_DETAIL_DEPRECATED_BEGIN
#undef ETR_DETAIL_DEPRECATED_END

}  // namespace echotrain

#endif  // ECHOTRAIN_ECHOTRAIN_HPP_

// The contents of the opaque handles, and the guard that every API function runs in.
#pragma once

#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/json.h"
#include "echotrain/echotrain.h"
#include "gpu/kernel.h"
#include "occupancy.h"
#include "pipeline/names.h"
#include "train/job.h"
#include "train/program_buffer.h"
#include "train/team.h"

struct etr_options {
  etr::Json values = etr::Json::object();
  mutable etr::capi::Occupancy occupancy;
};

struct etr_runtime {
  std::shared_ptr<etr::gpu::Kernels> kernels;
  etr::train::Team::Open open;  // opens another device with the same options
  mutable etr::capi::Occupancy occupancy;
};

struct etr_pipeline {
  etr::Json spec;
  etr::pipeline::MapFunctions functions;
  std::mutex mutex;  // any thread may call etr_pipeline_cancel and the statistics functions
  std::shared_ptr<etr::pipeline::Pipeline> running;  // created at first use, by get()
  mutable etr::capi::Occupancy occupancy;

  etr::pipeline::Pipeline& get() {
    std::scoped_lock lock(mutex);
    if (!running)  // reads nothing yet: cancel must not wait for this lock
      running = std::make_shared<etr::pipeline::Pipeline>(
          spec, functions, false, etr::pipeline::Pipeline::Budget::at_start);
    return *running;
  }
};

struct etr_batch {
  etr::pipeline::Item item;
  uint64_t epoch = 0;      // set in a map function
  std::string failure;     // the reason that etr_batch_fail gave
  bool lent = false;       // belongs to a pipeline; a function of the program has it for one call
  bool destroyed = false;  // by that function, which does not own it
  mutable etr::capi::Occupancy occupancy;
};

struct etr_model {
  etr::Json spec{{"layers", etr::Json::array()}};
  // The weights of a model that was read from a file; null for others. The spec has its layers.
  std::shared_ptr<const etr::checkpoint::NamedTensors> weights;
  mutable etr::capi::Occupancy occupancy;
};

struct etr_optimizer {
  etr::Json optimizer, schedule;
  mutable etr::capi::Occupancy occupancy;
};

struct etr_job {
  etr::train::Job job;
  mutable etr::capi::Occupancy occupancy;
};

namespace etr::capi {

// State that a run and its trainers share. One call at a time uses it, through any of these
// handles.
struct RunningJob {
  explicit RunningJob(std::unique_ptr<train::Team> of) : team(std::move(of)) {}
  const std::unique_ptr<train::Team> team;
  bool ended = false;  // whether ETR_EVENT_END was handed out
  mutable Occupancy occupancy;
};

}  // namespace etr::capi

struct etr_run {
  std::shared_ptr<etr::capi::RunningJob> running;
  mutable etr::capi::Occupancy occupancy;
};

struct etr_trainer {
  std::unique_ptr<etr::train::Learner> own;        // for a loop of the caller, or
  std::shared_ptr<etr::capi::RunningJob> running;  // of a run
  bool is_run = false;  // made by etr_trainer_start_job: stands for the run, too
  std::deque<etr::train::StepMetrics> results;
  etr::train::EvalProgress on_evaluation;
  mutable etr::capi::Occupancy occupancy;

  etr::train::Learner& learner() { return running ? running->team->learner() : *own; }
  etr::train::Learner& shaped_learner() { return running ? running->team->shaped_learner() : *own; }
  // Applies a change to the learner, or to the learners of all devices.
  void on_learners(const std::function<void(etr::train::Learner&)>& work) {
    if (running) return running->team->on_learners(work);
    work(*own);
  }
};

namespace etr::capi {

static_assert(ETR_MAX_RANK == Shape::kMaxRank, "the structs hold what arrays may have");

void set_last_error(const char* message) noexcept;

// Owns a caller's user data: `destroy` (may be nullptr) is called exactly once, when the last copy
// of the pointer is gone.
inline std::shared_ptr<void> owned(void* user_data, void (*destroy)(void*)) {
  return {user_data, [destroy](void* p) {
            if (destroy) destroy(p);
          }};
}

// Runs `body`, and turns an exception into a status and this thread's message. The handles that
// `body` enters (see required()) stay entered until it returns.
template <typename Body>
int32_t guarded(Body&& body) noexcept {
  try {
    const Call call;
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return ETR_OK;
    } else {
      return body();
    }
  } catch (const Error& error) {
    set_last_error(error.what());
    return static_cast<int32_t>(error.code());
  } catch (const std::bad_alloc&) {
    set_last_error("out of memory");
    return ETR_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    set_last_error(error.what());
    return ETR_INTERNAL;
  } catch (...) {
    set_last_error("unknown exception");
    return ETR_INTERNAL;
  }
}

template <typename T>
void end(T* handle) {
  delete handle;
}
void end(etr_pipeline* pipeline);
void end(etr_trainer* trainer);
void end(etr_run* run);
void close(RunningJob& running) noexcept;  // its run was destroyed, and a trainer was not

// Implements etr_X_destroy: a handle that a call is using is freed when that call ends.
template <typename T>
void destroy(T* handle) {
  if (handle && handle->occupancy.destroy()) end(handle);
}

template <typename T>
T& entered(T* handle, const char* name, Access access) {
  using Handle = std::remove_const_t<T>;
  if (!handle) fail(Code::invalid_argument, "argument '", name, "' is NULL");
  if constexpr (std::is_same_v<Handle, etr_trainer> || std::is_same_v<Handle, etr_run>)
    if (access != Access::visiting && exchange::in_engine())
      fail(Code::state, "the ", name,
           " is used by a function of a transport (etr_engine), for which "
           "the run may be waiting: only etr_run_stop and etr_run_destroy may be called there");
  Call::current()->enter(handle->occupancy, access, name, const_cast<Handle*>(handle),
                         [](void* p) { end(static_cast<Handle*>(p)); });
  if constexpr (requires { handle->running->team; })
    if (RunningJob* const job = handle->running.get())
      Call::current()->enter(job->occupancy, access, "run", job,
                             [](void* p) { close(*static_cast<RunningJob*>(p)); });
  return *handle;
}

// Returns a required argument; throws if it is nullptr. A handle is entered for the call: for
// reading if it is const, otherwise alone.
template <typename T>
T& required(T* pointer, const char* name) {
  if constexpr (requires { pointer->occupancy; })
    return entered(pointer, name, std::is_const_v<T> ? Access::reading : Access::alone);
  if (!pointer) fail(Code::invalid_argument, "argument '", name, "' is NULL");
  return *pointer;
}

// Enters a handle for reading although the function takes it as non-const.
template <typename T>
const T& shared(T* handle, const char* name) {
  return required(static_cast<const T*>(handle), name);
}

// Enters a handle that other threads may be using, for functions that the header marks "any
// thread".
template <typename T>
T& any_thread(T* handle, const char* name) {
  return entered(handle, name, Access::visiting);
}

// Passes ownership of `made` to the caller. `out` is checked first, so that nothing leaks if it is
// NULL.
template <typename T>
void hand_out(T** out, std::unique_ptr<T> made, const char* name) {
  T*& target = required(out, name);
  target = made.release();
}

char* copy_string(const std::string& text);

inline void hand_out(char** out, const std::string& text, const char* name) {
  char*& target = required(out, name);
  target = copy_string(text);
}

// Checks the caller's struct. To be called before work whose result would be lost.
template <typename T>
uint32_t checked_size(T* out) {
  const uint32_t size = required(out, "result struct").struct_size;
  if (size < sizeof(uint32_t) || size > 1u << 16)
    fail(Code::invalid_argument, "struct_size is ", size, "; set it to sizeof the struct");
  return size;
}

// Fills the caller's struct, up to the size that the caller's header gives it.
template <typename T>
void fill_struct(T* out, T value) {
  const uint32_t size = value.struct_size = checked_size(out);
  std::memcpy(static_cast<void*>(out), &value, std::min<size_t>(size, sizeof value));
}

// Reads a struct of the caller; fields that an older, shorter one lacks become 0. `name` is the
// name of its type.
template <typename T>
T read_struct(const T& given, const char* name) {
  if (given.struct_size < sizeof(uint32_t))
    fail(Code::invalid_argument, "struct_size of ", name, " is not set");
  T out{};
  std::memcpy(static_cast<void*>(&out), &given, std::min<size_t>(given.struct_size, sizeof out));
  return out;
}

// Returns the path of a file or folder. Refuses an empty path, which would be the working directory
// or nothing.
inline const char* path_of(const char* path, const char* name) {
  if (!required(path, name))
    fail(Code::invalid_argument, "argument '", name, "' is an empty path; name a file or folder");
  return path;
}

// Returns the name of a field that a caller sets, after checking it.
inline const char* field_name(const char* field) {
  pipeline::check_name(&required(field, "field"), "a field");
  return field;
}

// Returns the shape that a caller describes (etr_tensor, etr_vulkan_buffer), after checking it and
// the dtype.
template <typename T>
Shape shape_of(const T& array, const char* field) {
  if (array.dtype < ETR_U8 || array.dtype > ETR_U16 || array.rank < 0 ||
      array.rank > static_cast<int32_t>(Shape::kMaxRank))
    fail(Code::invalid_argument, "field '", field, "': dtype ", array.dtype, " and rank ",
         array.rank, "; expected ETR_U8, ETR_I32, ETR_F32 or ETR_U16 and at most ", Shape::kMaxRank,
         " axes");
  const Shape shape(array.shape, array.shape + array.rank);
  try {
    size_of(static_cast<DType>(array.dtype), shape);
  } catch (const Error& error) {
    fail(error.code(), "field '", field, "': ", error.what());
  }
  return shape;
}

// Returns a field in the caller's buffer; `owner` is released when nobody needs the contents any
// more.
inline pipeline::OpaqueField vulkan_field(const etr_vulkan_buffer& given, const char* field,
                                          std::shared_ptr<void> owner = {}) {
  const etr_vulkan_buffer b = read_struct(given, "etr_vulkan_buffer");
  if (!b.buffer) fail(Code::invalid_argument, "field '", field, "': the buffer is VK_NULL_HANDLE");
  const Shape shape = shape_of(b, field);
  const auto dtype = static_cast<DType>(b.dtype);
  if ((dtype != DType::f32 && dtype != DType::i32) || element_count(shape) == 0)
    fail(Code::invalid_argument, "field '", field, "': ", dtype_name(dtype), " ", shape_text(shape),
         " in a Vulkan buffer; it must be f32 or i32 and not empty");
  return train::field_in_buffer(field, dtype, shape, b.buffer, b.offset, std::move(owner));
}

}  // namespace etr::capi

// The interface that SWIG wraps: echotrain.hpp, reduced to strings, numbers and addresses, which
// every language has. The idiomatic layer of each language uses this interface and nothing else.
//
// Options are passed as JSON objects, tensors as dtype (ETR_U8 and so on), shape and address. Every
// failure is an echotrain::Error, which each language turns into its own exception. Using a closed
// object throws; it never crashes. What is returned as a pointer belongs to the caller.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "echotrain/echotrain.hpp"
#include "hooks.h"
#include "transport.h"

namespace echotrain::facade {

// SWIG's 64-bit integer; int64_t is not this type on every platform.
using Shape = std::vector<long long>;

[[noreturn]] inline void closed(const char* what) {
  throw Error(ETR_STATE, std::string("the ") + what + " is closed");
}

#ifndef SWIG
// An object that one thread may close while others use it: their calls keep it alive. Its end may
// wait for the function that a stand-in runs, so it happens on another thread there, as on the
// library's own threads.
template <typename T>
class Closable {
 public:
  template <typename... Arguments>
  explicit Closable(const char* what, Arguments&&... arguments)
      : what_(what), object_(new T(std::forward<Arguments>(arguments)...), end) {}
  std::shared_ptr<T> get() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!object_) closed(what_);
    return object_;
  }
  // Returns the object, so that it is destroyed outside the lock; nullptr if it was closed before.
  std::shared_ptr<T> close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(object_, nullptr);
  }
  bool is_closed() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return !object_;
  }

 private:
  static void end(T* object) {
    if (stand_in == StandIn::none) {
      delete object;
      return;
    }
    try {
      std::thread([object] { delete object; }).detach();
    } catch (const std::system_error&) {  // it is lost, as in the library
    }
  }

  const char* const what_;
  mutable std::mutex mutex_;
  std::shared_ptr<T> object_;
};

// Refuses calls that wait for a run's thread where that may wait for the caller.
inline void outside_of_transports(const char* what) {
  if (stand_in == StandIn::transport)
    throw Error(ETR_STATE, std::string("the ") + what +
                               " is used by a function of a transport, for which the run may be "
                               "waiting: only Stop and Dispose of the run may be called there");
}
#endif

inline int element_bytes(int dtype) { return dtype == ETR_U8 ? 1 : dtype == ETR_U16 ? 2 : 4; }

// A field's memory. The object keeps it alive, also beyond the batch. The memory must not be
// written to.
class Tensor {
 public:
  explicit Tensor(void* managed) : managed_(managed) { view_ = *static_cast<Layout*>(managed_); }
  ~Tensor() { release(managed_); }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  int dtype() const {
    if (view_.code == 1) return view_.bits == 8 ? ETR_U8 : ETR_U16;
    return view_.code == 0 ? ETR_I32 : ETR_F32;
  }
  Shape shape() const { return {view_.shape, view_.shape + view_.rank}; }
  int rank() const { return view_.rank; }
  const int64_t* extents() const { return view_.shape; }
  uint64_t address() const { return reinterpret_cast<uint64_t>(view_.data); }
  int64_t size_bytes() const {
    int64_t bytes = element_bytes(dtype());
    for (int32_t i = 0; i < view_.rank; ++i) bytes *= view_.shape[i];
    return bytes;
  }

  static void release(void* managed) {
    auto* layout = static_cast<Layout*>(managed);
    if (layout->deleter) layout->deleter(managed);
  }

 private:
  struct Layout {  // that of DLPack's DLManagedTensor
    void* data;
    int32_t device_type, device_id;
    int32_t rank;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
    void* context;
    void (*deleter)(void*);
  };
  void* managed_;
  Layout view_;
};

// A batch that one thread may close while another uses it: calls in progress end first.
class BatchHandle {
 public:
  BatchHandle() : batch_(std::make_shared<Batch>()) {}
  // `borrowed`: the batch belongs to someone else, who takes it back when close() returns.
  explicit BatchHandle(Batch&& batch, bool borrowed = false)
      : batch_(std::make_shared<Batch>(std::move(batch))), borrowed_(borrowed) {}

  std::vector<std::string> fields() const { return get()->fields(); }
  Tensor* tensor(const std::string& field) const {
    return new Tensor(dlpack(field));
  }
  void* dlpack(const std::string& field) const {
    void* managed = nullptr;
    check(etr_batch_to_dlpack(get()->get(), detail::c_string(field, "field"), &managed));
    return managed;
  }
  // Sets a field to a copy of the memory at `address`.
  void set(const std::string& field, int dtype, const Shape& shape, uint64_t address) {
    const etr_tensor t = describe(dtype, shape, address);
    check(etr_batch_set(get()->get(), detail::c_string(field, "field"), &t));
  }
  void remove(const std::string& field) { get()->remove(field); }
  // For a source: says that there is no sample, because the pass is over.
  void end_pass() { pass_ended_ = true; }
  bool pass_ended() const { return pass_ended_; }

  int samples() const { return get()->info().samples; }
  int fresh() const { return get()->info().fresh; }
  int echoed() const { return get()->info().echoed; }
  int unique() const { return get()->info().unique; }
  double mean_age() const { return get()->info().mean_age; }
  int replica() const { return static_cast<int>(get()->info().replica); }
  int64_t ordinal() const { return static_cast<int64_t>(get()->info().ordinal); }
  int64_t epoch() const { return static_cast<int64_t>(get()->info().epoch); }

#ifndef SWIG
  // Keeps the batch alive during a call. For a borrowed batch, it also makes close() wait for the
  // call.
  class Use {
   public:
    explicit Use(const BatchHandle& handle) : handle_(handle) {
      const std::lock_guard<std::mutex> lock(handle_.mutex_);
      if (!handle_.batch_)
        throw Error(ETR_STATE,
                    "the batch is closed: read its fields before it is closed, by you or because "
                    "the function that was given it has returned; arrays that were taken from it "
                    "before stay valid");
      batch_ = handle_.batch_;
      if (handle_.borrowed_) handle_.users_.push_back(std::this_thread::get_id());
    }
    ~Use() {
      if (!handle_.borrowed_) return;
      const std::lock_guard<std::mutex> lock(handle_.mutex_);
      auto& users = handle_.users_;
      users.erase(std::find(users.begin(), users.end(), std::this_thread::get_id()));
      handle_.unused_.notify_all();
    }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;
    Batch& operator*() const { return *batch_; }
    Batch* operator->() const { return batch_.get(); }

   private:
    const BatchHandle& handle_;
    std::shared_ptr<Batch> batch_;
  };
  Use get() const { return Use(*this); }
#endif

  // Closes the handle. For a borrowed batch, waits until the calls of other threads have ended;
  // then the batch belongs to its owner again. Calls of this thread are not waited for: one of them
  // may have released an object whose finalizer calls close(), and the owner continues only after
  // them anyway.
  void close() {
    std::shared_ptr<Batch> last;  // destroyed after the lock is released
    std::unique_lock<std::mutex> lock(mutex_);
    last = std::move(batch_);
    unused_.wait(lock, [this] {
      return std::all_of(users_.begin(), users_.end(),
                         [](std::thread::id user) { return user == std::this_thread::get_id(); });
    });
  }
  bool is_closed() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return !batch_;
  }

  static etr_tensor describe(int dtype, const Shape& shape, uint64_t address) {
    if (shape.size() > ETR_MAX_RANK)
      throw Error(ETR_UNSUPPORTED, "a field of " + std::to_string(shape.size()) +
                                       " axes; at most " + std::to_string(ETR_MAX_RANK) +
                                       " are possible");
    etr_tensor t{};
    t.struct_size = sizeof t;
    t.dtype = dtype;
    t.rank = static_cast<int32_t>(shape.size());
    std::copy(shape.begin(), shape.end(), t.shape);
    t.size_bytes = static_cast<uint64_t>(element_bytes(dtype));
    for (const int64_t extent : shape) t.size_bytes *= static_cast<uint64_t>(extent);
    t.data = reinterpret_cast<const void*>(address);
    return t;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<Batch> batch_;
  mutable std::vector<std::thread::id> users_;  // of a borrowed batch, one entry for each call
  mutable std::condition_variable unused_;
  bool borrowed_ = false, pass_ended_ = false;
};

// A function of the program as a stage; each language derives from it. Called from worker threads.
class MapFunction {
 public:
  virtual ~MapFunction() = default;
  // Changes `item`, which is valid only during the call. Returns "" or the reason for its failure.
  // It must not throw.
  virtual std::string apply(BatchHandle& item) = 0;
};

// Receives the progress of an evaluation, of packing, tuning or advising, on the thread that does
// it; each language derives from it.
class Progress {
 public:
  virtual ~Progress() = default;
  // `total` is the number of batches (of files, trials or products), or -1 if it is not known.
  // `text` says what was done or is being done; "" if there is nothing to say. Returns false to
  // stop. It must not throw.
  virtual bool report(int64_t done, int64_t total, const std::string& text) = 0;
};

// Makes `progress` the receiver of this thread's evaluations for the lifetime of the object.
class Told {
 public:
  explicit Told(Progress* progress) : before_(current()) { current() = progress; }
  ~Told() { current() = before_; }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;

  static bool report(int64_t done, int64_t batches) {
    return !current() || current()->report(done, batches, "");
  }

 private:
  static Progress*& current() {
    static thread_local Progress* told = nullptr;
    return told;
  }
  Progress* before_;
};

class PipelineHandle {
 public:
  explicit PipelineHandle(const std::string& options)
      : pipeline_("pipeline", Options::from_json(options)) {}
  explicit PipelineHandle(Pipeline&& pipeline) : pipeline_("pipeline", std::move(pipeline)) {}
  // Creates a pipeline from {"stages": [...]} and options.
  static PipelineHandle* from_json(const std::string& json) {
    return new PipelineHandle(Pipeline::from_json(json));
  }

  void add(const std::string& stage, const std::string& options) {
    get()->add(stage, Options::from_json(options));
  }
  // Takes ownership of `function`.
  void add_map(const std::string& name, MapFunction* function) {
    std::unique_ptr<MapFunction> owned(function);
    etr_pipeline* pipeline = get()->get();
    const char* const c_name = detail::c_string(name, "name");  // before it is released
    check(etr_pipeline_add_map(pipeline, c_name, &call, owned.release(),
                               [](void* p) { delete static_cast<MapFunction*>(p); }));
  }
  // Does the same for a source. The function ends a pass by end_pass(), or by leaving an item other
  // than the first without fields.
  void add_source(const std::string& name, MapFunction* function) {
    std::unique_ptr<MapFunction> owned(function);
    etr_pipeline* pipeline = get()->get();
    const char* const c_name = detail::c_string(name, "name");  // before it is released
    check(etr_pipeline_add_source(pipeline, c_name, &call_source, owned.release(),
                                  [](void* p) { delete static_cast<MapFunction*>(p); }));
  }
  // Returns the next batch; nullptr at the end of an epoch.
  BatchHandle* next() { return next(*get()); }
  // Does the same as next() for languages that must handle signals: returns nullptr also if no
  // batch came within `seconds`; ended() tells the two cases apart.
  BatchHandle* poll(double seconds) {
    const std::shared_ptr<Pipeline> pipeline = get();
    ended_ = false;
    if (!pipeline->wait(seconds)) return nullptr;
    BatchHandle* batch = next(*pipeline);
    ended_ = batch == nullptr;
    return batch;
  }
  bool ended() const { return ended_; }
  int64_t length() const { return get()->length().value_or(-1); }
  void cancel() { get()->cancel(); }
  std::string stats() const { return get()->stats(); }
  std::string explain(const std::string& format) const { return get()->explain(format); }
  std::string trace() const { return get()->trace(); }
  std::string bad_records() const { return get()->bad_records(); }
  std::string save() const { return get()->save(); }
  void restore(const std::string& state) { get()->restore(state); }

  // Cancels the pipeline; a call that is blocked in next() throws.
  void close() {
    // The status is ignored: a pipeline with wrong settings has nothing to cancel, and has reported
    // them already.
    if (const auto last = pipeline_.close()) etr_pipeline_cancel(last->get());
  }
  std::shared_ptr<Pipeline> get() const { return pipeline_.get(); }

 private:
  static BatchHandle* next(Pipeline& pipeline) {
    auto batch = pipeline.next();
    return batch ? new BatchHandle(std::move(*batch)) : nullptr;
  }
  static int32_t call_source(void* function, etr_batch* item) {
    bool pass_ended = false;
    const int32_t status = call(function, item, &pass_ended);
    if (status != ETR_OK || pass_ended) return status == ETR_OK ? ETR_END : status;
    etr_batch_info info{};
    info.struct_size = sizeof info;
    if (etr_batch_get_info(item, &info) != ETR_OK || info.fields > 0) return ETR_OK;
    if (info.ordinal & kIndexInPass) return ETR_END;
    etr_batch_fail(item,
                   "the first sample of a pass has no field: set those of each sample, and none "
                   "only where the pass is over");
    return ETR_CALLBACK;
  }
  static int32_t call(void* function, etr_batch* item) { return call(function, item, nullptr); }
  static int32_t call(void* function, etr_batch* item, bool* pass_ended) {
    BatchHandle view(Batch(item, /*borrowed=*/true), /*borrowed=*/true);
    if (hooks().before) hooks().before();
    const std::string reason = static_cast<MapFunction*>(function)->apply(view);
    if (hooks().after) hooks().after();
    view.close();  // references that the function kept must not reach the item later
    if (pass_ended) *pass_ended = view.pass_ended();
    if (reason.empty()) return ETR_OK;
    etr_batch_fail(item, reason.c_str());
    return ETR_CALLBACK;
  }
  static constexpr uint64_t kIndexInPass = 0xFFFFFFFFFF;  // of an ordinal

  Closable<Pipeline> pipeline_;
  bool ended_ = false;  // set by poll(), for the thread that reads
};

class ModelHandle {
 public:
  explicit ModelHandle(const std::string& json) : model_("model", json) {}
  void loss(const std::string& loss, const std::string& options) {
    get()->loss(loss, Options::from_json(options));
  }
  void freeze(const std::string& pattern) { get()->freeze(pattern); }
  void quantize(int bits) { get()->quantize(bits); }
  void lora(const std::string& options) { get()->lora(Options::from_json(options)); }
  std::string json() const { return get()->json(); }
  std::string summary(const std::string& fields, const std::string& format) const {
    return get()->summary(fields, format);
  }
  void close() { model_.close(); }
  bool is_closed() const { return model_.is_closed(); }
  std::shared_ptr<Model> get() const { return model_.get(); }

 private:
  Closable<Model> model_;
};

class OptimizerHandle {
 public:
  OptimizerHandle(const std::string& name, const std::string& options, const std::string& schedule)
      : optimizer_(name, Options::from_json(options), Options::from_json(schedule)) {}
  const Optimizer& get() const { return optimizer_; }

 private:
  Optimizer optimizer_;
};

struct DeviceInfo {
  int index = 0, kind = 0, subgroup_size = 0;
  int64_t memory_bytes = 0;
  std::string name, driver;
};

inline DeviceInfo describe(const etr_device_info& info) {
  return {info.index,
          info.kind,
          static_cast<int>(info.subgroup_size),
          static_cast<int64_t>(info.memory_bytes),
          info.name,
          info.driver};
}

// Those of a runtime; see etr_runtime_options.
struct DeviceOptions {
  std::string device, tuning, cache_dir;
  bool users_tuning = true, users_cache = true;  // in the place of `tuning` and `cache_dir`
  int64_t memory_limit_bytes = 0;
  double hang_seconds = 0;
  int kernels = ETR_KERNELS_AUTOMATIC;
  bool validation = false, trust_driver = false;
#ifndef SWIG
  RuntimeOptions options() const {
    if (memory_limit_bytes < 0)  // it would be a limit beyond all memory
      throw Error(ETR_INVALID_ARGUMENT, "memory_limit_bytes is " +
                                            std::to_string(memory_limit_bytes) +
                                            "; expected the most to use, or 0: no limit");
    RuntimeOptions out;
    out.device = device;
    out.memory_limit_bytes = static_cast<uint64_t>(memory_limit_bytes);
    if (!users_tuning) out.tuning = tuning;
    out.hang_seconds = hang_seconds;
    out.kernels = kernels;
    if (!users_cache) out.cache_dir = cache_dir;
    out.validation = validation;
    out.trust_driver = trust_driver;
    return out;
  }
#endif
};

class RuntimeHandle {
 public:
  explicit RuntimeHandle(const DeviceOptions& options) : runtime_("device", options.options()) {}
  // `progress` may be nullptr; it is told "PRODUCT: KERNEL".
  void tune(const std::string& path, Progress* progress) {
    std::function<bool(int64_t, int64_t, const char*, const char*)> report;
    if (progress)
      report = [=](int64_t done, int64_t total, const char* product, const char* kernel) {
        return progress->report(done, total, std::string(product) + ": " + kernel);
      };
    get()->tune(path, report);
  }
  DeviceInfo device() const { return describe(get()->device()); }
  // Trainers and runs on the device remain usable.
  void close() { runtime_.close(); }
  std::shared_ptr<Runtime> get() const { return runtime_.get(); }

 private:
  Closable<Runtime> runtime_;
};

class JobHandle {
 public:
  // `text` is JSON if `is_json`, otherwise a path.
  JobHandle(const std::string& text, bool is_json, const std::vector<std::string>& overrides)
      : job_("job", is_json ? Job::parse(text, overrides) : Job::load(text, overrides)) {}
  std::string json() const { return get()->json(); }
  // Returns whether the job does not say where a run writes. Such a run writes nothing, and the
  // program should be warned.
  bool forgets_output() const { return !get()->output_dir(); }
  std::string output_dir() const { return get()->output_dir().value_or(""); }
  // `progress` may be nullptr; it is called often, with how often it was before, and with what is
  // being done, or "" while that continues.
  std::string advise(const RuntimeHandle& runtime, double seconds, bool check, Progress* progress) {
    std::function<bool(const std::string&)> report;
    if (progress)
      report = [=, calls = int64_t{0}](const std::string& what) mutable {
        return progress->report(calls++, -1, what);
      };
    return get()->advise(*runtime.get(), seconds, check, report);
  }
  void close() { job_.close(); }
  bool is_closed() const { return job_.is_closed(); }
  std::shared_ptr<Job> get() const { return job_.get(); }

 private:
  Closable<Job> job_;
};

struct StepResult {
  bool valid = false;  // false: there is none
  int64_t step = 0;
  int samples = 0;
  double loss = 0, accuracy = 0, learning_rate = 0;
};

struct EvalResult {
  int64_t samples = 0;
  double loss = 0, accuracy = 0;
#ifndef SWIG
  static EvalResult of(const etr_eval_result& r) { return {r.samples, r.loss, r.accuracy}; }
#endif
};

struct Event {
  int kind = ETR_EVENT_END;
  int64_t step = 0, epoch = 0, total_steps = 0, examples = 0, fresh = 0, echoed = 0;
  int64_t bad_records = 0;
  double seconds = 0, loss = 0, accuracy = 0, learning_rate = 0, examples_per_second = 0;
  double device_wait_share = 0, eval_loss = 0, eval_accuracy = 0;
  bool target_reached = false;
};

class TrainerHandle {
 public:
  TrainerHandle(const RuntimeHandle& runtime, const ModelHandle& model,
                const OptimizerHandle& optimizer, int64_t seed, int64_t total_steps)
      : trainer_("trainer", *runtime.get(), *model.get(), optimizer.get(),
                 static_cast<uint64_t>(seed), total_steps) {
    get()->on_evaluation(Told::report);
  }
  explicit TrainerHandle(Trainer&& trainer) : trainer_("trainer", std::move(trainer)) {
    get()->on_evaluation(Told::report);
  }

  void step(const BatchHandle& batch) { get()->step(*batch.get()); }
  StepResult result(bool wait) {
    const auto r = get()->result(wait);
    return r ? step_of(*r) : StepResult{};
  }
  BatchHandle* forward(const BatchHandle& batch, bool input_gradients) {
    return new BatchHandle(get()->forward(*batch.get(), input_gradients));
  }
  void backward(const BatchHandle& output_gradient, bool accumulate) {
    get()->backward(*output_gradient.get(), accumulate);
  }
  BatchHandle* backward_to_inputs(const BatchHandle& output_gradient, bool accumulate) {
    return new BatchHandle(get()->backward_to_inputs(*output_gradient.get(), accumulate));
  }
  StepResult update() { return step_of(get()->update()); }
  BatchHandle* gradients(const std::string& name) const {
    return new BatchHandle(get()->gradients(name));
  }
  void set_gradients(const BatchHandle& gradients) { get()->set_gradients(*gradients.get()); }
  // `progress` may be nullptr; it is used only during the call.
  EvalResult evaluate(PipelineHandle& pipeline, Progress* progress) {
    const Told told(progress);
    return EvalResult::of(get()->evaluate(*pipeline.get()));
  }
  BatchHandle* predict(const BatchHandle& batch) {
    return new BatchHandle(get()->predict(*batch.get()));
  }
  static BatchHandle* detections(const BatchHandle& outputs, double score_threshold,
                                 double iou_threshold, int max_detections) {
    return new BatchHandle(
        Trainer::detections(*outputs.get(), score_threshold, iou_threshold, max_detections));
  }
  BatchHandle* weights(const std::string& name) const {
    return new BatchHandle(get()->weights(name));
  }
  void set_weights(const BatchHandle& weights) { get()->set_weights(*weights.get()); }
  void set_hyperparameter(const std::string& name, double value) {
    get()->set_hyperparameter(name, value);
  }
  std::string summary(const std::string& format) const { return get()->summary(format); }
  std::string profile(const BatchHandle& batch, int steps, const std::string& format) {
    return get()->profile(*batch.get(), steps, format);
  }
  void save(const std::string& directory) { get()->save(directory); }
  void export_onnx(const std::string& path) { get()->export_onnx(path); }
  void load(const std::string& directory) { get()->load(directory); }
  void load_pytorch(const std::string& path, const std::string& names) {
    get()->load_pytorch(path, names);
  }
  // A call of another thread keeps the trainer alive until it ends.
  void close() { trainer_.close(); }

 private:
  static StepResult step_of(const etr_step_result& r) {
    return {true, static_cast<int64_t>(r.step), r.samples, r.loss, r.accuracy, r.learning_rate};
  }
  std::shared_ptr<Trainer> get() const {
    outside_of_transports("trainer");
    return trainer_.get();
  }
  Closable<Trainer> trainer_;
};

// A job that runs; its trainer is a handle of its own.
class RunHandle {
 public:
  RunHandle(const RuntimeHandle& runtime, const JobHandle& job, int start)  // ETR_START_*
      : run_("run", *runtime.get(), *job.get(), static_cast<Start>(start)) {
    get()->on_evaluation(Told::report);
  }
  // Trains as one of `size` ranks over `transport`, and takes ownership of it.
  RunHandle(const RuntimeHandle& runtime, const JobHandle& job, int start, int rank, int size,
            Transport* transport)
      : RunHandle(runtime, job, start, std::make_unique<LentTransport>(rank, size, transport)) {}

  // Returns the next event, within `seconds` (0: as the job says); ETR_EVENT_END again when the run
  // is over. `progress` is as in TrainerHandle::evaluate().
  Event next_event(double seconds, Progress* progress) {
    const Told told(progress);
    if (const auto e = get()->next_event(seconds)) {
      Event event = {e->kind,
                     static_cast<int64_t>(e->step),
                     static_cast<int64_t>(e->epoch),
                     static_cast<int64_t>(e->total_steps),
                     static_cast<int64_t>(e->examples),
                     static_cast<int64_t>(e->fresh),
                     static_cast<int64_t>(e->echoed),
                     e->bad_records,
                     e->seconds,
                     e->loss,
                     e->accuracy,
                     e->learning_rate,
                     e->examples_per_second,
                     e->device_wait_share,
                     e->eval_loss,
                     e->eval_accuracy,
                     e->target_reached != 0};
      const std::lock_guard<std::mutex> lock(mutex_);
      last_ = event;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    return last_;
  }
  void stop() { run_.get()->stop(); }
  std::string pipeline_stats() const { return get()->pipeline_stats(); }
  // `progress` is as in TrainerHandle::evaluate().
  EvalResult evaluate(Progress* progress) {
    const Told told(progress);
    return EvalResult::of(get()->evaluate());
  }
  std::string profile(int steps, const std::string& format) {
    return get()->profile(steps, format);
  }
  TrainerHandle* trainer() { return new TrainerHandle(get()->trainer()); }
  // A call of another thread keeps the run alive until it ends.
  void close() { run_.close(); }

 private:
  // The transport has its owner before the other arguments, which may be closed, are evaluated.
  RunHandle(const RuntimeHandle& runtime, const JobHandle& job, int start,
            std::unique_ptr<LentTransport> transport)
      : run_("run", *runtime.get(), *job.get(), static_cast<Start>(start), std::move(transport)) {
    get()->on_evaluation(Told::report);
  }
  std::shared_ptr<Run> get() const {
    outside_of_transports("run");
    return run_.get();
  }
  Closable<Run> run_;
  std::mutex mutex_;  // guards last_
  Event last_;
};

inline std::string version() { return etr_version(); }
inline std::string schema(const std::string& kind) { return echotrain::schema(kind); }
inline void prefer_wide_cpu_vectors() { check(etr_prefer_wide_cpu_vectors()); }
inline std::vector<DeviceInfo> devices() {
  std::vector<DeviceInfo> out;
  for (const etr_device_info& info : echotrain::devices()) out.push_back(describe(info));
  return out;
}
// `progress` may be null; it is told the number of trials, and the JSON of each.
inline std::string tune(const std::string& spec, double seconds, double step_ms,
                        Progress* progress) {
  std::function<bool(const char*)> report;
  if (progress)
    report = [=, trials = int64_t{0}](const char* trial) mutable {
      return progress->report(++trials, -1, trial);
    };
  return tune_pipeline(spec, seconds, step_ms, report);
}
// `progress` may be null.
inline std::string pack_folder(const std::string& root, const std::string& prefix,
                               const std::string& options_json, Progress* progress) {
  std::function<bool(int64_t, int64_t)> report;
  if (progress)
    report = [&](int64_t done, int64_t total) { return progress->report(done, total, ""); };
  return pack(root, prefix, Options::from_json(options_json), report);
}
inline std::string explain_stats(const std::string& stats, const std::string& format) {
  return echotrain::explain_stats(stats, format);
}
// `names` and `paths` are as long as each other.
inline std::string write_report(const std::string& title, const std::vector<std::string>& names,
                                const std::vector<std::string>& paths, const std::string& html_path,
                                double target_accuracy) {
  std::vector<ReportedRun> runs;
  for (size_t i = 0; i < names.size(); ++i) runs.push_back({names[i], paths[i]});
  return echotrain::write_report(title, runs, html_path, target_accuracy);
}

}  // namespace echotrain::facade

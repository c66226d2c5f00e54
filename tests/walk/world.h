// The handles of the walk, and what the walk knows of their state.
#pragma once

#include <condition_variable>
#include <set>

#include "walk.h"

namespace walk {

struct OptionSet {
  Handle<etr_options> handle;
};

struct Field {
  int32_t dtype = ETR_F32;
  std::vector<int64_t> shape;
  bool in_vulkan = false;
};

struct Batch {
  Handle<etr_batch> handle;
  std::map<std::string, Field> fields{};
};

// A function of the program as the source or a map of a pipeline. What it does with an item depends
// on the item only.
struct StageFunction : UserData {
  explicit StageFunction(Walk& its_walk) : walk(its_walk) {}
  Walk& walk;
  uint64_t seed = 0;
  bool is_source = false;
  int64_t samples = 0;                           // of a pass
  uint64_t misbehaves = 0;                       // with one of that many items; 0: never
  std::atomic<etr_pipeline*> destroys{nullptr};  // by the next call

  // While it is closed, calls wait.
  void close_gate();
  void open_gate();
  bool waits() const { return waiting > 0; }

  static int32_t give(void* self, etr_batch* item);

 private:
  int32_t source(etr_batch* item, const etr_batch_info& info);
  int32_t map(etr_batch* item, const etr_batch_info& info);
  int32_t misbehave(etr_batch* item, Random& random);
  void use_others(Random& random);

  std::mutex mutex;
  std::condition_variable changed;
  bool closed = false;
  std::atomic<int> waiting{0};
};

struct Pipeline {
  Handle<etr_pipeline> handle;
  std::set<std::string> names{};  // of its functions
  bool has_stages = false;        // a source at least
  bool used = false;              // so that no stages can be added
  bool cancelled = false;
  bool read = false;                     // a batch was read
  bool may_fail = false;                 // a function misbehaves
  bool traced = false;                   // with the option trace_events
  int32_t failed = ETR_OK;               // what etr_pipeline_next returned
  std::vector<std::string> positions{};  // that it saved
};

struct Model {
  Handle<etr_model> handle;
  bool trains = false;  // has layers that trainers of the walk can feed
  bool frozen = false, adapted = false;
};

struct Optimizer {
  Handle<etr_optimizer> handle;
};

struct Runtime {
  Handle<etr_runtime> handle;
};

struct Trainer {
  Handle<etr_trainer> handle;
  bool of_run = false;         // of a run that etr_run_start made
  std::shared_ptr<const bool> run_stopped{};
  bool odd = false;            // its model may not fit the batches, or a file was loaded
  bool shaped = false;         // had a batch
  bool may_be_shaped = false;  // a call failed that may have had one
  bool may_diverge = false;    // had a batch with NaN
  bool has_output = false, gives_inputs = false, has_gradients = false;
  uint64_t untaken = 0;  // results
};

struct Job {
  Handle<etr_job> handle;
  std::string output{};  // folder, "" for none
  bool stalls = false;   // no data comes after some batches
  bool evaluates = false;
  int devices = 1;
};

struct Run {
  Handle<etr_run> handle;
  int start = ETR_START_NEW;
  bool stalls = false, evaluates = false, ended = false, failed = false;
  int devices = 1;
  std::shared_ptr<bool> stopped = std::make_shared<bool>(false);  // also of its trainers
};

struct Server {
  Handle<etr_server> handle;
  std::string meeting{};
  bool stopped = false;
};

struct Study {
  Handle<etr_study> handle;
  bool started = false, ended = false;
};

struct World {
  Pool<OptionSet> options{6};
  Pool<Batch> batches{10};
  Pool<Pipeline> pipelines{5};
  Pool<Model> models{5};
  Pool<Optimizer> optimizers{3};
  Pool<Runtime> runtimes{2};
  Pool<Trainer> trainers{4};
  Pool<Job> jobs{4};
  Pool<Run> runs{3};
  Pool<Server> servers{2};
  Pool<Study> studies{1};
  std::vector<void*> tensors;  // DLPack tensors that outlive their batches
  uint64_t folders = 0;
  std::vector<std::string> checkpoints;  // folders that etr_trainer_save wrote

  bool empty() const {
    return options.empty() && batches.empty() && pipelines.empty() && models.empty() &&
           optimizers.empty() && runtimes.empty() && trainers.empty() && jobs.empty() &&
           runs.empty() && servers.empty() && studies.empty() && tensors.empty();
  }
};

// Destroys one handle of any kind; returns false if there is none.
bool destroy_any(Walk& walk);

// batches.cpp
// Sets rows for the models of the walk: "image" f32 [rows, 6] and "label" i32 [rows].
void set_rows(Walk& walk, etr_batch* batch, int64_t rows, bool with_nan);
std::unique_ptr<Batch> batch_of(Walk& walk, etr_batch* made);  // whose fields it asks for
Batch* rows_of(Walk& walk, int64_t rows);
void free_tensor(void* managed);  // a DLPack tensor

// pipelines.cpp
std::unique_ptr<Pipeline> new_pipeline(Walk& walk, const std::string& options_json);
StageFunction* add_source(Walk& walk, Pipeline& pipeline, int64_t samples, uint64_t misbehaves);
void add_stage(Walk& walk, Pipeline& pipeline, const char* stage, const char* json);
std::string row_stages(const Walk& walk, const std::string& more);  // of a pipeline in JSON

// trainers.cpp
Runtime* runtime_of(Walk& walk);  // makes one if there is none

// runs.cpp
// A job that trains on the walk's rows, with `more` of its sections.
std::string job_text(const Walk& walk, const std::string& more);
std::unique_ptr<Job> parse_job(Walk& walk, bool stalls, bool evaluates, int devices,
                               const std::string& output);
std::unique_ptr<Run> start_run(Walk& walk, const Job& job, int32_t start, Codes allowed);

}  // namespace walk

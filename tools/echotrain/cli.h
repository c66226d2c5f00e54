// The command line's own small pieces.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "echotrain/echotrain.h"

namespace cli {

// Ends a command with a message and exit code 1.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws Failure with the library's message for an error status; passes ETR_OK and ETR_END through.
int32_t check(int32_t status);

// Owns a string of the library.
std::string take_string(char* text);

// Owns a handle of the library.
template <typename T, void (*destroy)(T*)>
class Handle {
 public:
  Handle() = default;
  ~Handle() { destroy(handle_); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  T** out() { return &handle_; }
  T* get() const { return handle_; }

 private:
  T* handle_ = nullptr;
};

using Runtime = Handle<etr_runtime, etr_runtime_destroy>;
using Job = Handle<etr_job, etr_job_destroy>;
using PackingOptions = Handle<etr_options, etr_options_destroy>;
using Pipeline = Handle<etr_pipeline, etr_pipeline_destroy>;
using Batch = Handle<etr_batch, etr_batch_destroy>;
using Trainer = Handle<etr_trainer, etr_trainer_destroy>;

// Arguments of one command: "--name value", "--name=value", "--flag", and positional ones.
class Arguments {
 public:
  // `valued` and `flags` are the options that the command knows. Throws Failure for others.
  Arguments(const std::vector<std::string>& words, const std::vector<std::string>& valued,
            const std::vector<std::string>& flags);

  std::string value(const std::string& name, const std::string& otherwise = "") const;
  std::vector<std::string> values(const std::string& name) const;
  bool flag(const std::string& name) const;
  const std::vector<std::string>& positional() const { return positional_; }
  const std::string& required(size_t position, const std::string& what) const;

 private:
  std::vector<std::pair<std::string, std::string>> values_;
  std::vector<std::string> flags_, positional_;
};

// One line that is rewritten in place on a terminal, and printed now and then elsewhere.
class ProgressLine {
 public:
  ~ProgressLine() { finish(); }
  void show(const std::string& text);
  void finish();  // keeps the last text and goes to the next line

 private:
  std::string last_;
  double shown_at_ = -1e9;
};

// "[#########.........]" for a share in [0, 1].
std::string bar(double share, int width);

// Runs a job's trainer to its end with a progress bar; Ctrl-C ends it in order. `label` leads the
// line. `total_seconds` is the length of a run that is limited by time (0: limited by steps or
// epochs). Returns the last event.
etr_event run_with_progress(etr_trainer* trainer, const std::string& label,
                            double total_seconds = 0);

// The job of the first argument, with what --set says.
void load_job(const Arguments& arguments, Job& job);
nlohmann::ordered_json json_of(const Job& job);

int command_devices(const std::vector<std::string>& words);
// Writes a whole file and says so.
void write_file(const std::string& path, const std::string& text);

int command_train(const std::vector<std::string>& words);
int command_eval(const std::vector<std::string>& words);
int command_pack(const std::vector<std::string>& words);
int command_profile(const std::vector<std::string>& words);
int command_tune_kernels(const std::vector<std::string>& words);
int command_export(const std::vector<std::string>& words);
int command_explain(const std::vector<std::string>& words);
int command_tune(const std::vector<std::string>& words);
int command_report(const std::vector<std::string>& words);
int command_schema(const std::string& kind, const std::vector<std::string>& words);

}  // namespace cli

// The library's handles and errors, for all commands.
#pragma once

#include <cstdint>
#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "echotrain/echotrain.h"

namespace cli {

// Ends a command with a message and exit status 1.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The request cannot be fulfilled. If several processes got the same request, all of them fail in
// the same way.
struct Mistake : Failure {
  using Failure::Failure;
};

// The command line itself is wrong: exit status 2.
struct UsageError : Mistake {
  using Mistake::Mistake;
};

// Throws Failure with the library's message if the status is an error; returns ETR_OK and ETR_END.
int32_t check(int32_t status);

// Takes ownership of a string from the library.
std::string take_string(char* text);

// Owns a handle from the library.
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
using Server = Handle<etr_server, etr_server_destroy>;
using Study = Handle<etr_study, etr_study_destroy>;
using Trainer = Handle<etr_trainer, etr_trainer_destroy>;
using Run = Handle<etr_run, etr_run_destroy>;

// Returns a field of a batch or sample.
etr_tensor field(const Batch& batch, const char* name);

// Returns "1 sample" or "12 samples"; `plural` is for nouns that do not just add an s.
std::string counted(int64_t count, const std::string& one, const std::string& plural = "");

// Says on standard error that a word of the command line has a new name.
void tell_new_name(const std::string& former, const std::string& name);

// Returns " (did you mean 'echo'?)" if a known name is close to `word`, else "".
std::string suggestion(const std::string& word, const std::vector<std::string>& known);

struct LeftOut {
  std::string file, reason;
};

// Returns the records that a pipeline has left out so far; the file is the record's key.
std::vector<LeftOut> bad_records(const Pipeline& pipeline);

// Prints a line for each reason: the number of files, and one of them.
void print_left_out(const std::vector<LeftOut>& files);

// "12.3 MB", "4.0 kB"
std::string bytes_text(double bytes);

// Writes a whole file and reports it on `told`.
void write_file(const std::string& path, const std::string& text, std::FILE* told = stdout);

}  // namespace cli

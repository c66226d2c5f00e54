// What every command needs: the library's handles and errors.
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

// What was asked for cannot be: where several processes were asked for the same, it is so in all of them.
struct Mistake : Failure {
  using Failure::Failure;
};

// The command line itself is wrong: exit status 2.
struct UsageError : Mistake {
  using Mistake::Mistake;
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
using Server = Handle<etr_server, etr_server_destroy>;
using Study = Handle<etr_study, etr_study_destroy>;
using Trainer = Handle<etr_trainer, etr_trainer_destroy>;

// A field of a batch or sample.
etr_tensor field(const Batch& batch, const char* name);

// "1 sample", "12 samples"; `plural` where an s does not make it.
std::string counted(int64_t count, const std::string& one, const std::string& plural = "");

// " (did you mean 'echo'?)" where a known name is close to `word`, else "".
std::string suggestion(const std::string& word, const std::vector<std::string>& known);

struct LeftOut {
  std::string file, reason;
};

// The records that a pipeline has left out so far; the file is the record's key.
std::vector<LeftOut> bad_records(const Pipeline& pipeline);

// A line for each reason: how many files, and one of them.
void print_left_out(const std::vector<LeftOut>& files);

// "12.3 MB", "4.0 kB"
std::string bytes_text(double bytes);

// Writes a whole file and says so, on `told`.
void write_file(const std::string& path, const std::string& text, std::FILE* told = stdout);

}  // namespace cli

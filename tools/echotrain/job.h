// A job with its device and trainer, as the options of the command line say.
#pragma once

#include <nlohmann/json.hpp>

#include "arguments.h"
#include "cli.h"

namespace cli {

using Json = nlohmann::ordered_json;

// The job of the first operand, with what --set says, and then `settings` likewise.
void load_job(const Arguments& arguments, Job& job, const std::vector<std::string>& settings = {});
Json json_of(const Job& job);
std::string output_dir(const Job& job);  // "" where it writes nothing

// Opens the device that --device or the job names, and says which it is, on stderr where stdout is for JSON.
void open_runtime(const Arguments& arguments, const Job& job, Runtime& runtime);

// The same for a device that is named otherwise; `others` is said after its name.
void open_runtime(const Arguments& arguments, const std::string& device, Runtime& runtime,
                  const std::string& others = "");

// A trainer goes before what it stands on.
struct JobTrainer {
  JobTrainer(const Arguments& arguments, int32_t start);  // ETR_START_...
  Job job;
  Runtime runtime;
  Trainer trainer;
};

}  // namespace cli

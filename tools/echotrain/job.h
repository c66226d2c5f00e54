// A job with its device and its run, as the command line gives them.
#pragma once

#include <nlohmann/json.hpp>

#include "arguments.h"
#include "cli.h"

namespace cli {

using Json = nlohmann::ordered_json;

// Loads the job of the first operand, with the settings of --set, then `settings`.
void load_job(const Arguments& arguments, Job& job, const std::vector<std::string>& settings = {});
Json json_of(const Job& job);
std::string output_dir(const Job& job);  // "" if it writes nothing
std::string loss_of(const Json& job);    // its kind, also where the job leaves it to the default

// Opens the device that --device or the job names, and reports it, on stderr if stdout is for JSON.
void open_runtime(const Arguments& arguments, const Job& job, Runtime& runtime);

// The same for a given device; `others` is printed after its name.
void open_runtime(const Arguments& arguments, const std::string& device, Runtime& runtime,
                  const std::string& others = "");

// The order matters: the run is destroyed before the objects that it uses.
struct JobRun {
  JobRun(const Arguments& arguments, int32_t start);  // ETR_START_...
  Job job;
  Runtime runtime;
  Run run;
};

void trainer_of(const Run& run, Trainer& trainer);

}  // namespace cli

#include "job.h"

#include <algorithm>
#include <cstdio>

namespace cli {

void load_job(const Arguments& arguments, Job& job) {
  const std::vector<std::string> overrides = arguments.values("set");
  std::vector<const char*> pointers;
  for (const std::string& text : overrides) pointers.push_back(text.c_str());
  check(etr_job_load(arguments.operand(0).c_str(), pointers.data(),
                     static_cast<int32_t>(pointers.size()), job.out()));
}

Json json_of(const Job& job) {
  char* text = nullptr;
  check(etr_job_json(job.get(), &text));
  return Json::parse(take_string(text));
}

std::string output_dir(const Job& job) {
  char* directory = nullptr;
  check(etr_job_output_dir(job.get(), &directory));
  return take_string(directory);
}

void open_runtime(const Arguments& arguments, const Job& job, Runtime& runtime) {
  const std::string device = arguments.value("device", json_of(job).value("device", "")),
                    tuning = arguments.value("tuning");
  etr_runtime_options options{};
  options.struct_size = sizeof options;
  options.device = device.c_str();
  options.validation = arguments.flag("validation");
  const auto families =
      choices_of("automatic|cpu|tiled|matrix");  // as etr_runtime_options numbers them
  const auto family =
      std::find(families.begin(), families.end(), arguments.value("kernels", families[0]));
  options.kernels = static_cast<int32_t>(family - families.begin());
  if (!tuning.empty()) options.tuning = tuning.c_str();
  check(etr_prefer_wide_cpu_vectors());
  check(etr_runtime_create(&options, runtime.out()));
  etr_device_info info{};
  info.struct_size = sizeof info;
  check(etr_runtime_device(runtime.get(), &info));
  std::fprintf(arguments.flag("json") ? stderr : stdout, "device: %s (%s)\n", info.name,
               info.driver);
}

JobTrainer::JobTrainer(const Arguments& arguments, int32_t start) {
  load_job(arguments, job);
  open_runtime(arguments, job, runtime);
  const int32_t status = etr_trainer_start_job(runtime.get(), job.get(), start, trainer.out());
  if (status == ETR_NOT_FOUND && (start == ETR_START_RESUME || start == ETR_START_EVALUATE))
    throw Failure(std::string(etr_last_error()) + "; 'echotrain train " + arguments.operand(0) +
                  "' makes one");
  check(status);
}

}  // namespace cli

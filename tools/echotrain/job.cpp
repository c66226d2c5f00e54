#include "job.h"

#include <algorithm>
#include <cstdio>

namespace cli {

void load_job(const Arguments& arguments, Job& job, const std::vector<std::string>& settings) {
  std::vector<std::string> overrides = arguments.values("set");
  overrides.insert(overrides.end(), settings.begin(), settings.end());
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

std::string loss_of(const Json& job) {
  const bool detects = job.value("/model/model"_json_pointer, std::string()) == "ssd";
  return job.value("/model/loss/loss"_json_pointer,
                   std::string(detects ? "multibox" : "softmax_cross_entropy"));
}

std::string output_dir(const Job& job) {
  char* directory = nullptr;
  check(etr_job_output_dir(job.get(), &directory));
  return take_string(directory);
}

// Drivers that are themselves the device, such as lavapipe, repeat its name: "llvmpipe (LLVM 15,
// 256 bits), Mesa 22.3".
std::string device_text(const etr_device_info& info) {
  std::string name = info.name, driver = info.driver;
  const auto first_word = [](const std::string& text) { return text.substr(0, text.find(' ')); };
  if (first_word(name) == first_word(driver)) {
    driver.erase(0, std::min(driver.size(), first_word(driver).size() + 1));
    const size_t bracket = driver.rfind(" (");  // the compiler's version, which the name also has
    const std::string version =
        bracket == std::string::npos ? "" : driver.substr(bracket + 2, driver.size() - bracket - 3);
    if (!version.empty() && name.find(version) != std::string::npos) driver.resize(bracket);
  }
  return driver.empty() ? name : name + ", " + driver;
}

namespace {

// Returns this process's devices that train together; empty: the one of --device, or of the job.
std::vector<std::string> devices_of(const Json& job) {
  const Json devices = job.value("/parallel/devices"_json_pointer, Json::array());
  if (devices.is_string()) return {devices.get<std::string>()};  // a list of one
  return devices.get<std::vector<std::string>>();
}

}  // namespace

void open_runtime(const Arguments& arguments, const Job& job, Runtime& runtime) {
  const Json spec = json_of(job);
  const auto devices = devices_of(spec);  // the first is opened here, the others by the trainer
  open_runtime(arguments, devices.empty() ? spec.value("device", "") : devices.front(), runtime,
               devices.size() > 1 ? ", the first of " + std::to_string(devices.size()) : "");
}

void open_runtime(const Arguments& arguments, const std::string& otherwise, Runtime& runtime,
                  const std::string& others) {
  const std::string device = arguments.value("device", otherwise),
                    tuning = arguments.value("tuning");
  etr_runtime_options options{};
  options.struct_size = sizeof options;
  options.device = device.c_str();
  options.validation = arguments.flag("validation-layer");
  // In the numbering of etr_runtime_options.
  const auto families = choices_of("automatic|cpu|tiled|matrix");
  const auto family =
      std::find(families.begin(), families.end(), arguments.value("kernels", families[0]));
  options.kernels = static_cast<int32_t>(family - families.begin());
  if (!tuning.empty()) options.tuning = tuning.c_str();
  check(etr_prefer_wide_cpu_vectors());
  check(etr_runtime_create(&options, runtime.out()));
  etr_device_info info{};
  info.struct_size = sizeof info;
  check(etr_runtime_device(runtime.get(), &info));
  std::fprintf(arguments.flag("json") ? stderr : stdout, "device: %s%s\n",
               device_text(info).c_str(), others.c_str());
}

JobRun::JobRun(const Arguments& arguments, int32_t start) {
  load_job(arguments, job);
  const bool trains = start != ETR_START_EVALUATE && start != ETR_START_TRIAL;
  if (trains && arguments.flag("device") && !devices_of(json_of(job)).empty())
    throw UsageError(
        "the job names its devices in parallel.devices: give no --device, or --set "
        "parallel.devices=[]");
  open_runtime(arguments, job, runtime);
  check(etr_run_start(runtime.get(), job.get(), start, run.out()));
}

void trainer_of(const Run& run, Trainer& trainer) {
  check(etr_run_trainer(run.get(), trainer.out()));
}

}  // namespace cli

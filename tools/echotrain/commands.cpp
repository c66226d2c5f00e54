// The commands of the command line.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli.h"

namespace cli {
namespace {

using Json = nlohmann::ordered_json;

etr_runtime_options runtime_options(const Arguments& arguments, const std::string& device) {
  etr_runtime_options options{};
  options.struct_size = sizeof options;
  options.device = device.c_str();
  options.validation = arguments.flag("validation");
  const std::string kernels = arguments.value("kernels", "automatic");
  const std::vector<std::string> names = {"automatic", "cpu", "tiled", "matrix"};
  const auto name = std::find(names.begin(), names.end(), kernels);
  if (name == names.end())
    throw Failure("--kernels must be automatic, cpu, tiled or matrix, not " + kernels);
  options.kernels = static_cast<int32_t>(name - names.begin());
  return options;
}

// Opens the device that --device or the job names, and says which it is.
void open_runtime(const Arguments& arguments, const Job& job, Runtime& runtime) {
  const std::string device = arguments.value("device", json_of(job).value("device", ""));
  etr_runtime_options options = runtime_options(arguments, device);
  const std::string tuning = arguments.value("tuning");
  if (!tuning.empty()) options.tuning = tuning.c_str();
  check(etr_prefer_wide_cpu_vectors());
  check(etr_runtime_create(&options, runtime.out()));
  etr_device_info info{};
  info.struct_size = sizeof info;
  check(etr_runtime_device(runtime.get(), &info));
  std::printf("device: %s (%s)\n", info.name, info.driver);
}

// The job of the arguments with its device and trainer. A trainer goes before what it stands on.
struct JobTrainer {
  JobTrainer(const Arguments& arguments, bool resume) {
    load_job(arguments, job);
    open_runtime(arguments, job, runtime);
    check(etr_trainer_create_from_job(runtime.get(), job.get(), resume, trainer.out()));
  }
  Job job;
  Runtime runtime;
  Trainer trainer;
};

const std::vector<std::string> kJobOptions = {"set", "device", "kernels", "tuning"};

}  // namespace

void load_job(const Arguments& arguments, Job& job) {
  const std::vector<std::string> overrides = arguments.values("set");
  std::vector<const char*> pointers;
  for (const std::string& text : overrides) pointers.push_back(text.c_str());
  check(etr_job_load(arguments.required(0, "the job file").c_str(), pointers.data(),
                     static_cast<int32_t>(pointers.size()), job.out()));
}

Json json_of(const Job& job) {
  char* text = nullptr;
  check(etr_job_json(job.get(), &text));
  return Json::parse(take_string(text));
}

int command_devices(const std::vector<std::string>& words) {
  const Arguments arguments(words, {}, {});
  check(etr_prefer_wide_cpu_vectors());
  int32_t count = 0;
  check(etr_device_count(&count));
  if (count == 0)
    throw Failure("there is no Vulkan device; install mesa-vulkan-drivers for lavapipe");
  static const char* const kKinds[] = {"discrete GPU", "integrated GPU", "virtual GPU", "CPU",
                                       "other"};
  for (int32_t i = 0; i < count; ++i) {
    etr_device_info info{};
    info.struct_size = sizeof info;
    check(etr_device_get(i, &info));
    std::printf("%d: %s\n   %s, Vulkan %u.%u, %.1f GiB, subgroups of %u, driver %s\n", info.index,
                info.name, kKinds[info.kind], info.api_major, info.api_minor,
                static_cast<double>(info.memory_bytes) / (1 << 30), info.subgroup_size,
                info.driver);
  }
  return 0;
}

int command_train(const std::vector<std::string>& words) {
  const Arguments arguments(words, kJobOptions, {"resume", "validation"});
  JobTrainer run(arguments, arguments.flag("resume"));
  const etr_event end = run_with_progress(run.trainer.get(), json_of(run.job).value("name", "job"));
  std::printf(
      "%llu steps, %llu examples (%llu fresh, %llu echoed) in %.1f s; device waited %.1f %%\n",
      static_cast<unsigned long long>(end.step), static_cast<unsigned long long>(end.examples),
      static_cast<unsigned long long>(end.fresh), static_cast<unsigned long long>(end.echoed),
      end.seconds, 100 * end.device_wait_share);
  if (end.eval_accuracy > 0)
    std::printf("test accuracy %.2f %%, test loss %.4f\n", 100 * end.eval_accuracy, end.eval_loss);
  if (end.bad_records > 0)
    std::printf("%lld bad record%s left out\n", static_cast<long long>(end.bad_records),
                end.bad_records == 1 ? " was" : "s were");
  return 0;
}

int command_export(const std::vector<std::string>& words) {
  const Arguments arguments(words, kJobOptions, {});
  const std::string path = arguments.required(1, "the file to write");
  JobTrainer run(arguments, /*resume=*/true);
  check(etr_trainer_export_onnx(run.trainer.get(), path.c_str()));
  std::printf("wrote %s\n", path.c_str());
  return 0;
}

int command_profile(const std::vector<std::string>& words) {
  const Arguments arguments(words, {"set", "device", "kernels", "tuning", "steps", "trace"},
                            {"json"});
  JobTrainer run(arguments, /*resume=*/false);
  const int steps = std::stoi(arguments.value("steps", "10"));
  const auto profiled = [&](const char* format) {
    char* text = nullptr;
    check(etr_trainer_profile(run.trainer.get(), nullptr, steps, format, &text));
    return take_string(text);
  };
  std::printf("%s\n", profiled(arguments.flag("json") ? "json" : "text").c_str());
  const std::string path = arguments.value("trace");
  if (path.empty()) return 0;
  write_file(path, profiled("trace"));
  return 0;
}

namespace {

// Device time of a training step, in milliseconds.
double step_ms(const Trainer& trainer) {
  char* text = nullptr;
  check(etr_trainer_profile(trainer.get(), nullptr, 5, "json", &text));
  return 1e3 * Json::parse(take_string(text))["seconds"].get<double>();
}

}  // namespace

int command_tune_kernels(const std::vector<std::string>& words) {
  const Arguments arguments(words, {"set", "device", "kernels", "tuning", "out"}, {});
  JobTrainer run(arguments, /*resume=*/false);
  double old_ms = step_ms(run.trainer);  // its plan has asked for kernels
  ProgressLine line;
  const auto progress = [](void* user_data, int64_t done, int64_t total, const char* product,
                           const char* kernel) -> int32_t {
    static_cast<ProgressLine*>(user_data)->show(
        bar(static_cast<double>(done) / static_cast<double>(total), 20) + " " +
        std::to_string(done) + " of " + std::to_string(total) + "  " + product + ": " + kernel);
    return 1;
  };
  const std::string out = arguments.value("out");
  check(etr_runtime_tune(run.runtime.get(), out.empty() ? nullptr : out.c_str(), progress, &line));
  line.finish();
  Trainer tuned;
  check(etr_trainer_create_from_job(run.runtime.get(), run.job.get(), 0, tuned.out()));
  double new_ms = step_ms(tuned);
  old_ms = std::min(old_ms, step_ms(run.trainer));
  new_ms = std::min(new_ms, step_ms(tuned));
  std::printf("a training step takes the device %.2f ms, and took %.2f ms\n", new_ms, old_ms);
  if (!out.empty()) std::printf("use it with --tuning %s\n", out.c_str());
  return 0;
}

int command_eval(const std::vector<std::string>& words) {
  const Arguments arguments(words, kJobOptions, {"validation"});
  JobTrainer run(arguments, /*resume=*/true);
  etr_eval_result result{};
  result.struct_size = sizeof result;
  check(etr_trainer_evaluate(run.trainer.get(), nullptr, &result));
  std::printf("%lld samples: accuracy %.2f %%, loss %.4f\n", static_cast<long long>(result.samples),
              100 * result.accuracy, result.loss);
  return 0;
}

int command_pack(const std::vector<std::string>& words) {
  const Arguments arguments(words, {"format", "per-shard", "level", "seed"}, {});
  ProgressLine line;
  const auto progress = [](void* user_data, int64_t done, int64_t total) -> int32_t {
    static_cast<ProgressLine*>(user_data)->show(
        "packing " + bar(static_cast<double>(done) / static_cast<double>(total), 30) + " " +
        std::to_string(done) + " of " + std::to_string(total));
    return 1;
  };
  Json packing = Json::object();
  if (const std::string format = arguments.value("format"); !format.empty())
    packing["format"] = format;
  const std::pair<const char*, const char*> numbers[] = {
      {"per-shard", "per_shard"}, {"level", "level"}, {"seed", "seed"}};
  for (const auto& [argument, option] : numbers)
    if (const std::string value = arguments.value(argument); !value.empty())
      packing[option] = std::stoll(value);
  PackingOptions options;
  check(etr_options_create_from_json(packing.dump().c_str(), options.out()));
  char* text = nullptr;
  check(etr_pack(arguments.required(0, "the folder of class folders").c_str(),
                 arguments.required(1, "the prefix of the shards").c_str(), options.get(), progress,
                 &line, &text));
  line.finish();
  const Json result = Json::parse(take_string(text));
  std::printf("%lld samples of %zu classes in %zu shards, %.1f MB of images as %.1f MB\n",
              result["samples"].get<long long>(), result["classes"].size(), result["shards"].size(),
              result["bytes"].get<double>() * 1e-6, result["packed_bytes"].get<double>() * 1e-6);
  return 0;
}

int command_report(const std::vector<std::string>& words) {
  const Arguments arguments(words, {"out", "title", "target"}, {});
  std::vector<std::string> names, paths;
  for (const std::string& word : arguments.positional()) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) throw Failure("'" + word + "' is not NAME=metrics.jsonl");
    names.push_back(word.substr(0, equals));
    paths.push_back(word.substr(equals + 1));
  }
  std::vector<const char*> name_pointers, path_pointers;
  for (size_t i = 0; i < names.size(); ++i) {
    name_pointers.push_back(names[i].c_str());
    path_pointers.push_back(paths[i].c_str());
  }
  const std::string out = arguments.value("out", "report.html");
  check(etr_report_write(arguments.value("title", "EchoTrain report").c_str(), name_pointers.data(),
                         path_pointers.data(), static_cast<int32_t>(names.size()),
                         std::stod(arguments.value("target", "0")), out.c_str(), nullptr));
  std::printf("wrote %s\n", out.c_str());
  return 0;
}

int command_schema(const std::string& kind, const std::vector<std::string>& words) {
  const Arguments arguments(words, {}, {"json"});
  char* text = nullptr;
  check(etr_schema(kind.c_str(), &text));
  const std::string json = take_string(text);
  if (arguments.flag("json")) {
    std::printf("%s\n", json.c_str());
    return 0;
  }
  const auto print_options = [](const Json& options) {
    for (const Json& option : options) {
      std::string type = option["type"];
      if (option.contains("choices")) {
        type.clear();
        for (const Json& choice : option["choices"])
          type += (type.empty() ? "" : "|") + choice.get<std::string>();
      }
      std::printf("    %-22s %-18s %-12s %s\n", option["name"].get<std::string>().c_str(),
                  type.c_str(),
                  option.contains("default") ? option["default"].dump().c_str() : "required",
                  option["doc"].get<std::string>().c_str());
    }
  };
  const Json all = Json::parse(json);
  for (const auto& [key, row] : all.items()) {
    const bool section = all.is_object();
    std::printf("%s%s%s\n", section ? key.c_str() : row["name"].get<std::string>().c_str(),
                section ? "" : "  – ", section ? "" : row["doc"].get<std::string>().c_str());
    print_options(section ? row : row["options"]);
    std::printf("\n");
  }
  return 0;
}

}  // namespace cli

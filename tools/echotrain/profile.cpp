// echotrain profile and tune-kernels: the device time of a step.
#include <algorithm>
#include <cstdio>

#include "console.h"
#include "job.h"

namespace cli {
namespace {

std::string profiled(const Run& run, int32_t steps, const char* format) {
  char* text = nullptr;
  check(etr_run_profile(run.get(), steps, format, &text));
  return take_string(text);
}

// Returns the device time of a training step in milliseconds.
double step_ms(const Run& run) {
  return 1e3 * Json::parse(profiled(run, 5, "json"))["seconds"].get<double>();
}

struct Tuning {
  ProgressLine line;
  double began = now_seconds();
};

int32_t show_tuning(void* user_data, int64_t done, int64_t total, const char* product,
                    const char* kernel) {
  auto& tuning = *static_cast<Tuning*>(user_data);
  tuning.line.show(progress_text("tuning", done, total, now_seconds() - tuning.began) + "  " +
                   product + ": " + kernel);
  return interrupted() == 0;
}

}  // namespace

int command_profile(const Arguments& arguments) {
  const int32_t steps = arguments.integer("steps", 10, 1);
  JobRun started(arguments, ETR_START_TRIAL);
  std::printf("%s\n",
              profiled(started.run, steps, arguments.flag("json") ? "json" : "text").c_str());
  const std::string path = arguments.value("trace");
  if (!path.empty()) write_file(path, profiled(started.run, steps, "trace"));
  return 0;
}

int command_tune_kernels(const Arguments& arguments) {
  JobRun started(arguments, ETR_START_TRIAL);
  double old_ms = step_ms(started.run);  // its plan requests the kernels
  const std::string out = arguments.value("out");
  Tuning tuning;
  {
    const InterruptGuard guard;
    check(etr_runtime_tune(started.runtime.get(), out.empty() ? nullptr : out.c_str(), show_tuning,
                           &tuning));
    tuning.line.finish();
    if (interrupted()) throw Interrupted{"the kernels measured so far are kept"};
  }
  Run tuned;
  check(etr_run_start(started.runtime.get(), started.job.get(), ETR_START_TRIAL, tuned.out()));
  double new_ms = step_ms(tuned);
  old_ms = std::min(old_ms, step_ms(started.run));
  new_ms = std::min(new_ms, step_ms(tuned));
  std::printf("a training step takes the device %.2f ms, and took %.2f ms\n", new_ms, old_ms);
  if (!out.empty()) std::printf("use it with --tuning %s\n", out.c_str());
  return 0;
}

}  // namespace cli

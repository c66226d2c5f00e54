// echotrain demo: draws a data set, packs it, slows reading down to the pace of a slow network, and
// trains the same small CNN without and with an echo node. With several seeds, medians are shown,
// because it depends on luck where a curve first crosses the target.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "console.h"
#include "demo_job.h"
#include "digits.h"
#include "job.h"

namespace cli {
namespace {

namespace fs = std::filesystem;

constexpr int kTrain = 8000, kTest = 2000, kBatch = 64;
// On the steep part of the curve, where noise moves the crossing least.
constexpr double kTarget = 0.93;
constexpr double kUpstreamFactor = 4;  // how much slower reading is than training
constexpr double kMostSteps = 200;     // twice as many as runs without echo usually take

// Keeps the demo out of folders that are not its own, since it replaces earlier runs.
void claim(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder, error) && !fs::is_directory(folder, error))
    throw Mistake("'" + folder.string() + "' is not a folder");
  const bool is_empty = !fs::exists(folder, error) || fs::is_empty(folder, error);
  if (!is_empty && !fs::exists(folder / "data", error))
    throw Mistake("'" + folder.string() + "' holds other files; name a new folder");
  fs::create_directories(folder / "data", error);
  if (error)
    throw Failure("cannot create '" + (folder / "data").string() + "' (" + error.message() +
                  "); name a folder that can be written");
}

// Draws and packs the images, unless an earlier demo has.
void make_data(const fs::path& data) {
  if (fs::exists(data / "ready")) return;
  fs::remove_all(data);  // what an interrupted demo has left
  for (const bool train : {true, false}) {
    const std::string name = train ? "train" : "test";
    const int count = train ? kTrain : kTest;
    ProgressLine line;
    digits::draw((data / "png" / name).string(), count, train ? 1 : 2, [&](int done) {
      if (interrupted()) throw Interrupted{};
      line.show("drawing " + name + " " + bar(static_cast<double>(done) / count, 30) + " " +
                std::to_string(done) + " images");
    });
    check(etr_pack((data / "png" / name).string().c_str(), (data / name).string().c_str(), nullptr,
                   nullptr, nullptr, nullptr));
  }
  if (interrupted()) throw Interrupted{};
  fs::remove_all(data / "png");
  if (!std::ofstream(data / "ready")) throw Failure("cannot write into '" + data.string() + "'");
}

std::vector<const char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<const char*> out;
  for (const std::string& text : texts) out.push_back(text.c_str());
  return out;
}

struct RunOptions {
  std::string name, out;
  double delay_ms = 0, echo = 1, seconds = 0;
  int64_t seed = 1;
};

etr_event train(const Runtime& runtime, const fs::path& data, const RunOptions& options) {
  const std::vector<std::string> overrides = {
      "data=" + data.string(), "out=" + options.out, "seed=" + std::to_string(options.seed),
      "pipeline.stages.2.milliseconds=" + std::to_string(options.delay_ms),
      "pipeline.stages.5.factor=" + std::to_string(options.echo),
      // Without echo there are no copies to spread, and filling a buffer would only delay the run.
      "pipeline.stages.5.buffer=" + std::to_string(options.echo > 1 ? 1000 : 1),
      "train.seconds=" + std::to_string(options.seconds),
      "evaluation.target_accuracy=" + std::to_string(kTarget)};
  Job job;
  check(etr_job_parse(kDemoJob, pointers_to(overrides).data(),
                      static_cast<int32_t>(overrides.size()), job.out()));
  Run run;
  check(etr_run_start(runtime.get(), job.get(), ETR_START_OVERWRITE, run.out()));
  const etr_event end = run_with_progress(run.get(), options.name, options.seconds).event;
  if (interrupted()) throw Interrupted{};
  if (end.step == 0)
    throw Failure(options.name + ": no step in " + time_text(options.seconds) +
                  "; give more with --seconds");
  return end;
}

// Returns the milliseconds of a step that nothing holds up.
double measure_step(const Runtime& runtime, const fs::path& data) {
  const etr_event event = train(runtime, data, {"measuring a step", "", 0, 4, 5});
  if (event.step < 2) throw Failure("the device took no second step in 5 seconds");
  return 1000 * event.seconds / static_cast<double>(event.step - 1);
}

// The metrics files of the runs, and the report's names for them.
struct Runs {
  std::vector<std::string> names, metrics;
};

// Runs seed by seed, without and with echo in turn, so that a slow phase of the machine affects
// both.
Runs compare(const Runtime& runtime, const fs::path& folder, double delay_ms, int64_t seeds,
             double seconds) {
  Runs runs;
  for (int64_t seed = 1; seed <= seeds; ++seed)
    for (const bool echoes : {false, true}) {
      const std::string name = echoes ? "with echo" : "without echo", number = std::to_string(seed);
      const fs::path out = folder / ((echoes ? "with-echo-" : "without-echo-") + number);
      train(runtime, folder / "data",
            {seeds > 1 ? name + ", seed " + number : name, out.string(), delay_ms,
             echoes ? kUpstreamFactor : 1, seconds, seed});
      runs.names.push_back(name);
      runs.metrics.push_back((out / "metrics.jsonl").string());
    }
  return runs;
}

// Writes the report and returns the rows of its table.
Json write_report(const Runs& runs, const std::string& path) {
  char* text = nullptr;
  check(etr_report_write("Data echoing on a slow upstream", pointers_to(runs.names).data(),
                         pointers_to(runs.metrics).data(), static_cast<int32_t>(runs.names.size()),
                         kTarget, path.c_str(), &text));
  return Json::parse(take_string(text));
}

std::string number(const Json& value, const char* format) {
  if (value.is_null()) return "-";
  char text[64];
  std::snprintf(text, sizeof text, format, value.get<double>());
  return text;
}

// "> 90.0 s" if half of the runs ended before the target.
std::string time_cell(const Json& row) {
  const bool missed = row["time_to_target_s"].is_null();
  return (missed ? "> " : "") + number(row[missed ? "seconds" : "time_to_target_s"], "%.1f s");
}

// "3.42 x (3.31 to 3.60)": the median and the range over the seeds.
std::string speedup_cell(const Json& row) {
  if (row["speedup"].is_null()) return "-";
  const std::string median =
      (row["speedup_is_bound"].get<bool>() ? "> " : "") + number(row["speedup"], "%.2f x");
  if (row["speedup_range"].is_null()) return median;
  return median + " (" + number(row["speedup_range"][0], "%.2f") + " to " +
         number(row["speedup_range"][1], "%.2f") + ")";
}

void print_table(const Json& table, int64_t seeds) {
  if (seeds > 1)
    std::printf("\nmedians of %s, with the range of the speed-up", counted(seeds, "seed").c_str());
  std::printf("\n%-14s %14s %24s %16s %8s %12s\n", "run", "time to 93 %", "speed-up",
              "fresh to 93 %", "steps", "device idle");
  for (const Json& row : table)
    std::printf("%-14s %14s %24s %16s %8s %10.1f %%\n", row["name"].get<std::string>().c_str(),
                time_cell(row).c_str(), speedup_cell(row).c_str(),
                number(row["fresh_to_target"], "%.0f").c_str(),
                number(row["steps"], "%.0f").c_str(), 100 * row["device_wait_share"].get<double>());
}

}  // namespace

int command_demo(const Arguments& arguments) {
  const fs::path folder =
      arguments.operands().empty() ? "echotrain-demo" : fs::path(arguments.operand(0));
  const int64_t seeds = arguments.integer("seeds").value_or(1);
  const double limit = arguments.number("seconds", 90);
  if (seeds < 1 || seeds > 100) throw UsageError("--seeds must be 1 to 100");
  if (limit < 1) throw UsageError("--seconds must be at least 1");
  claim(folder);
  Runtime runtime;
  open_runtime(arguments, "", runtime);
  {
    const InterruptGuard guard;
    make_data(folder / "data");
  }
  const double step_ms = measure_step(runtime, folder / "data");
  const double delay_ms = kUpstreamFactor * step_ms / kBatch;
  std::printf(
      "a training step takes %.1f ms; reading one example is made to take %.2f ms, so that "
      "upstream is %.0f times slower\n",
      step_ms, delay_ms, kUpstreamFactor);
  const double seconds = arguments.flag("seconds")
                             ? limit
                             : std::max(limit, kMostSteps * kUpstreamFactor * step_ms / 1000);
  const std::string report = (folder / "report.html").string();
  print_table(write_report(compare(runtime, folder, delay_ms, seeds, seconds), report), seeds);
  std::printf("\nreport: %s\n", report.c_str());
  return 0;
}

}  // namespace cli

// The quickstart: draws a data set, packs it, slows reading down to the pace of a slow network, and
// trains the same small CNN without and with an echo node. Each is run from several seeds, because
// it depends on luck where a curve first crosses the target. Everything except the drawing uses the
// C API.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli.h"
#include "console.h"
#include "dataset.h"

namespace quickstart {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kTrain = 8000, kTest = 2000, kBatch = 64;
constexpr double kTarget =
    0.93;  // on the steep part of the curve, where noise moves the crossing least
constexpr int kSeeds = 3;
constexpr double kUpstreamFactor = 4;  // how much slower reading is than training
constexpr double kMostSeconds = 90;    // of one run, which ends once it has reached the target

void make_data(const fs::path& data) {
  if (fs::exists(data / "ready")) return;  // made by an earlier quickstart
  for (const bool train : {true, false}) {
    const std::string name = train ? "train" : "test";
    const int count = train ? kTrain : kTest;
    cli::ProgressLine line;
    draw_folder(data / "png" / name, count, train ? 1 : 2, [&](int done) {
      line.show("drawing " + name + " " + cli::bar(static_cast<double>(done) / count, 30) + " " +
                std::to_string(done) + " images");
    });
    cli::check(etr_pack_folder((data / "png" / name).c_str(), (data / name).c_str(), 1000, 3, 0,
                               nullptr, nullptr, nullptr));
  }
  std::fclose(std::fopen((data / "ready").c_str(), "w"));
}

struct RunOptions {
  std::string name, out;
  double delay_ms = 0, echo = 1, seconds = 0;
  int seed = 1;
};

etr_event run(const etr_runtime* runtime, const std::string& job_file, const std::string& data,
              const RunOptions& options) {
  const std::vector<std::string> overrides = {
      "data=" + data, "out=" + options.out, "seed=" + std::to_string(options.seed),
      "pipeline.stages.2.milliseconds=" + std::to_string(options.delay_ms),
      "pipeline.stages.5.factor=" + std::to_string(options.echo),
      // Without echo there are no copies to spread, and filling a buffer would only delay the run.
      "pipeline.stages.5.buffer=" + std::to_string(options.echo > 1 ? 1000 : 1),
      "train.seconds=" + std::to_string(options.seconds),
      "evaluation.target_accuracy=" + std::to_string(kTarget)};
  std::vector<const char*> pointers;
  for (const std::string& text : overrides) pointers.push_back(text.c_str());
  cli::Job job;
  cli::check(etr_job_load(job_file.c_str(), pointers.data(), static_cast<int32_t>(pointers.size()),
                          job.out()));
  cli::Run run;
  cli::check(
      etr_run_start(const_cast<etr_runtime*>(runtime), job.get(), ETR_START_OVERWRITE, run.out()));
  const etr_event end = cli::run_with_progress(run.get(), options.name, options.seconds).event;
  if (cli::interrupted()) throw cli::Interrupted{};
  return end;
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

void print_table(const Json& table) {
  std::printf(
      "\nmedians of %d seeds, with the range of the speed-up\n%-14s %14s %24s %16s %8s %12s\n",
      kSeeds, "run", "time to 93 %", "speed-up", "fresh to 93 %", "steps", "device idle");
  for (const Json& row : table)
    std::printf("%-14s %14s %24s %16s %8s %10.1f %%\n", row["name"].get<std::string>().c_str(),
                time_cell(row).c_str(), speedup_cell(row).c_str(),
                number(row["fresh_to_target"], "%.0f").c_str(),
                number(row["steps"], "%.0f").c_str(), 100 * row["device_wait_share"].get<double>());
}

// Returns the milliseconds of a step that nothing holds up.
double calibrate(const etr_runtime* runtime, const std::string& job_file, const std::string& data) {
  const etr_event event = run(runtime, job_file, data, {"calibrating", "", 0, 4, 5});
  if (event.step < 2) throw std::runtime_error("the device took no second step in 5 seconds");
  return 1000 * event.seconds / static_cast<double>(event.step - 1);
}

// The metrics files of the runs, and the report's names for them.
struct Runs {
  std::vector<std::string> names, metrics;
};

// Runs seed by seed, without and with echo in turn, so that a slow phase of the machine affects
// both.
Runs compare(const etr_runtime* runtime, const std::string& job_file, const fs::path& out,
             double delay_ms) {
  Runs runs;
  for (int seed = 1; seed <= kSeeds; ++seed)
    for (const bool echoes : {false, true}) {
      const std::string name = echoes ? "with echo" : "without echo", number = std::to_string(seed);
      const fs::path folder = out / ((echoes ? "with-echo-" : "without-echo-") + number);
      RunOptions options{name + ", seed " + number, folder.string(), delay_ms};
      options.echo = echoes ? kUpstreamFactor : 1;
      options.seconds = kMostSeconds;
      options.seed = seed;
      run(runtime, job_file, (out / "data").string(), options);
      runs.names.push_back(name);
      runs.metrics.push_back((folder / "metrics.jsonl").string());
    }
  return runs;
}

std::vector<const char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<const char*> out;
  for (const std::string& text : texts) out.push_back(text.c_str());
  return out;
}

void open_device(cli::Runtime& runtime) {
  etr_runtime_options options{};
  options.struct_size = sizeof options;
  options.device = std::getenv("ECHOTRAIN_DEVICE");
  cli::check(etr_runtime_create(&options, runtime.out()));
  etr_device_info info{};
  info.struct_size = sizeof info;
  cli::check(etr_runtime_device(runtime.get(), &info));
  std::printf("device: %s\n", info.name);
}

int main_or_throw(const std::string& job_file, const fs::path& out) {
  const fs::path data = out / "data";
  fs::create_directories(data);
  make_data(data);

  cli::Runtime runtime;
  open_device(runtime);
  const double step_ms = calibrate(runtime.get(), job_file, data.string());
  const double delay_ms = kUpstreamFactor * step_ms / kBatch;
  std::printf(
      "a training step takes %.1f ms; reading one example is made to take %.2f ms, so that "
      "upstream is %.0f times slower\n",
      step_ms, delay_ms, kUpstreamFactor);

  const Runs runs = compare(runtime.get(), job_file, out, delay_ms);
  const std::string report = (out / "report.html").string();
  char* text = nullptr;
  cli::check(etr_report_write("Data echoing on a slow upstream", pointers_to(runs.names).data(),
                              pointers_to(runs.metrics).data(),
                              static_cast<int32_t>(runs.names.size()), kTarget, report.c_str(),
                              &text));
  print_table(Json::parse(cli::take_string(text)));
  std::printf("\nreport: %s\n", report.c_str());
  return 0;
}

}  // namespace
}  // namespace quickstart

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: quickstart JOB.json OUTPUT_FOLDER\n");
    return 2;
  }
  try {
    cli::check(etr_prefer_wide_cpu_vectors());
    return quickstart::main_or_throw(argv[1], argv[2]);
  } catch (const cli::Interrupted& interruption) {
    return cli::exit_status(interruption);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "quickstart: %s\n", error.what());
    return 1;
  }
}

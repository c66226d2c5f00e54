// The quickstart: draws a data set, packs it, slows its reading down as a slow network would, and
// trains the same small CNN without and with an echo node. Everything but the drawing goes through
// the C API.
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
constexpr double kTarget = 0.97;
constexpr double kUpstreamFactor = 4;  // how much slower reading is than training

void make_data(const fs::path& data) {
  if (fs::exists(data / "ready")) return;  // an earlier quickstart made it
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
};

etr_event run(const etr_runtime* runtime, const std::string& job_file, const std::string& data,
              const RunOptions& options) {
  const std::vector<std::string> overrides = {
      "data=" + data, "out=" + options.out,
      "pipeline.stages.2.milliseconds=" + std::to_string(options.delay_ms),
      "pipeline.stages.5.factor=" + std::to_string(options.echo),
      // Without echoes there are no copies to spread, and filling a buffer would only delay the
      // run.
      "pipeline.stages.5.buffer=" + std::to_string(options.echo > 1 ? 1000 : 1),
      "train.seconds=" + std::to_string(options.seconds),
      "evaluation.target_accuracy=" + std::to_string(kTarget)};
  std::vector<const char*> pointers;
  for (const std::string& text : overrides) pointers.push_back(text.c_str());
  cli::Job job;
  cli::check(etr_job_load(job_file.c_str(), pointers.data(), static_cast<int32_t>(pointers.size()),
                          job.out()));
  cli::Trainer trainer;
  cli::check(etr_trainer_start_job(const_cast<etr_runtime*>(runtime), job.get(),
                                   ETR_START_OVERWRITE, trainer.out()));
  const etr_event end = cli::run_with_progress(trainer.get(), options.name, options.seconds).event;
  if (cli::interrupted()) throw cli::Interrupted{};
  return end;
}

std::string cell(const Json& value, const char* format) {
  if (value.is_null()) return "-";
  char text[64];
  std::snprintf(text, sizeof text, format, value.get<double>());
  return text;
}

// "> 90.0 s" where a run ended before the target.
std::string time_cell(const Json& row) {
  const bool missed = row["time_to_target_s"].is_null();
  return (missed ? "> " : "") + cell(row[missed ? "seconds" : "time_to_target_s"], "%.1f s");
}

std::string speedup_cell(const Json& row) {
  const bool bound = row["speedup_is_bound"].get<bool>() && !row["speedup"].is_null();
  return (bound ? "> " : "") + cell(row["speedup"], "%.2f x");
}

void print_table(const Json& table) {
  std::printf("\n%-14s %14s %10s %16s %8s %16s %12s\n", "run", "time to 97 %", "speed-up",
              "fresh to 97 %", "steps", "final accuracy", "device idle");
  for (const Json& row : table)
    std::printf("%-14s %14s %10s %16s %8s %14.1f %% %10.1f %%\n",
                row["name"].get<std::string>().c_str(), time_cell(row).c_str(),
                speedup_cell(row).c_str(), cell(row["fresh_to_target"], "%.0f").c_str(),
                cell(row["steps"], "%.0f").c_str(), 100 * row["final_accuracy"].get<double>(),
                100 * row["device_wait_share"].get<double>());
}

int main_or_throw(const std::string& job_file, const fs::path& out) {
  const fs::path data = out / "data";
  fs::create_directories(data);
  make_data(data);

  cli::Runtime runtime;
  const char* device = std::getenv("ECHOTRAIN_DEVICE");
  etr_runtime_options options{};
  options.struct_size = sizeof options;
  options.device = device;
  cli::check(etr_runtime_create(&options, runtime.out()));
  etr_device_info info{};
  info.struct_size = sizeof info;
  cli::check(etr_runtime_device(runtime.get(), &info));
  std::printf("device: %s\n", info.name);

  // How long does a step take when nothing holds it back? The delay follows from that.
  const etr_event free_run =
      run(runtime.get(), job_file, data.string(), {"calibrating", "", 0, 4, 5});
  if (free_run.step < 2) throw std::runtime_error("the device took no second step in 5 seconds");
  const double step_ms = 1000 * free_run.seconds / static_cast<double>(free_run.step - 1);
  const double delay_ms = kUpstreamFactor * step_ms / kBatch;
  std::printf(
      "a training step takes %.1f ms; reading one example is made to take %.2f ms, so that "
      "upstream is "
      "%.0f times slower\n",
      step_ms, delay_ms, kUpstreamFactor);

  const double seconds = 90;  // at most: a run ends when it has reached the target
  const std::string plain = (out / "without-echo").string(), echo = (out / "with-echo").string();
  run(runtime.get(), job_file, data.string(), {"without echo", plain, delay_ms, 1, seconds});
  run(runtime.get(), job_file, data.string(),
      {"with echo   ", echo, delay_ms, kUpstreamFactor, seconds});

  const std::string metrics[] = {plain + "/metrics.jsonl", echo + "/metrics.jsonl"};
  const char* const names[] = {"without echo", "with echo"};
  const char* const paths[] = {metrics[0].c_str(), metrics[1].c_str()};
  const std::string report = (out / "report.html").string();
  char* text = nullptr;
  cli::check(etr_report_write("Data echoing on a slow upstream", names, paths, 2, kTarget,
                              report.c_str(), &text));
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

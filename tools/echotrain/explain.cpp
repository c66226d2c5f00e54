// echotrain explain and tune: run a job's pipeline without training, say what limits it, find
// better settings.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <thread>

#include "console.h"
#include "job.h"

namespace cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Returns the pipeline of a job file, or of a file that holds only a pipeline, to be run only to
// look at it.
Json pipeline_of(const Arguments& arguments, bool trace) {
  const std::string path = arguments.operand(0);
  // The largest document that is read here; load_job() reports what else is wrong with a file.
  constexpr uintmax_t kMost = uintmax_t{64} << 20;
  std::error_code error;
  const bool regular = std::filesystem::is_regular_file(path, error);
  std::string text;
  if (regular && std::filesystem::file_size(path, error) <= kMost) {
    std::ifstream in(std::filesystem::path{path});
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  bool deep = false;  // too deeply nested, which load_job() reports
  const auto shallow = [&deep](int depth, Json::parse_event_t, Json&) {
    deep = deep || depth > 256;
    return depth <= 256;
  };
  const Json file =
      Json::parse(text, shallow, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  Json pipeline = file;
  if (!deep && file.is_object() && file.contains("stages")) {
    if (!arguments.values("set").empty())
      throw UsageError("--set changes keys of a job, and '" + path + "' holds only a pipeline");
    // The library rejects duplicate keys; this program has seen only the last of each.
    Pipeline checked;
    check(etr_pipeline_create_from_json(text.c_str(), checked.out()));
  } else {
    Job job;
    load_job(arguments, job);
    const Json whole = json_of(job);
    pipeline = whole["pipeline"];
    if (!pipeline.contains("seed") && whole.contains("seed")) pipeline["seed"] = whole["seed"];
  }
  if (trace && !pipeline.contains("trace_events")) pipeline["trace_events"] = 200000;
  // Its files may be those of the run that is explained: a decision log, for instance, would be
  // taken for that of a run that began anew.
  pipeline["write_files"] = false;
  return pipeline;
}

// Reads batches for a while and releases them at once; `step_ms` simulates a training step.
void consume(etr_pipeline* pipeline, double seconds, double step_ms) {
  ProgressLine line;
  const InterruptGuard guard;
  const auto begin = Clock::now();
  int ends = 0;  // ends in a row; after two, a pipeline with fixed epochs is over
  while (seconds_since(begin) < seconds && ends < 2) {
    line.show("running " + bar(std::min(1.0, seconds_since(begin) / seconds), 30));
    if (interrupted()) throw Interrupted{};
    const double left = seconds - seconds_since(begin);
    if (check(etr_pipeline_wait(pipeline, std::min(left, 0.1))) == ETR_END) continue;
    Batch batch;
    if (check(etr_pipeline_next(pipeline, batch.out())) == ETR_END) {
      ++ends;
      continue;
    }
    ends = 0;
    std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(step_ms));
  }
  line.finish();
}

std::string explained(etr_pipeline* pipeline, const char* format) {
  char* text = nullptr;
  check(etr_pipeline_explain(pipeline, format, &text));
  return take_string(text);
}

}  // namespace

int command_explain(const Arguments& arguments) {
  const std::string trace_path = arguments.value("trace"), svg_path = arguments.value("svg");
  Pipeline pipeline;
  check(etr_pipeline_create_from_json(pipeline_of(arguments, !trace_path.empty()).dump().c_str(),
                                      pipeline.out()));
  consume(pipeline.get(), arguments.number("seconds", 5), arguments.number("step-ms", 0));
  std::printf("%s\n", explained(pipeline.get(), arguments.flag("json") ? "json" : "text").c_str());
  if (!svg_path.empty()) write_file(svg_path, explained(pipeline.get(), "svg"));
  if (!trace_path.empty()) {
    char* text = nullptr;
    check(etr_pipeline_trace(pipeline.get(), &text));
    write_file(trace_path, take_string(text));
  }
  return 0;
}

int command_tune_pipeline(const Arguments& arguments) {
  const auto show = [](void*, const char* text) -> int32_t {
    const Json trial = Json::parse(text);
    for (const auto& [key, value] : trial.items())
      if (value.is_number_integer()) std::printf("%s %-3d ", key.c_str(), value.get<int>());
    if (trial.contains("error"))
      std::printf(" does not work: %s\n", trial["error"].get<std::string>().c_str());
    else
      std::printf(" %10.0f samples/s\n", trial["samples_per_s"].get<double>());
    std::fflush(stdout);
    return 1;
  };
  char* text = nullptr;
  {
    const InterruptEnds guard;
    check(etr_pipeline_tune(pipeline_of(arguments, false).dump().c_str(),
                            arguments.number("seconds", 2), arguments.number("step-ms", 0), show,
                            nullptr, &text));
  }
  const std::string result = take_string(text);
  const std::string out = arguments.value("out", "tuned.json");
  std::printf("best: %s\n", Json::parse(result)["options"].dump().c_str());
  write_file(out, result);
  std::printf("use it with --set pipeline.tuned=%s\n", out.c_str());
  return 0;
}

}  // namespace cli

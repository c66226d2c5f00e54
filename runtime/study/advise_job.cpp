#include "study/advise_job.h"

#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/format_text.h"
#include "core/json.h"
#include "study/advise_pipeline.h"

namespace etr::study {
namespace {

Json echo_stage(const Json& echo) {
  Json out{
      {"stage", "echo"}, {"factor", echo["factor"]}, {"buffer", echo["buffer"].get<int64_t>()}};
  if (echo.contains("buffer_bytes")) out["buffer_bytes"] = echo["buffer_bytes"].get<int64_t>();
  if (echo["mode"] != "fixed") out["mode"] = echo["mode"];
  if (echo["device"].get<bool>()) out["device"] = true;
  return out;
}

const Json* threads_of(const Json& advice) {
  for (const Json& row : advice["other_advice"])
    if (row["change"] == "threads") return &row;
  return nullptr;
}

// Returns the document as it was read, with the parts that advice changes.
Json changeable(const train::Job& job) {
  Json out = job.written();
  const Json& resolved = job.json();
  Json& pipeline = out["pipeline"];
  if (!pipeline.is_object()) pipeline = resolved["pipeline"];
  if (!pipeline["stages"].is_array()) pipeline["stages"] = resolved["pipeline"]["stages"];
  // Adding a key moves the others, so no reference is kept across it.
  Json& output = out["output"];
  if (!output.is_object()) output = resolved["output"];
  // The default may come from the file's name, which differs for the changed job.
  if (!output.contains("dir") && job.output_dir()) output["dir"] = *job.output_dir();
  return out;
}

// Goes through the stages as written, and decides by the values of their options.
Json without_echoes(const train::Job& job, const Json& written, bool helps,
                    std::vector<std::string>& changes) {
  Json stages = Json::array();
  for (size_t i = 0; i < job.pipeline()["stages"].size(); ++i) {
    const Json& stage = job.pipeline()["stages"][i];
    const Json& text = written["pipeline"]["stages"][i];
    const bool is_echo = stage["stage"] == "echo";
    const bool idle = !helps && is_echo && stage["factor"].get<double>() == 1;
    if (is_echo && !idle)
      changes.push_back(cat("removed ", text.dump()));
    else
      stages.push_back(text);
  }
  return stages;
}

std::string line_of(const char* name, double predicted, const Json& rates) {
  return format_text("  %-14s %11.0f %11.0f %9.2f %9.0f %11.0f %%   prediction / outcome %.2f\n",
                     name, predicted, rates["examples_per_s"].get<double>(),
                     rates["steps_per_s"].get<double>(), rates["fresh_per_s"].get<double>(),
                     100 * rates["device_wait_share"].get<double>(),
                     predicted / rates["examples_per_s"].get<double>());
}

std::string checked_text(const Json& advice) {
  const std::string head =
      format_text("\nChecked, in turns\n  %-14s %11s %11s %9s %9s %13s\n", "examples/s",
                  "predicted", "measured", "steps/s", "fresh/s", "device waits");
  const Json& checked = advice["checked"];
  const double now = advice["baseline"]["examples_per_s"],
               then = advice["changed"]["examples_per_s"];
  std::string out = head + line_of("as it is", now, checked["baseline"]);
  return checked.contains("changed") ? out + line_of("changed", then, checked["changed"]) : out;
}

// Adds the keys of versions in development, for programs that read them. To be removed in 0.2.
void add_former_keys(Json& advice) {
  constexpr std::pair<const char*, const char*> kFormer[] = {{"upstream_to_step_ratio", "r"},
                                                             {"keep_echo", "keeps"},
                                                             {"baseline", "as_it_is"},
                                                             {"candidates", "edges"},
                                                             {"other_advice", "others"}};
  for (const auto& [key, former] : kFormer) advice[former] = Json(advice[key]);
  if (advice.contains("checked")) {
    Json& checked = advice["checked"];
    checked["as_it_is"] = Json(checked["baseline"]);
  }
}

}  // namespace

Json advised_job(const train::Job& job, const Json& advice, std::vector<std::string>& changes) {
  Json out = changeable(job);
  const bool helps = advice["helps"].get<bool>(), keeps = advice["keep_echo"].get<bool>();
  if (!keeps) out["pipeline"]["stages"] = without_echoes(job, out, helps, changes);
  if (helps && !keeps) {
    const Json echo = echo_stage(advice["echo"]);
    out["pipeline"] = with_echo(out["pipeline"], advice["echo"]["after"].get<size_t>(), echo);
    changes.push_back(
        cat("added ", echo.dump(), " after '", advice["echo"]["stage"].get<std::string>(), "'"));
  }
  if (const Json* threads = threads_of(advice)) {
    out["pipeline"]["threads"] = (*threads)["threads"].get<int64_t>();
    changes.push_back(cat("pipeline.threads is ", (*threads)["threads"].get<int64_t>()));
  }
  if (!changes.empty() && job.output_dir().value_or("") != "") {
    Json& dir = out["output"]["dir"];
    std::string folder = dir.get<std::string>();
    while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    dir = folder + "-advised";
    changes.push_back(cat("output.dir is '", dir.get<std::string>(), "'"));
  }
  return out;
}

Json advise_job(std::shared_ptr<gpu::Kernels> kernels, const train::Job& job,
                const AdviseOptions& options, bool checks) {
  Measured measured = measure(kernels, job, options);
  Json out = advise(measured);
  std::vector<std::string> changes;
  const Json written = advised_job(job, out, changes);
  const train::Job changed = train::Job::parse(written.dump(), "the job as advised");
  if (threads_of(out)) measured.threads = measured.cores;
  std::vector<EchoAt> echoes;
  if (out["keep_echo"].get<bool>())
    echoes = measured.echoes;
  else if (out["helps"].get<bool>())
    echoes.push_back({out["echo"]["after"].get<size_t>(), out["echo"]["factor"].get<double>(),
                      /*adapts=*/out["echo"]["mode"] != "fixed"});
  const Prediction then = predict(measured, echoes);
  out["changed"] = {{"examples_per_s", 1 / then.example_s},
                    {"seconds_per_fresh_equivalent", then.equivalent_s},
                    {"limit", then.limit}};
  out["job"] = written;
  out["changes"] = changes;
  if (checks) out["checked"] = compare(kernels, job, changes.empty() ? nullptr : &changed, options);
  std::string text = advice_text(out);
  if (checks) text += checked_text(out);
  out["text"] = text;
  add_former_keys(out);
  return out;
}

}  // namespace etr::study

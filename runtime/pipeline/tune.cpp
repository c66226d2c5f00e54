#include "pipeline/tune.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/error.h"
#include "core/json.h"
#include "core/options.h"
#include "core/platform.h"
#include "pipeline/pipeline.h"

namespace etr::pipeline {
namespace {

// The rate in samples per second with these options.
double rate_of(const Json& spec, const MapFunctions& functions, const TuneOptions& options) {
  Pipeline trial(spec, functions);
  Item item;
  int64_t samples = 0, begin = 0;
  int ends = 0;  // consecutive ends of epochs without a batch
  while (begin == 0 || seconds_between(begin, now_ns()) < options.seconds) {
    if (trial.next(item) != Pipeline::Next::item) {
      if (++ends > 2)
        fail(Code::invalid_argument, "tune: the pipeline gives no batch: ", trial.why_empty(),
             " (set drop_remainder to false in the batch stage to measure fewer)");
      continue;
    }
    ends = 0;
    if (begin == 0) {  // start-up time is not measured
      begin = now_ns();
      continue;
    }
    samples += std::max(item.batch.size, 1);
    item = {};
    if (options.step_ms > 0)
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(options.step_ms));
  }
  return static_cast<double>(samples) / seconds_between(begin, now_ns());
}

bool reads_network(const Json& spec) {
  const std::string text = spec["stages"].dump();
  return text.find("https://") != std::string::npos || text.find("http://") != std::string::npos ||
         text.find("s3://") != std::string::npos;
}

std::vector<int64_t> doublings(int64_t most) {
  std::vector<int64_t> out;
  for (int64_t n = 1; n < most; n *= 2) out.push_back(n);
  out.push_back(most);
  return out;
}

}  // namespace

size_t first_as_good(std::span<const double> rates) {
  constexpr double kAsGood = 0.97;  // of the best rate
  const double best = *std::max_element(rates.begin(), rates.end());
  const auto good = [&](double rate) { return rate >= kAsGood * best; };
  return static_cast<size_t>(std::find_if(rates.begin(), rates.end(), good) - rates.begin());
}

Json tune(const Json& spec, const MapFunctions& functions, const TuneOptions& options) {
  if (!spec.is_object() || !spec.contains("stages"))
    fail(Code::invalid_argument, "tune: the pipeline has no 'stages'");
  Json trial_spec = without_side_files(spec);
  trial_spec["epochs"] = 0;  // trials end by time
  Json chosen = Json::object(), trials = Json::array();
  double best_rate = 0;
  const auto try_all = [&](const char* option, const std::vector<int64_t>& values) {
    std::vector<double> rates;
    std::optional<Error> refused;  // of the first of these values that does not work
    bool works = false;
    for (const int64_t value : values) {
      trial_spec[option] = value;
      Json trial = chosen;
      trial[option] = value;
      try {
        rates.push_back(rate_of(trial_spec, functions, options));
        trial["samples_per_s"] = rates.back();
        works = true;
      } catch (const Error& error) {
        // No value brings data that is missing.
        if (error.code() == Code::cancelled || error.code() == Code::not_found) throw;
        if (!refused) refused = error;
        rates.push_back(0);
        trial["error"] = error.what();
      }
      trials.push_back(trial);
      if (options.progress && !options.progress(trial)) fail(Code::cancelled, "tuning was stopped");
    }
    if (!works) throw Error(*refused);
    const size_t best = first_as_good(rates);
    chosen[option] = trial_spec[option] = values[best];
    best_rate = rates[best];
  };
  try_all("threads", doublings(static_cast<int64_t>(platform::usable_threads())));
  if (reads_network(spec)) try_all("remote_connections", {1, 2, 4, 8, 16});
  try_all("prefetch", {1, 2, 4, 8});
  return {{"options", std::move(chosen)},  // read by with_tuned()
          {"samples_per_s", best_rate},
          {"trials", std::move(trials)}};
}

Json with_tuned(const Json& spec) {
  if (!spec.is_object() || !spec.contains("tuned") || !spec["tuned"].is_string()) return spec;
  const auto path = spec["tuned"].get<std::string>();
  if (path.empty()) return spec;
  const Json file = parse_json(platform::read_document(path), "the tuned settings '" + path + "'");
  if (!file.is_object() || !file.contains("options") || !file["options"].is_object())
    fail(Code::invalid_argument, "'", path,
         "' holds no tuned settings; 'echotrain tune-pipeline' writes them");
  Json out = spec;
  for (const auto& [key, value] : file["options"].items())
    if (!out.contains(key)) out[key] = value;
  return out;
}

}  // namespace etr::pipeline

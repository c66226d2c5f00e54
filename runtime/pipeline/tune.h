// Tunes a pipeline's settings by measurement.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "core/json_fwd.h"
#include "pipeline/stage.h"

namespace etr::pipeline {

struct TuneOptions {
  double seconds = 2;  // per trial, from its first batch on
  double step_ms = 0;  // simulated time of the consumer per batch; 0: none
  // Called after each trial; returning false ends tuning with Error(cancelled). May be empty.
  std::function<bool(const Json& trial)> progress;
};

// Tries numbers of threads (up to the number this process may use), then, if files are read over
// the network, numbers of concurrent requests, then numbers of batches to prefetch, each with the
// best previous settings. Chooses the smallest setting within 3 % of the best. Respects the spec's
// budget_bytes. Writes none of the files that the spec names. Returns {"options": {"threads",
// "prefetch", ...}, "samples_per_s", "trials": [{"threads", ..., "samples_per_s"}]}. A trial that
// ends with an error has "error", its message, instead of "samples_per_s"; the error is thrown if
// no value of an option works.
Json tune(const Json& spec, const MapFunctions& functions, const TuneOptions& options);

// The index of the first rate (by growing setting) within 3 % of the best.
size_t first_as_good(std::span<const double> rates);

// Returns the spec with the settings of the file named by its option "tuned", except for options
// that it sets itself. The file holds a result of tune(). Throws Error(io) or
// Error(invalid_argument).
Json with_tuned(const Json& spec);

}  // namespace etr::pipeline

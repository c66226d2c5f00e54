// Finds good settings of a pipeline by trying them.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "core/json_fwd.h"
#include "pipeline/stage.h"

namespace etr::pipeline {

struct TuneOptions {
  double seconds = 2;   // of each trial, from its first batch on
  double step_ms = 0;   // that the consumer takes for each batch; 0: as fast as it can
  // Called after each trial; false ends tuning with Error(cancelled). May be empty.
  std::function<bool(const Json& trial)> progress;
};

// Tries numbers of threads (as many as this process may use, at most), then of requests in flight where files
// are read over the network, then of batches to prepare ahead; each with the best of those before. The smallest
// setting within 3 % of the best is taken. Keeps to the spec's budget_bytes. Returns
// {"options": {"threads", "prefetch", ...}, "samples_per_s", "trials": [{"threads", ..., "samples_per_s"}]}.
Json tune(const Json& spec, const MapFunctions& functions, const TuneOptions& options);

// The first of the rates (of growing settings) within 3 % of the best.
size_t first_as_good(std::span<const double> rates);

// The spec with what the file of its option "tuned" says, for options it does not set itself. The file holds
// what tune() returned. Throws Error(io), Error(invalid_argument).
Json with_tuned(const Json& spec);

}  // namespace etr::pipeline

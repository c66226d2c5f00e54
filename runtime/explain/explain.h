// Finds the bottleneck of a pipeline with a model built from its statistics.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/json_fwd.h"

namespace etr::explain {

// `stats`: Pipeline::stats() of a pipeline that has run for a while. Rates are samples per second
// that reach the consumer, including echoes. With w the measured work of a stage per such sample:
//
//   a serial stage alone   1 / w           it does one item at a time
//   a map stage alone      threads / w
//   all threads together   threads / (sum of w over the stages that share them)
//   the consumer alone     samples / (elapsed - waiting)
//
// and the whole runs at the minimum of these. Buffers that are still filling bias the figures, so
// let the pipeline run for several times the size of its buffers.
//
// Returns {"samples_per_s", "possible_samples_per_s", "bottleneck": {"stage", "why"}, "threads",
// "cores", "consumer": {...}, "stages": [{"name", "kind", "us_per_sample", "samples_per_s_alone",
// "load", "headroom"}], "predictions": [{"change", "detail", "samples_per_s", "gain"}]}. `load` is
// the used share of a stage's capacity; `headroom` is how many times faster than needed it is.
// Throws Error(state) if no sample has reached the consumer, and Error(invalid_argument) that names
// the key if `stats` are not such statistics.
Json explain(const Json& stats);

// The same as a readable table with advice.
std::string to_text(const Json& explained);

// The items that a stage has received and emitted.
struct Passed {
  double in = 0, out = 0;
  bool is_map = false;
};

// Returns for each stage how many items passed it without being counted or processed: a map leaves
// alone what a cache after it has, and the next stage counts it.
std::vector<double> skipped(std::span<const Passed> stages);

// A drawing of the pipeline: a box per stage, coloured by load, with queues between them.
std::string to_svg(const Json& explained);

}  // namespace etr::explain

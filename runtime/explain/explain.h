// Why is it slow? A model of a pipeline from its statistics.
#pragma once

#include <string>

#include "core/json_fwd.h"

namespace etr::explain {

// `stats`: Pipeline::stats() of a pipeline that has run for a while. Rates are samples that reach the
// consumer per second, echoes included. With w the measured work of a stage for one of these:
//
//   a serial stage alone   1 / w           it does one item at a time
//   a map stage alone      threads / w
//   all threads together   threads / (sum of w over the stages that share them)
//   the consumer alone     samples / (elapsed - waiting)
//
// and the whole runs at the least of these. Buffers that are still filling bias the figures: let the
// pipeline run for some multiples of its buffers.
//
// Returns {"samples_per_s", "possible_samples_per_s", "bottleneck": {"stage", "why"}, "threads", "cores",
// "consumer": {...}, "stages": [{"name", "kind", "us_per_sample", "samples_per_s_alone", "load",
// "headroom"}], "predictions": [{"change", "detail", "samples_per_s", "gain"}]}. `load`: share of what the
// stage could do; `headroom`: how many times as fast as needed it is. Error(state) where no sample has
// reached the consumer, Error(invalid_argument) that names the key where these are no such statistics.
Json explain(const Json& stats);

// The same as a table with advice, for people.
std::string to_text(const Json& explained);

// The pipeline as a drawing: a box a stage, coloured by load, with queues between them.
std::string to_svg(const Json& explained);

}  // namespace etr::explain

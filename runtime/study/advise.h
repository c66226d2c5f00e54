// Decides where an echo node should stand, whether one helps at all, and what would help first: a
// pure function of measurements.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json_fwd.h"

namespace etr::study {

// How a stage runs: on a thread of its own, on one item at a time, or on all threads.
enum class Runs { own_thread, serial, parallel };

// A stage, or the part of a source that runs on all threads.
struct StageCost {
  std::string name;
  size_t stage = 0;  // its index among the pipeline's stages without echo nodes
  Runs runs = Runs::parallel;
  bool augments = false;   // transforms a sample differently each time
  bool takes_echo = true;  // an echo node may stand right after it
  // Seconds for one fresh example that leaves the pipeline, including waits for a disk or a
  // network.
  double work_s = 0;
  double bytes = 0;          // of one example after the stage; 0: unknown
  bool device_echo = false;  // an echo node after it can set `device`
};

struct EchoAt {
  size_t after = 0;  // the stage, as in StageCost
  double factor = 1;
  bool adapts = false;  // on_demand, auto: `factor` is the cap
};

inline constexpr double kEchoBytes = 1 << 30;  // the default `buffer_bytes` of an echo node

struct Measured {
  std::vector<StageCost> stages;
  size_t batch_stage = 0;  // as in StageCost
  double batch = 1;        // examples
  double threads = 1, cores = 1;
  // Seconds for a fresh example if the consumer never waits and nothing is echoed.
  double upstream_s = 0;
  double downstream_s = 0;           // for an example on the device, with batches in memory
  double busy_s = 0;                 // of that, by the device's clock; 0: it has none
  bool device_is_cpu = false;        // it shares its cores with the pipeline
  double noise_scale = 0;            // examples; 0: unknown
  std::vector<EchoAt> echoes;        // those of the job
  bool remote = false;               // whether it reads over a network
  bool unsteady = false;             // upstream's pace changed much within seconds
  std::optional<size_t> cacheable;   // the last stage after which a cache may stand
  double samples = 0;                // of the data set, roughly; 0: unknown
  double memory_bytes = kEchoBytes;  // limit for a buffer or a cache
  std::string source;                // the stage that reads
};

// The predicted speed of a pipeline with its device, and what limits it.
struct Prediction {
  double example_s = 0;     // seconds for an example that is trained on
  double equivalent_s = 0;  // seconds for as much progress as one fresh example gives
  double uses = 1;          // of each fresh example, on average
  std::string limit;        // a stage's name, "threads", "device", "device and threads"
};

// Let w be a stage's work for a fresh example, and m = 1 / (product of the factors of the echo
// nodes after it). An example then takes
//
//   max(m w of each serial stage, sum of m w of those that share threads / threads, device)
//
// A CPU device computes on the same cores, so its time is added to the threads' work / cores. With
// F_1 / F_e from worth.h and e the product of all factors, the equivalent of a fresh example takes
// e times that, divided by (F_1 / F_e).
//
// A node that adapts has the factor min(cap, max(1, R)). R is the time for a fresh example to reach
// the node divided by the time for a copy after it; other nodes count with their factors.
Prediction predict(const Measured& measured, const std::vector<EchoAt>& echoes);

// Returns {"upstream_to_step_ratio", "helps", "keep_echo", "why", "baseline": {...}, "without_echo":
// {...}, "echo": {...} or null, "candidates": [...], "other_advice": [...], "batch": {...},
// "measured": {...}, "assumptions": [...]}. "candidates" are the places for an echo node; they and
// "other_advice" are sorted by predicted gain, best first. "echo" is the recommendation: {"after",
// "stage", "factor", "mode", "buffer", "buffer_bytes", "device", ...} and its prediction.
// "keep_echo": the job's own nodes stay, because they adapt and do as well as the recommendation
// (or as no node, if none helps). "factor" is the stage's option, for on_demand a
// cap; "uses" is the predicted number of uses of each example, and "cap_binds" says whether that is
// the cap. "buffer_bytes" is present if the stage needs it.
Json advise(const Measured& measured);

// Returns the advice as text.
std::string advice_text(const Json& advice);

}  // namespace etr::study

// Where an echo node should stand, whether it helps at all, and what would help first: from measurements, as a pure function.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/json_fwd.h"

namespace etr::study {

enum class Runs { own_thread, serial, parallel };  // by itself, one item at a time, on all threads

// A stage, or the part of a source that reads on all threads.
struct StageCost {
  std::string name;
  size_t stage = 0;  // its place among the pipeline's stages, echo nodes left out
  Runs runs = Runs::parallel;
  bool augments = false;   // gives a sample another look each time
  bool takes_echo = true;  // an echo node may stand right after it
  double work_s =
      0;  // for one fresh example that leaves the pipeline; waiting for a disk or a network counts
  double bytes = 0;          // of one example behind it; 0: not known
  bool device_echo = false;  // `device` can be set of an echo node after it
};

struct EchoAt {
  size_t after = 0;  // the stage, as in StageCost
  double factor = 1;
  bool adapts = false;  // on_demand, auto: `factor` is their cap
};

inline constexpr double kEchoBytes = 1 << 30;  // `buffer_bytes` of an echo node that has none

struct Measured {
  std::vector<StageCost> stages;
  size_t batch_stage = 0;  // as in StageCost
  double batch = 1;        // examples
  double threads = 1, cores = 1;
  double upstream_s =
      0;  // for a fresh example, where the consumer never waits and nothing is echoed
  double downstream_s = 0;           // for an example on the device, with batches already in memory
  double busy_s = 0;                 // of it, as the device's clock says; 0: it has none
  bool device_is_cpu = false;        // which shares its cores with the pipeline
  double noise_scale = 0;            // examples; 0: not known
  std::vector<EchoAt> echoes;        // of the job as it is
  bool remote = false;               // reads over a network
  bool unsteady = false;             // upstream's pace changed much within seconds
  std::optional<size_t> cacheable;   // the last stage after which a cache may stand
  double samples = 0;                // of the data set, roughly; 0: not known
  double memory_bytes = kEchoBytes;  // what a buffer or a cache may take
  std::string source;                // the stage that reads
};

// How fast a pipeline with its device is, and by what it is limited.
struct Prediction {
  double example_s = 0;     // for an example that is trained on
  double equivalent_s = 0;  // for as much progress as a fresh example gives
  double uses = 1;          // of each fresh example, on average
  std::string limit;        // a stage's name, "threads", "device", "device and threads"
};

// With w the work of a stage for a fresh example, and m = 1 / (factors of the echo nodes behind it), an example takes
//
//   max(m w of each serial stage, sum of m w of those that share threads / threads, device)
//
// On a CPU device, which computes on the same cores, the device's time is added to the threads' work / cores. With F_1 / F_e from
// worth.h and e the product of all factors, as much as a fresh example is worth takes e x that / (F_1 / F_e).
//
// A node that adapts has the factor min(cap, max(1, R)), with R the time that a fresh example takes to come to it over the time that
// a copy takes behind it, where other nodes count with their factors.
Prediction predict(const Measured& measured, const std::vector<EchoAt>& echoes);

// {"r", "helps", "keeps", "why", "as_it_is": {...}, "without_echo": {...}, "echo": {...} or null, "edges": [...], "others": [...], "batch": {...},
//  "measured": {...}, "assumptions": [...]}; rows of "edges" and "others" are sorted by what they promise, the best first. "echo" is the
// recommendation: {"after", "stage", "factor", "mode", "buffer", "buffer_bytes", "device", ...} and its prediction. "keeps": the
// job's own nodes adapt and are as good, so that they stay. "factor" is the stage's option, for on_demand a cap; "uses" is how
// often each example is predicted to be used; "cap_binds" where that is the cap. "buffer_bytes" is there where the stage needs it.
Json advise(const Measured& measured);

// The same for people.
std::string advice_text(const Json& advice);

}  // namespace etr::study

// A validated study: workloads x conditions x searches x trials, where each trial is a job with
// overrides.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "study/records.h"
#include "study/space.h"

namespace etr::study {

struct Goal {
  bool accuracy = false;         // whether the metric is accuracy; otherwise the evaluation's loss
  std::optional<double> target;  // none: trials use their whole budget, and the best metric counts

  bool reaches(double metric) const;
};

// 0: no limit.
struct Budget {
  double fresh = 0, steps = 0, seconds = 0;
  std::string clock;  // the first that the file names; scores are counted in it
  double limit() const { return clock == "fresh" ? fresh : clock == "steps" ? steps : seconds; }
};

enum class StopRule { none, slower, median };

// key = base * (label `with` / at) ^ exponent
struct Scaling {
  std::string key, rule, with;
  double at = 0;
  std::optional<Json> base;  // a number; none: the tuned condition's best point has it
  double exponent() const { return rule == "linear" ? 1 : rule == "square_root" ? 0.5 : 0; }
};

struct Condition {
  Json labels = Json::object();  // in declaration order; those of `for` come last
  std::string name;              // "variant=none, factor=1"
  std::vector<std::string> own;  // names of the labels that 'labels' lists
  std::vector<std::string> set;  // overrides, with labels filled in
  Space space;                   // without scaled keys
  std::vector<Scaling> scale;
  std::optional<size_t> base;      // the condition whose best point the scaling uses
  std::optional<double> momentum;  // optimizer.momentum, if it is the same for all points
  uint64_t trials = 0, searches = 0;
};

struct Workload {
  std::string name;
  Json job;            // before any override
  std::string origin;  // names the job in errors
  std::vector<std::string> set;
  Goal goal;
  Budget budget;
  Json evaluate = Json::object();  // the keys of the job's evaluation
  SequenceKind sequence = SequenceKind::sobol;
  StopRule stop_early = StopRule::none;
  std::vector<Condition> conditions;
};

// Immutable.
class Study {
 public:
  // `overrides` ("key=value") apply to the jobs of all trials, after the study's own 'set' and
  // before that of conditions. Tries out all conditions as far as possible without training.
  // Error(invalid_argument) names the key, the condition and the nearest valid one; Error(not_found
  // / io) if a file is missing.
  static Study load(const std::string& path, const std::vector<std::string>& overrides = {});
  // Looks for jobs named by a path below `folder`.
  static Study parse(const Json& given, const std::string& origin, const std::string& folder,
                     const std::vector<std::string>& overrides = {});

  const std::string& name() const { return name_; }
  uint64_t seed() const { return seed_; }
  // The number of trials at once; 0: as many as the device has room for.
  uint64_t parallel() const { return parallel_; }
  const std::vector<Workload>& workloads() const { return workloads_; }
  const std::string& folder() const { return folder_; }  // for a file: "runs/studies/" and its stem
  const std::string& device() const { return device_; }  // that the jobs name; "": none
  uint64_t trials() const;                               // in all
  uint64_t most_ranks() const { return most_ranks_; }    // of one trial

  // Returns the study with jobs, labels and overrides filled in: a self-contained study file.
  const Json& json() const { return json_; }

 private:
  void check_figures() const;
  void check_trials();

  std::string name_, origin_, folder_, device_;
  uint64_t seed_ = 0, parallel_ = 0, most_ranks_ = 1;
  std::vector<Workload> workloads_;
  Json json_;
};

// Returns the options of each section ("goal", "budget", "evaluate", "search", "range", "scale"),
// of a workload ("workload"), and the study's own ("study").
Json study_schema();

}  // namespace etr::study

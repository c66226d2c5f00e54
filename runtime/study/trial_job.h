// One trial's job, and by what it is known again.
#pragma once

#include <cstdint>
#include <string>

#include "core/json.h"
#include "study/study.h"
#include "train/job.h"

namespace etr::study {

// Where a trial stands in its study.
struct Place {
  size_t workload = 0, condition = 0;
  uint64_t search = 0, trial = 0;
  auto operator<=>(const Place&) const = default;
};

// All trials of a study in the order in which they are run: conditions that others begin from come first.
std::vector<Place> all_places(const Study& study);

struct TrialSpec {
  Place place;
  uint64_t seed = 0;
  Point point;    // what the search has drawn
  Json identity;  // the resolved job without paths, goal, budget, evaluations, stop rule
  std::string digest;
};

// `base` is the best point of the condition that scaled keys begin from; null where there is none.
TrialSpec trial_spec(const Study& study, const Place& place, const Json& base);

// The job of a trial with the values of `point`. Writes nothing.
train::Job trial_job(const Workload& workload, const Condition& condition, const Json& point,
                     uint64_t seed);

// What says it instead, where the study sets this key of the job in each of its trials: "'budget'"; "" where it does not. What a
// space, a scale or an override gave it would be lost.
std::string set_by_study(const Workload& workload, const std::string& key);

// The key's value: base * (label / at) ^ exponent.
double scaled(const Scaling& by, double base, const Json& labels);

// All that a trial sets: what the search has drawn, and scaled keys.
Json all_values(const Condition& condition, const Json& drawn, const Json& base);

// The first place where two identities differ: "job.schedule.warmup_steps is 20 there and 10 here"; "" where they do not.
std::string difference(const Json& there, const Json& here);

}  // namespace etr::study

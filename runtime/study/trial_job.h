// The job of one trial, and its identity.
#pragma once

#include <cstdint>
#include <string>

#include "core/json.h"
#include "study/study.h"
#include "train/job.h"

namespace etr::study {

// The place of a trial in its study.
struct Place {
  size_t workload = 0, condition = 0;
  uint64_t search = 0, trial = 0;
  auto operator<=>(const Place&) const = default;
};

// Returns all trials of a study in running order: conditions from which others scale come first.
std::vector<Place> all_places(const Study& study);

struct TrialSpec {
  Place place;
  uint64_t seed = 0;
  Point point;    // the values that the search drew
  Json identity;  // the resolved job without paths; goal, budget, evaluations, stop rule
  std::string digest;
};

// `base` is the best point of the condition from which keys are scaled; null: none.
TrialSpec trial_spec(const Study& study, const Place& place, const Json& base);

// Returns the job of a trial with the values of `point`. It writes nothing.
train::Job trial_job(const Workload& workload, const Condition& condition, const Json& point,
                     uint64_t seed);

// If the study sets this key of the job in each trial, returns the key of the study that does:
// "'budget'"; otherwise "". A value from a space, a scale or an override would be lost.
std::string set_by_study(const Workload& workload, const std::string& key);

// Returns the key's value: base * (label / at) ^ exponent.
Json scaled(const Scaling& by, const Json& base, const Json& labels);

// Returns all that a trial sets: the values that the search drew, and scaled keys.
Json all_values(const Condition& condition, const Json& drawn, const Json& base);

// Returns the first difference between two identities: "job.schedule.warmup_steps is 20 there and
// 10 here"; "" if there is none.
std::string difference(const Json& there, const Json& here);

}  // namespace etr::study

#include "study/trial_job.h"

#include <cmath>

#include "core/error.h"
#include "core/json_members.h"
#include "core/sha256.h"
#include "pipeline/position_match.h"
#include "study/labels.h"

namespace etr::study {
namespace {

uint64_t first_bits(const std::string& digest, unsigned bits) {
  uint64_t out = 0;
  for (size_t i = 0; i < 8; ++i) out = (out << 8) | static_cast<unsigned char>(digest[i]);
  return out >> (64 - bits);
}

// 53 bits, which every JSON reader preserves.
uint64_t seed_of(const std::string& text) { return first_bits(sha256(text), 53); }

// In practice unique for each trial of a study. Names are written as JSON, so that adjacent ones
// cannot merge.
uint64_t trial_seed(const Study& study, const Place& at) {
  const Workload& workload = study.workloads()[at.workload];
  return seed_of(Json{study.seed(), workload.name,
                      label_key(workload.conditions[at.condition].labels), at.search, at.trial}
                     .dump());
}

// The same for all conditions of a search.
uint64_t points_seed(const Study& study, const Place& at) {
  return seed_of(Json{study.seed(), study.workloads()[at.workload].name, at.search}.dump());
}

std::string limit(const char* key, double value) {
  return cat("train.", key, "=", Json(value).dump());
}

// The keys that overrides_of() sets, and the part of the study that sets them.
struct OwnKey {
  const char *key, *said_by;
};
constexpr OwnKey kOwnKeys[] = {
    {"seed", "'seed' of the study"},
    {"train.epochs", "'budget'"},
    {"train.steps", "'budget'"},
    {"train.seconds", "'budget'"},
    {"train.fresh", "'budget'"},
    {"evaluation.target_accuracy", "'goal'"},
    {"evaluation.target_loss", "'goal'"},
    {"output", "the study's own folder (--out FOLDER)"},
    {"device", "the device that the study is run on (--device DEVICE)"},
};

std::vector<std::string> overrides_of(const Workload& workload, const Condition& condition,
                                      const Json& point, uint64_t seed) {
  std::vector<std::string> out = condition.set;
  for (const auto& [key, value] : point.items()) out.push_back(cat(key, "=", value.dump()));
  const Budget& budget = workload.budget;
  out.emplace_back("train.epochs=0");
  out.push_back(cat("train.steps=", static_cast<uint64_t>(budget.steps)));
  out.push_back(limit("seconds", budget.seconds));
  out.push_back(cat("train.fresh=", static_cast<uint64_t>(budget.fresh)));
  if (!workload.evaluate.empty())
    for (const char* every : {"epochs", "steps", "fresh"})
      out.push_back(cat("evaluation.every_", every, "=0"));
  for (const auto& [key, value] : workload.evaluate.items())
    out.push_back(cat("evaluation.", key, "=", value.dump()));
  out.emplace_back("evaluation.target_accuracy=0");  // the trial checks for its target itself
  out.emplace_back("evaluation.target_loss=0");
  out.push_back(cat("seed=", seed));
  out.emplace_back("output={\"dir\": \"\", \"tensorboard\": false}");
  return out;
}

// Ignores where the data lies, so that a study can continue after it has been moved.
Json identity_of(const Workload& workload, const train::Job& job) {
  Json spec = job.json();
  for (const char* key : {"vars", "output", "device", "name", "description"})
    remove_member(spec, key);
  spec["pipeline"] = pipeline::spec_without_paths(spec["pipeline"]);
  if (spec.contains("parallel")) {  // only the number of devices matters
    Json& parallel = spec["parallel"];
    if (parallel.is_null()) parallel = Json::object();
    parallel["devices"] = parallel["devices"].size();
  }
  if (spec.contains("evaluation"))
    spec["evaluation"]["pipeline"] = pipeline::spec_without_paths(spec["evaluation"]["pipeline"]);
  const Budget& budget = workload.budget;
  static constexpr const char* kRules[] = {"none", "slower", "median"};
  return {{"job", std::move(spec)},
          {"goal",
           {{"metric", workload.goal.accuracy ? "accuracy" : "loss"},
            {"target", workload.goal.target ? Json(*workload.goal.target) : Json()}}},
          {"budget",
           {{"fresh", budget.fresh},
            {"steps", budget.steps},
            {"seconds", budget.seconds},
            {"clock", budget.clock}}},
          {"evaluate", workload.evaluate},
          {"stop_early", kRules[static_cast<int>(workload.stop_early)]}};
}

// Records from before the rule was renamed are of the same trials.
std::string digest_of(Json identity) {
  if (identity["stop_early"] == "slower") identity["stop_early"] = kFormerSlower;
  return to_hex(sha256(identity.dump())).substr(0, 32);
}

std::string find_difference(const Json& there, const Json& here, const std::string& path) {
  if (there == here) return "";
  const auto at = [&](const std::string& key) { return path.empty() ? key : path + "." + key; };
  if (there.is_object() && here.is_object()) {
    for (const auto& [key, value] : here.items()) {
      if (!there.contains(key)) return cat("'", at(key), "' is new: ", brief_json(value));
      if (std::string found = find_difference(there[key], value, at(key)); !found.empty())
        return found;
    }
    for (const auto& [key, value] : there.items())
      if (!here.contains(key))
        return cat("'", at(key), "' was ", brief_json(value), " and is gone");
    return cat("the order of the keys in '", path, "'");
  }
  if (there.is_array() && here.is_array() && there.size() == here.size())
    for (size_t i = 0; i < here.size(); ++i)
      if (std::string found = find_difference(there[i], here[i], at(std::to_string(i)));
          !found.empty())
        return found;
  return cat("'", path, "' was ", brief_json(there), " and is ", brief_json(here));
}

// The first search of every condition, then the second, and so on: so early results cover all
// conditions, and times are measured in turns.
std::vector<Place> places_of(const Study& study, size_t w, bool scaled_from_best) {
  const std::vector<Condition>& conditions = study.workloads()[w].conditions;
  uint64_t most_searches = 0;
  for (const Condition& condition : conditions)
    most_searches = std::max(most_searches, condition.searches);
  std::vector<Place> out;
  for (uint64_t search = 0; search < most_searches; ++search)
    for (size_t c = 0; c < conditions.size(); ++c)
      if (search < conditions[c].searches && conditions[c].base.has_value() == scaled_from_best)
        for (uint64_t trial = 0; trial < conditions[c].trials; ++trial)
          out.push_back({w, c, search, trial});
  return out;
}

}  // namespace

std::string set_by_study(const Workload& workload, const std::string& key) {
  for (const OwnKey& own : kOwnKeys)
    if (key == own.key || key.starts_with(own.key + std::string("."))) return own.said_by;
  return !workload.evaluate.empty() && key.starts_with("evaluation.every_") ? "'evaluate'" : "";
}

Json scaled(const Scaling& by, const Json& base, const Json& labels) {
  const double value =
      base.get<double>() * std::pow(labels.at(by.with).get<double>() / by.at, by.exponent());
  constexpr double kExact = 9e15;
  if (base.is_number_integer() && value == std::round(value) && std::abs(value) < kExact)
    return static_cast<int64_t>(value);
  return value;
}

Json all_values(const Condition& condition, const Json& drawn, const Json& base) {
  Json out = drawn;
  for (const Scaling& by : condition.scale) {
    if (by.base) {
      out[by.key] = scaled(by, *by.base, condition.labels);
      continue;
    }
    if (!base.is_object() || !base.contains(by.key) || !base[by.key].is_number())
      fail(Code::state, "scale of '", by.key,
           "': the best trial of its base has no such number; run all trials again (--overwrite)");
    out[by.key] = scaled(by, base[by.key], condition.labels);
  }
  return out;
}

train::Job trial_job(const Workload& workload, const Condition& condition, const Json& point,
                     uint64_t seed) {
  return train::Job::parse(workload.job.dump(), workload.origin,
                           overrides_of(workload, condition, point, seed));
}

TrialSpec trial_spec(const Study& study, const Place& place, const Json& base) {
  const Workload& workload = study.workloads()[place.workload];
  const Condition& condition = workload.conditions[place.condition];
  if (condition.base && base.is_null())
    fail(Code::state, "scale of '", condition.scale.front().key,
         "': its base is the best trial of the condition (",
         workload.conditions[*condition.base].name,
         "), of which all have failed or diverged: fix that condition and run the study again");
  TrialSpec out;
  out.place = place;
  out.seed = trial_seed(study, place);
  out.point = condition.space.point(workload.sequence, place.trial, points_seed(study, place));
  out.point.values = all_values(condition, out.point.values, base);
  out.identity = identity_of(workload, trial_job(workload, condition, out.point.values, out.seed));
  out.digest = digest_of(out.identity);
  return out;
}

std::vector<Place> all_places(const Study& study) {
  std::vector<Place> out;
  for (size_t w = 0; w < study.workloads().size(); ++w)
    for (const bool scaled_from_best : {false, true}) {
      const std::vector<Place> places = places_of(study, w, scaled_from_best);
      out.insert(out.end(), places.begin(), places.end());
    }
  return out;
}

std::string difference(const Json& there, const Json& here) {
  return find_difference(there, here, "");
}

}  // namespace etr::study

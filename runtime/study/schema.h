// The keys of a study file.
#pragma once

#include <string>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "core/json_members.h"
#include "core/options.h"

namespace etr::study {

inline constexpr OptionSpec kGoal[] = {
    {"metric", OptionType::string, "\"loss\"", "metric of the job's evaluation", 0, 0, "",
     "loss|accuracy"},
    {"target", OptionType::number, "0",
     "a trial reaches it when its loss is below this value or its accuracy above; 0: no target, "
     "and trials use their whole budget"},
};

inline constexpr OptionSpec kBudget[] = {
    {"fresh", OptionType::integer, "0", "fresh examples per trial; 0: no limit", 0, 1e15,
     "examples"},
    {"steps", OptionType::integer, "0", "optimizer steps per trial; 0: no limit", 0, 1e12, "steps"},
    {"seconds", OptionType::number, "0", "training time per trial; 0: no limit", 0, 1e9, "s"},
};

inline constexpr OptionSpec kEvaluate[] = {
    {"every_fresh", OptionType::integer, "0", "fresh examples between evaluations", 0, 1e15,
     "examples"},
    {"every_steps", OptionType::integer, "0", "steps between evaluations", 0, 1e12, "steps"},
    {"every_epochs", OptionType::integer, "0", "epochs between evaluations", 0, 1e9, "epochs"},
};

inline constexpr OptionSpec kSearch[] = {
    {"trials", OptionType::integer, "1", "number of trials in each search", 1, 1e6},
    {"searches", OptionType::integer, "1", "number of independent searches for each condition", 1,
     1e4},
    {"sequence", OptionType::string, "\"sobol\"",
     "sequence from which the points of a search are drawn", 0, 0, "", "sobol|halton"},
};

inline constexpr OptionSpec kRange[] = {
    {"from", OptionType::number, nullptr, "lower end of the range"},
    {"to", OptionType::number, nullptr, "upper end of the range"},
    {"scale", OptionType::string, "\"linear\"",
     "scale on which points are drawn uniformly: the value, its logarithm, or the logarithm of 1 - "
     "value",
     0, 0, "", "linear|log|log_complement"},
    {"integer", OptionType::boolean, "false", "draw integers only, including both ends"},
};

inline constexpr OptionSpec kScaling[] = {
    {"rule", OptionType::string, "\"linear\"",
     "how the key grows with the label: with exponent 1, 0.5 or 0", 0, 0, "",
     "linear|square_root|none"},
    {"with", OptionType::string, nullptr, "name of the label"},
    {"at", OptionType::number, nullptr, "value of the label at which the key is 'base'"},
    {"base", OptionType::string, "\"best\"",
     "a number, or best: the value of the best trial of the condition in which the label 'with' is "
     "'at'",
     0, 0, "", "best"},
};

inline constexpr OptionSpec kStudy[] = {
    {"name", OptionType::string, "\"study\"", "name in reports"},
    {"description", OptionType::string, "\"\"", "one or two sentences for the report"},
    {"seed", OptionType::integer, "1",
     "seed of the points, from which each trial's own seed is derived, too", 0, 1e15},
    {"parallel", OptionType::integer, "0",
     "number of trials that run at once; 0: as many as the device has room for", 0, 1024},
};

inline constexpr OptionSpec kWorkload[] = {
    {"stop_early", OptionType::string, "\"none\"",
     "which trials end before their budget is used up: slower: those that have used "
     "as much as another trial of their search needed to reach the target; median: "
     "those that are worse than the median of their search",
     0, 0, "", "none|slower|median"},
};

inline const std::vector<std::string> kConditionKeys = {"labels", "for",      "set",  "space",
                                                        "trials", "searches", "scale"};
// Keys of the file and of each workload; the other keys belong only to the file.
inline const std::vector<std::string> kSharedKeys = {
    "job", "set", "goal", "budget", "evaluate", "search", "stop_early", "for", "conditions"};

// Returns the list of texts at `key`; empty if there is no such key.
inline std::vector<std::string> texts_in(const Json& given, const char* key,
                                         const std::string& owner) {
  std::vector<std::string> out;
  const auto found = given.find(key);
  if (found == given.end()) return out;
  const auto wrong = [&] {
    fail(Code::invalid_argument, owner, ": '", key, "' is ", brief_json(*found),
         "; it takes a list of texts \"key=value\"");
  };
  if (!found->is_array()) wrong();
  for (const Json& text : *found) {
    if (!text.is_string()) wrong();
    out.push_back(text.get<std::string>());
  }
  return out;
}

// Returns the object at `key`; empty if there is no such key.
inline const Json& object_in(const Json& given, const char* key, const std::string& owner) {
  static const Json kNothing = Json::object();
  const auto found = given.find(key);
  if (found == given.end()) return kNothing;
  if (!found->is_object())
    fail(Code::invalid_argument, owner, ": '", key, "' is ", brief_json(*found),
         "; it takes an object");
  return *found;
}

}  // namespace etr::study

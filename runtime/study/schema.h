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
    {"metric", OptionType::string, "\"loss\"", "what the job's evaluation gives", 0, 0, "",
     "loss|accuracy"},
    {"target", OptionType::number, "0",
     "a trial has reached it when a loss is below it or an accuracy above it; 0: there is none, "
     "and trials use their whole budget"},
};

inline constexpr OptionSpec kBudget[] = {
    {"fresh", OptionType::integer, "0", "fresh examples of a trial; 0: no limit", 0, 1e15,
     "examples"},
    {"steps", OptionType::integer, "0", "its optimizer steps; 0: no limit", 0, 1e12, "steps"},
    {"seconds", OptionType::number, "0", "its training time; 0: no limit", 0, 1e9, "s"},
};

inline constexpr OptionSpec kEvaluate[] = {
    {"every_fresh", OptionType::integer, "0", "fresh examples between evaluations", 0, 1e15,
     "examples"},
    {"every_steps", OptionType::integer, "0", "steps between evaluations", 0, 1e12, "steps"},
    {"every_epochs", OptionType::integer, "0", "epochs between evaluations", 0, 1e9, "epochs"},
};

inline constexpr OptionSpec kSearch[] = {
    {"trials", OptionType::integer, "1", "trials of a search", 1, 1e6},
    {"searches", OptionType::integer, "1", "independent searches of a condition", 1, 1e4},
    {"sequence", OptionType::string, "\"sobol\"", "the points of a search", 0, 0, "",
     "sobol|halton"},
};

inline constexpr OptionSpec kRange[] = {
    {"from", OptionType::number, nullptr, "the range's beginning"},
    {"to", OptionType::number, nullptr, "its end"},
    {"scale", OptionType::string, "\"linear\"",
     "what is drawn evenly: the value, its logarithm, or the logarithm of 1 - value", 0, 0, "",
     "linear|log|log_complement"},
    {"integer", OptionType::boolean, "false", "whole numbers only, both ends included"},
};

inline constexpr OptionSpec kScaling[] = {
    {"rule", OptionType::string, "\"linear\"",
     "how the key grows with the label: with exponent 1, 0.5 or 0", 0, 0, "",
     "linear|square_root|none"},
    {"with", OptionType::string, nullptr, "the label"},
    {"at", OptionType::number, nullptr, "its value where the key is 'base'"},
    {"base", OptionType::string, "\"best\"",
     "a number, or best: what the best trial of the condition with 'with' = 'at' has", 0, 0, "",
     "best"},
};

inline constexpr OptionSpec kStudy[] = {
    {"name", OptionType::string, "\"study\"", "what reports call it"},
    {"description", OptionType::string, "\"\"", "a sentence or two for the report"},
    {"seed", OptionType::integer, "1", "of the points, and of each trial's own seed", 0, 1e15},
    {"parallel", OptionType::integer, "0", "trials at once; 0: as the device has room", 0, 1024},
};

inline constexpr OptionSpec kWorkload[] = {
    {"stop_early", OptionType::string, "\"none\"",
     "which trials end before their budget: those that can no longer be the best of their search, "
     "or those worse than its median",
     0, 0, "", "none|beaten|median"},
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

#include "study_plan.h"

#include <string>
#include <vector>

#include "cli.h"
#include "core/label_text.h"
#include "table.h"

namespace cli {

using Json = nlohmann::ordered_json;

namespace {

std::string joined(const std::vector<std::string>& parts, const char* between = ", ") {
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : between) + part;
  return out;
}

// Returns the object at `key`; empty if there is none.
const Json& object_in(const Json& owner, const char* key) {
  static const Json kNothing = Json::object();
  const auto found = owner.find(key);
  return found == owner.end() ? kNothing : *found;
}

// Returns the labels in order; those of `for` have one value each.
Json labels_of(const Json& condition) {
  Json out = object_in(condition, "labels");
  for (const auto& [label, values] : object_in(condition, "for").items()) out[label] = values.at(0);
  return out;
}

std::string name_of(const Json& condition) {
  const std::string labels = etr::labels_text(labels_of(condition));
  return labels.empty() ? "(one condition)" : labels;
}

std::string range_text(const Json& range) {
  if (range.is_null()) return "not searched";
  if (range.contains("values")) return "one of " + range["values"].dump();
  const std::string scale = range.value("scale", "linear");
  return etr::label_text(range.at("from")) + " to " + etr::label_text(range.at("to")) + " (" +
         scale + ")";
}

std::vector<std::string> overrides_of(const Json& owner) {
  return owner.value("set", std::vector<std::string>());
}

bool depends_on_labels(const std::string& text) { return text.find("${") != std::string::npos; }

std::string changes_of(const Json& workload, const Json& condition) {
  std::vector<std::string> parts;
  const Json labels = labels_of(condition);
  for (const std::string& text : overrides_of(workload))
    if (depends_on_labels(text)) parts.push_back(etr::with_labels(text, labels));
  for (const std::string& text : overrides_of(condition))
    parts.push_back(etr::with_labels(text, labels));
  for (const auto& [key, range] : object_in(condition, "space").items())
    parts.push_back(key + ": " + range_text(range));
  for (const auto& [key, scale] : object_in(condition, "scale").items())
    parts.push_back(key + ": by the rule " + scale.value("rule", "linear"));
  return parts.empty() ? "nothing" : joined(parts);
}

int64_t count_of(const Json& workload, const Json& condition, const char* key) {
  return condition.value(key, object_in(workload, "search").value(key, int64_t{1}));
}

int64_t trials_of(const Json& workload, const Json& condition) {
  return count_of(workload, condition, "trials") * count_of(workload, condition, "searches");
}

int64_t trials_of(const Json& workload) {
  int64_t out = 0;
  for (const Json& condition : workload.at("conditions")) out += trials_of(workload, condition);
  return out;
}

// "at most 250,000 fresh examples and 12,000 steps": the budget multiplied by `times`.
std::string budget_text(const Json& budget, double times) {
  std::vector<std::string> parts;
  for (const auto& [clock, limit] : budget.items())
    if (limit.get<double>() > 0)
      parts.push_back(number_text(times * limit.get<double>()) + " " + clock_name(clock));
  return "at most " + joined(parts, " and ");
}

void print_head(const Json& workload) {
  const Json& goal = object_in(workload, "goal");
  const std::string metric = goal.value("metric", "loss");
  std::string ends;
  if (goal.value("target", 0.0) != 0)
    ends = "until a validation " + metric + (metric == "accuracy" ? " above " : " below ") +
           text_of("%g", goal["target"].get<double>()) + ", ";
  const Json& budget = workload.at("budget");
  std::printf("  each trial: %s%s\n", ends.c_str(), budget_text(budget, 1).c_str());
  std::printf("  all trials: %s\n",
              budget_text(budget, static_cast<double>(trials_of(workload))).c_str());
  for (const auto& [key, range] : object_in(object_in(workload, "search"), "space").items())
    std::printf("  searched:   %s: %s\n", key.c_str(), range_text(range).c_str());
  std::vector<std::string> common = overrides_of(workload);
  std::erase_if(common, depends_on_labels);
  if (!common.empty()) std::printf("  set:        %s\n", joined(common).c_str());
}

void print_conditions(const Json& workload) {
  std::vector<std::vector<std::string>> rows{{"condition", "searches", "trials of each"}};
  for (const Json& condition : workload.at("conditions"))
    rows.push_back({name_of(condition), std::to_string(count_of(workload, condition, "searches")),
                    std::to_string(count_of(workload, condition, "trials"))});
  std::printf("\n");
  print_rows(rows);
  std::printf("\n");
  for (const Json& condition : workload.at("conditions"))
    std::printf("%s\n    %s\n", name_of(condition).c_str(),
                changes_of(workload, condition).c_str());
}

}  // namespace

int64_t planned_trials(const Json& study) {
  int64_t out = 0;
  for (const Json& workload : study.at("workloads")) out += trials_of(workload);
  return out;
}

void print_plan(const Json& study) {
  std::printf("%s: %s\n", study.value("name", "study").c_str(),
              counted(planned_trials(study), "trial").c_str());
  for (const Json& workload : study.at("workloads")) {
    std::printf("\n%s\n", workload.at("name").get<std::string>().c_str());
    print_head(workload);
    print_conditions(workload);
  }
}

}  // namespace cli

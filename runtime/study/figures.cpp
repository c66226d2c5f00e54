#include "study/figures.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "core/json_members.h"
#include "core/label_text.h"
#include "core/options.h"
#include "core/text.h"
#include "study/figure_kinds.h"
#include "study/labels.h"

namespace etr::study {
namespace {

struct Kind {
  const char* name;
  std::optional<StudyFigure> (*make)(const Scene& scene);
  std::initializer_list<const char*> keys;  // beside those of every kind
};

const Kind kKinds[] = {
    {"to_target", to_target_figure, {"x", "series", "panel", "clock"}},
    {"best_metric", best_metric_figure, {"x", "series", "panel"}},
    {"scaling", scaling_figure, {"x", "series", "panel"}},
    {"rate", rate_figure, {"x", "series", "panel"}},
    {"spread", spread_figure, {"panel", "clock"}},
    {"curves", curves_figure, {}},
    {"trials", trials_figure, {}},
};

bool has_key(const Kind& kind, const std::string& key) {
  return std::find(kind.keys.begin(), kind.keys.end(), key) != kind.keys.end();
}

const Kind& kind_of(const FigureSpec& spec) {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) {
    if (spec.kind == kind.name) return kind;
    names.emplace_back(kind.name);
  }
  fail(Code::invalid_argument, "there is no kind of figure '", spec.kind, "'",
       suggestion(spec.kind, names));
}

size_t different_values(const Summary& summary, size_t workload, const std::string& label) {
  std::set<double> values;
  for (const size_t condition : conditions_of_workload(summary, workload))
    if (const Json value = summary.conditions[condition].labels.value(label, Json());
        value.is_number())
      values.insert(value.get<double>());
  return values.size();
}

// Returns the default label for x: the batch size, or else an echo factor or another number.
std::string usual_x(const Summary& summary, size_t workload, const std::string& kind) {
  const std::string& batch = summary.workloads[workload].batch_label;
  if (kind == "scaling") return is_numeric(summary, workload, batch) ? batch : "";
  std::vector<std::string> numeric;
  for (const std::string& name : varying_labels(summary, workload))
    if (is_numeric(summary, workload, name)) numeric.push_back(name);
  const auto has = [&](const std::string& name) {
    return std::find(numeric.begin(), numeric.end(), name) != numeric.end();
  };
  const bool wants_batch = kind == "rate" && different_values(summary, workload, batch) > 2;
  if (wants_batch && has(batch)) return batch;
  if (has("factor")) return "factor";
  for (const std::string& name : numeric)
    if (name != batch) return name;
  return numeric.empty() ? "" : numeric.front();
}

// The batch size gets one panel per value, unless it is x or has many values.
std::string usual_panel(const Summary& summary, size_t workload, const std::string& x) {
  const std::string& batch = summary.workloads[workload].batch_label;
  const std::vector<std::string> varying = varying_labels(summary, workload);
  if (x.empty() || x == batch || std::find(varying.begin(), varying.end(), batch) == varying.end())
    return "";
  return different_values(summary, workload, batch) <= 6 ? batch : "";
}

FigureSpec usual_spec(const Summary& summary, size_t workload, const std::string& kind) {
  FigureSpec out;
  out.kind = kind;
  out.workload = workload;
  if (!has_key(kind_of(out), "x")) return out;
  out.x = usual_x(summary, workload, kind);
  out.panel = usual_panel(summary, workload, out.x);
  return out;
}

std::vector<FigureSpec> usual_specs(const Summary& summary, size_t workload) {
  std::vector<FigureSpec> out;
  const bool scales =
      std::any_of(summary.scaling.begin(), summary.scaling.end(),
                  [&](const ScalingResult& scaling) { return scaling.workload == workload; });
  if (scales) out.push_back(usual_spec(summary, workload, "scaling"));
  for (const char* clock : {"fresh", "steps", "seconds"}) {
    if (scales && clock == std::string("steps")) continue;  // the scaling figure shows them
    out.push_back(usual_spec(summary, workload, "to_target"));
    out.back().clock = clock_index(clock);
  }
  const Objective& objective = summary.objectives[workload];
  for (const std::string kind : {"best_metric", "rate", "curves", "spread", "trials"}) {
    if (kind == "best_metric" && summary.workloads[workload].ends_at_target) continue;
    out.push_back(usual_spec(summary, workload, kind));
    if (kind == "spread" && summary.workloads[workload].ends_at_target)
      out.back().clock = objective.clock;
  }
  return out;
}

std::string text_of(const Json& entry, const char* key, const std::string& owner) {
  const auto found = entry.find(key);
  if (found == entry.end()) return "";
  if (!found->is_string())
    fail(Code::invalid_argument, owner, ": '", key, "' is ", brief_json(*found), ", not a text");
  return found->get<std::string>();
}

void check_is_object(const Json& entry, const std::string& owner) {
  if (!entry.is_object())
    fail(Code::invalid_argument, owner, " is ", brief_json(entry), ", not an object with a 'kind'");
}

void check_keys(const Kind& kind, const Json& entry, const std::string& owner) {
  std::vector<std::string> known = {"kind", "baseline", "only", "workload", "name"};
  known.insert(known.end(), kind.keys.begin(), kind.keys.end());
  for (const auto& [key, value] : entry.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      fail(Code::invalid_argument, owner, ": a figure of kind '", kind.name, "' has no key '", key,
           "'", suggestion(key, known));
}

// Returns the names of all labels of the workload's conditions.
std::vector<std::string> label_names(const Summary& summary, size_t workload) {
  std::vector<std::string> out;
  for (const size_t condition : conditions_of_workload(summary, workload))
    for (const auto& [name, value] : summary.conditions[condition].labels.items())
      if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  return out;
}

// Returns the figure's first label that no condition has; "": none.
std::string missing_label(const FigureSpec& spec, const std::vector<std::string>& names) {
  for (const std::string& label : {spec.x, spec.series, spec.panel})
    if (!label.empty() && std::find(names.begin(), names.end(), label) == names.end()) return label;
  return "";
}

void check_labels(const Summary& summary, const FigureSpec& spec, const std::string& owner) {
  const std::vector<std::string> names = label_names(summary, spec.workload);
  if (const std::string label = missing_label(spec, names); !label.empty())
    fail(Code::invalid_argument, owner, ": no condition has a label '", label, "'",
         suggestion(label, names));
  if (spec.kind == "scaling" && !is_numeric(summary, spec.workload, spec.x))
    fail(Code::invalid_argument, owner,
         ": a figure of kind 'scaling' needs a numeric label with 'batch' in its name, or another "
         "numeric label as 'x'");
}

FigureSpec spec_of(const Summary& summary, size_t workload, const Json& entry,
                   const std::string& owner) {
  FigureSpec out = usual_spec(summary, workload, text_of(entry, "kind", owner));
  check_keys(kind_of(out), entry, owner);
  if (entry.contains("x")) {
    out.x = text_of(entry, "x", owner);
    out.panel = usual_panel(summary, workload, out.x);
  }
  out.series = text_of(entry, "series", owner);
  if (entry.contains("panel")) out.panel = text_of(entry, "panel", owner);
  out.name = text_of(entry, "name", owner);
  if (entry.contains("clock")) out.clock = clock_index(text_of(entry, "clock", owner));
  out.baseline = entry.value("baseline", Json());
  if (!out.baseline.is_null() && !out.baseline.is_object())
    fail(Code::invalid_argument, owner, ": 'baseline' is ", brief_json(out.baseline),
         ", not an object of labels");
  out.only = entry.value("only", Json::array());
  if (!out.only.is_array())
    fail(Code::invalid_argument, owner, ": 'only' is ", brief_json(out.only),
         ", not a list of objects with labels");
  return out;
}

// Returns a copy in which the conditions that the figure leaves out belong to no workload.
Summary shown_part(Summary summary, const FigureSpec& spec) {
  for (ConditionResult& condition : summary.conditions)
    if (std::none_of(spec.only.begin(), spec.only.end(),
                     [&](const Json& labels) { return has_labels(condition.labels, labels); }))
      condition.workload = SIZE_MAX;
  return summary;
}

// Keeps letters, digits, '-' and '_', for file names and ids in pages.
std::string plain_name(const std::string& text) {
  std::string out;
  for (const char c : text) out += is_letter_or_digit(c) || c == '-' ? c : '_';
  return out.substr(0, 80);
}

class Gallery {
 public:
  Gallery(const Summary& summary, const std::vector<Record>& records)
      : summary_(summary), records_(records) {}

  void add(const FigureSpec& spec) {
    const std::optional<Summary> part =
        spec.only.empty() ? std::nullopt : std::optional(shown_part(summary_, spec));
    const Summary& shown = part ? *part : summary_;
    if (conditions_of_workload(shown, spec.workload).empty()) return;
    auto made = kind_of(spec).make(Scene{shown, records_, spec});
    if (!made) return;
    if (!spec.name.empty()) made->name = spec.name;
    if (summary_.objectives.size() > 1)
      made->name = cat(summary_.objectives[spec.workload].workload, "-", made->name);
    made->name = unused(plain_name(made->name));
    made->workload = spec.workload;
    made->figure.id = "f-" + made->name;
    figures_.push_back(std::move(*made));
  }

  std::vector<StudyFigure> taken() { return std::move(figures_); }

 private:
  std::string unused(const std::string& name) {
    std::string out = name;
    for (int i = 2; !names_.insert(out).second; ++i) out = cat(name, "_", i);
    return out;
  }

  const Summary& summary_;
  const std::vector<Record>& records_;
  std::vector<StudyFigure> figures_;
  std::set<std::string> names_;
};

// Calls `take` for the study's own figures and the workloads that they are for, with their names in
// errors. Returns false if it has none.
template <typename Take>
bool each_given(const Json& given, const Summary& summary, const Take& take) {
  if (!given.is_null() && !given.is_array())
    fail(Code::invalid_argument, "'figures' is ", brief_json(given), ", not a list");
  for (size_t workload = 0; workload < summary.objectives.size(); ++workload)
    for (size_t i = 0; i < given.size(); ++i) {
      const std::string owner = cat("figures[", i, "]");
      check_is_object(given[i], owner);
      const std::string only = text_of(given[i], "workload", owner);
      if (only.empty() || only == summary.objectives[workload].workload)
        take(spec_of(summary, workload, given[i], owner), owner);
    }
  return !given.empty();
}

std::vector<std::string> without_repeats(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return texts;
}

// Checks that a condition has these labels: otherwise a misspelt one would silently leave all
// conditions without a baseline, or a figure without a series.
void check_chosen(const Summary& summary, const Json& labels, const std::string& key) {
  if (!labels.is_object() || labels.empty())
    fail(Code::invalid_argument, key, " is ", brief_json(labels),
         "; it takes an object with labels of a condition");
  for (const ConditionResult& condition : summary.conditions)
    if (has_labels(condition.labels, labels)) return;
  for (const auto& [label, value] : labels.items()) {
    std::vector<std::string> names, values;
    for (const ConditionResult& condition : summary.conditions)
      for (const auto& [name, other] : condition.labels.items()) {
        names.push_back(name);
        if (name == label) values.push_back(label_text(other));
      }
    if (values.empty())
      fail(Code::invalid_argument, key, ": no condition has a label '", label, "'",
           suggestion(label, without_repeats(std::move(names))));
    if (std::find(values.begin(), values.end(), label_text(value)) == values.end())
      fail(Code::invalid_argument, key, ": no condition has the label ", label, "=",
           label_text(value), suggestion(label_text(value), without_repeats(std::move(values))));
  }
  fail(Code::invalid_argument, key, ": no condition has all of the labels ", labels_text(labels));
}

// Checks names of workloads and conditions, which may be missing from records of a part of the
// study.
void check_complete(const Summary& summary, const Json& entry, const std::string& owner) {
  std::vector<std::string> names;
  for (const Objective& objective : summary.objectives) names.push_back(objective.workload);
  const std::string only = text_of(entry, "workload", owner);
  if (!only.empty() && std::find(names.begin(), names.end(), only) == names.end())
    fail(Code::invalid_argument, owner, ": there is no workload '", only, "'",
         suggestion(only, names));
  if (const Json baseline = entry.value("baseline", Json()); !baseline.is_null())
    check_chosen(summary, baseline, cat(owner, ": 'baseline'"));
  const Json chosen = entry.value("only", Json::array());
  for (size_t i = 0; i < chosen.size(); ++i)
    check_chosen(summary, chosen[i], cat(owner, ": 'only[", i, "]'"));
}

}  // namespace

void check_figures(const Outline& study, const std::vector<WorkloadLabels>& workloads) {
  Summary summary;
  for (const WorkloadLabels& workload : workloads) {
    for (const Json& labels : workload.labels) {
      ConditionResult condition;
      condition.workload = summary.objectives.size();
      condition.labels = labels;
      summary.conditions.push_back(std::move(condition));
    }
    const size_t index = summary.objectives.size();
    summary.objectives.push_back({workload.workload});
    summary.workloads.emplace_back().batch_label = batch_label_of(summary.conditions, index);
  }
  if (!study.baseline.is_null()) check_chosen(summary, study.baseline, "'baseline'");
  each_given(study.figures, summary, [&](const FigureSpec& spec, const std::string& owner) {
    check_labels(summary, spec, owner);
  });
  for (size_t i = 0; i < study.figures.size(); ++i)
    check_complete(summary, study.figures[i], cat("figures[", i, "]"));
}

std::vector<StudyFigure> study_figures(const Outline& study, const Summary& summary,
                                       const std::vector<Record>& records) {
  Gallery gallery(summary, records);
  // Before the study has ended, there may be no condition yet that has a figure's label.
  const auto add = [&](const FigureSpec& spec, const std::string&) {
    if (missing_label(spec, label_names(summary, spec.workload)).empty()) gallery.add(spec);
  };
  if (!each_given(study.figures, summary, add))
    for (size_t workload = 0; workload < summary.objectives.size(); ++workload)
      for (const FigureSpec& spec : usual_specs(summary, workload)) gallery.add(spec);
  return gallery.taken();
}

}  // namespace etr::study

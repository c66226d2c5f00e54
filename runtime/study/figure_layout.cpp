// Arranges conditions in panels, series and places.
#include <algorithm>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/label_text.h"
#include "core/number_text.h"
#include "plot/text.h"
#include "study/figure_kinds.h"
#include "study/labels.h"

namespace etr::study {
namespace {

Json label_of(const Scene& scene, size_t condition, const std::string& name) {
  if (name.empty()) return nullptr;
  return scene.at(condition).labels.value(name, Json());
}

// Returns the different values of a label: numbers by size, others in order of appearance.
std::vector<Json> values_of(const Scene& scene, const std::vector<size_t>& conditions,
                            const std::string& name) {
  std::vector<Json> out;
  for (const size_t condition : conditions) {
    const Json value = label_of(scene, condition, name);
    if (std::find(out.begin(), out.end(), value) == out.end()) out.push_back(value);
  }
  if (std::all_of(out.begin(), out.end(), [](const Json& value) { return value.is_number(); }))
    std::stable_sort(out.begin(), out.end(), [](const Json& a, const Json& b) {
      return a.get<double>() < b.get<double>();
    });
  return out;
}

constexpr size_t kNamedValues = 10;  // up to this many values of a label have their own ticks

bool are_powers_of_two(const std::vector<double>& values) {
  return std::all_of(values.begin(), values.end(), [](double value) {
    return std::abs(std::log2(value) - std::round(std::log2(value))) < 1e-9;
  });
}

plot::Axis numeric_axis(const std::string& name, const std::vector<Json>& values) {
  std::vector<double> numbers;
  for (const Json& value : values)
    if (value.is_number()) numbers.push_back(value.get<double>());
  plot::Axis out;
  out.label = axis_text(name);
  const auto [least, most] = std::minmax_element(numbers.begin(), numbers.end());
  if (numbers.empty() || *least <= 0) return out;
  if (are_powers_of_two(numbers))
    out.scale = plot::Scale::log2;
  else if (*most > 8 * *least)
    out.scale = plot::Scale::log10;
  if (out.scale != plot::Scale::log2 && numbers.size() <= kNamedValues) out.at = numbers;
  return out;
}

plot::Axis category_axis(const std::string& name, const std::vector<Json>& values) {
  plot::Axis out;
  out.label = axis_text(name);
  out.scale = plot::Scale::category;
  for (const Json& value : values)
    out.categories.push_back(value.is_null() ? "–" : label_text(value));
  return out;
}

// Returns the labels that name series and rows: all but x and panel.
std::vector<std::string> series_labels(const Scene& scene) {
  std::vector<std::string> out;
  for (const std::string& name : varying_labels(scene.summary, scene.spec.workload))
    if (name != scene.spec.x && name != scene.spec.panel) out.push_back(name);
  // The label that the figure names comes first.
  const auto named = std::find(out.begin(), out.end(), scene.spec.series);
  if (named != out.end()) std::rotate(out.begin(), named, named + 1);
  return out;
}

std::string title_of(const std::string& label, const Json& value) {
  if (label.empty()) return "";
  return value.is_string() ? value.get<std::string>() : cat(label, " ", label_text(value));
}

// Groups conditions by the label for panels; without one, all are one group.
std::vector<Column> by_panel(const Scene& scene, const std::vector<size_t>& conditions) {
  std::vector<Column> out;
  for (const Json& panel : values_of(scene, conditions, scene.spec.panel)) {
    out.push_back({title_of(scene.spec.panel, panel), {}});
    for (const size_t condition : conditions)
      if (label_of(scene, condition, scene.spec.panel) == panel)
        out.back().conditions.push_back(condition);
  }
  return out;
}

class Layout {
 public:
  explicit Layout(const Scene& scene)
      : scene_(scene), conditions_(conditions_of_workload(scene.summary, scene.spec.workload)) {}

  LaidOut made() {
    const std::vector<Json> x_values = values_of(scene_, conditions_, scene_.spec.x);
    const bool numeric = is_numeric(scene_.summary, scene_.spec.workload, scene_.spec.x);
    out_.x =
        numeric ? numeric_axis(scene_.spec.x, x_values) : category_axis(scene_.spec.x, x_values);
    names_ = series_labels(scene_);
    if (scene_.summary.workloads.size() > 1) name_all_rows();
    for (const auto& [title, conditions] : by_panel(scene_, conditions_)) {
      LaidOut::Group group{title, {}, only_baseline(scene_, conditions)};
      for (const size_t condition : conditions) place(condition, x_values, numeric, group);
      for (LaidOut::Row& row : group.rows)
        std::stable_sort(
            row.places.begin(), row.places.end(),
            [](const LaidOut::Place& a, const LaidOut::Place& b) { return a.x < b.x; });
      out_.groups.push_back(std::move(group));
    }
    return std::move(out_);
  }

 private:
  // A condition without a number has no place along numbers; as the baseline it is a level.
  void place(size_t condition, const std::vector<Json>& x_values, bool numeric,
             LaidOut::Group& group) {
    const Json value = label_of(scene_, condition, scene_.spec.x);
    if (numeric && !value.is_number()) return;
    const double x = numeric
                         ? value.get<double>()
                         : static_cast<double>(std::find(x_values.begin(), x_values.end(), value) -
                                               x_values.begin());
    row_for(condition, group).places.push_back({x, condition});
  }

  // Gives the rows of all workloads their styles, so that a name looks the same in all figures.
  void name_all_rows() {
    FigureSpec spec = scene_.spec;
    const Scene other{scene_.summary, scene_.records, spec};
    for (spec.workload = 0; spec.workload < scene_.summary.workloads.size(); ++spec.workload) {
      const std::vector<std::string> names = series_labels(other);
      for (const size_t condition : conditions_of_workload(other.summary, spec.workload))
        styles_.of(short_name(other.at(condition).labels, names), is_baseline(other, condition));
    }
  }

  LaidOut::Row& row_for(size_t condition, LaidOut::Group& group) {
    const std::string name = short_name(scene_.at(condition).labels, names_);
    for (LaidOut::Row& row : group.rows)
      if (row.name == name) return row;
    group.rows.push_back({name, styles_.of(name, is_baseline(scene_, condition)), {}});
    return group.rows.back();
  }

  const Scene& scene_;
  const std::vector<size_t> conditions_;
  std::vector<std::string> names_;
  Styles styles_;
  LaidOut out_;
};

}  // namespace

std::vector<size_t> conditions_of_workload(const Summary& summary, size_t workload) {
  std::vector<size_t> out;
  for (size_t i = 0; i < summary.conditions.size(); ++i)
    if (summary.conditions[i].workload == workload) out.push_back(i);
  return out;
}

std::vector<std::string> varying_labels(const Summary& summary, size_t workload) {
  std::vector<std::string> names, out;
  const std::vector<size_t> conditions = conditions_of_workload(summary, workload);
  for (const size_t condition : conditions)
    for (const auto& [name, value] : summary.conditions[condition].labels.items())
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  for (const std::string& name : names) {
    const Json first = summary.conditions[conditions.front()].labels.value(name, Json());
    if (std::any_of(conditions.begin(), conditions.end(), [&](size_t condition) {
          return summary.conditions[condition].labels.value(name, Json()) != first;
        }))
      out.push_back(name);
  }
  return out;
}

bool is_numeric(const Summary& summary, size_t workload, const std::string& label) {
  bool any = false;
  for (const size_t condition : conditions_of_workload(summary, workload)) {
    const Json value = summary.conditions[condition].labels.value(label, Json());
    if (!value.is_null() && !value.is_number()) return false;
    any = any || value.is_number();
  }
  return any;
}

std::string short_name(const Json& labels, const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names)
    if (const Json value = labels.value(name, Json()); !value.is_null())
      out += cat(out.empty() ? "" : ", ", title_of(name, value));
  return out;
}

std::string short_name(const Scene& scene, size_t condition) {
  const std::string out =
      short_name(scene.at(condition).labels, varying_labels(scene.summary, scene.spec.workload));
  return out.empty() ? scene.at(condition).name : out;
}

LaidOut laid_out(const Scene& scene) { return Layout(scene).made(); }

std::optional<size_t> only_baseline(const Scene& scene, const std::vector<size_t>& conditions) {
  std::optional<size_t> out;
  for (const size_t condition : conditions) {
    if (!is_baseline(scene, condition)) continue;
    if (out) return {};
    out = condition;
  }
  return out;
}

bool is_baseline(const Scene& scene, size_t condition) {
  const Json& wanted = scene.spec.baseline.is_null() ? scene.summary.baseline : scene.spec.baseline;
  return wanted.is_object() && has_labels(scene.at(condition).labels, wanted);
}

int Styles::of(const std::string& name, bool has_baseline) {
  if (has_baseline && !baseline_) baseline_ = name;
  if (baseline_ == name) return 0;
  const auto known = std::find(others_.begin(), others_.end(), name);
  const auto index = static_cast<int>(known - others_.begin());
  if (known == others_.end()) others_.push_back(name);
  return index + 1;
}

std::vector<size_t> listed(const Scene& scene, size_t most) {
  std::vector<size_t> out = conditions_of_workload(scene.summary, scene.spec.workload);
  if (out.size() <= most) return out;
  const auto before = [&](size_t a, size_t b) {
    if (is_baseline(scene, a) != is_baseline(scene, b)) return is_baseline(scene, a);
    const Spread &one = scene.at(a).to_target[scene.objective().clock],
                 &other = scene.at(b).to_target[scene.objective().clock];
    if (one.median != other.median && std::isfinite(std::min(one.median, other.median)))
      return one.median < other.median;
    return is_better(scene.at(a).best_metric.median, scene.at(b).best_metric.median,
                     scene.objective().accuracy);
  };
  std::stable_sort(out.begin(), out.end(), before);
  out.resize(most);
  return out;
}

plot::Axis condition_axis(const Scene& scene, const std::vector<size_t>& conditions) {
  plot::Axis out;
  out.scale = plot::Scale::category;
  const std::vector<std::string> names = series_labels(scene);
  for (const size_t condition : conditions) {
    const std::string name = short_name(scene.at(condition).labels, names);
    out.categories.push_back(name.empty() ? "all" : name);
  }
  return out;
}

std::vector<Column> in_columns(const Scene& scene, const std::vector<size_t>& conditions) {
  if (!scene.spec.panel.empty()) return by_panel(scene, conditions);
  constexpr size_t kMostInColumn = 16, kMostColumns = 3;
  const size_t columns =
      std::clamp<size_t>((conditions.size() + kMostInColumn - 1) / kMostInColumn, 1, kMostColumns);
  const size_t rows = (conditions.size() + columns - 1) / columns;
  std::vector<Column> out;
  for (size_t i = 0; i < conditions.size(); ++i) {
    if (i % rows == 0) out.emplace_back();
    out.back().conditions.push_back(conditions[i]);
  }
  return out;
}

std::string upper_first(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 32);
  return text;
}

std::string axis_text(const std::string& label) {
  if (label == "factor") return "Echo factor";
  if (label == "batch") return "Batch size";
  return upper_first(label);
}

std::string clock_text(size_t clock) {
  constexpr const char* kTexts[] = {"fresh examples", "examples", "steps", "seconds"};
  return kTexts[clock];
}

std::string target_text(const Objective& objective) {
  if (!objective.target) return "no target";
  return objective.accuracy ? cat("accuracy > ", number_text(100 * *objective.target, 2), " %")
                            : cat("loss < ", number_text(*objective.target, 4));
}

std::optional<double> searched(const Record& record, const std::string& key) {
  if (!record.point.is_object() || !record.point.contains(key)) return {};
  const Json& value = record.point[key];
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

}  // namespace etr::study

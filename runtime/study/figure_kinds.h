// The kinds of figures, and what they share.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "study/figures.h"

namespace etr::study {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr size_t kMostRows = 60;  // rows of a figure

struct FigureSpec {
  std::string kind, x, series, panel, name;
  std::optional<size_t> clock;
  Json baseline;
  Json only;  // labels of the conditions to show, a list; empty: all
  size_t workload = 0;
};

struct Scene {
  const Summary& summary;
  const std::vector<Record>& records;
  const FigureSpec& spec;

  const Objective& objective() const { return summary.objectives[spec.workload]; }
  const std::string& batch_label() const { return summary.workloads[spec.workload].batch_label; }
  size_t clock() const { return spec.clock.value_or(objective().clock); }
  const ConditionResult& at(size_t condition) const { return summary.conditions[condition]; }
};

// Returns the workload's conditions.
std::vector<size_t> conditions_of_workload(const Summary& summary, size_t workload);

// Returns the labels that differ among the workload's conditions, in declaration order.
std::vector<std::string> varying_labels(const Summary& summary, size_t workload);

// Returns whether the label is a number in all of the workload's conditions that have it.
bool is_numeric(const Summary& summary, size_t workload, const std::string& label);

// Names a condition by these labels, or by those that vary: "after augmentation, factor 4".
std::string short_name(const Json& labels, const std::vector<std::string>& names);
std::string short_name(const Scene& scene, size_t condition);

// Conditions arranged in panels, series and places.
struct LaidOut {
  struct Place {
    double x;  // the number, or the index of the category
    size_t condition;
  };
  struct Row {
    std::string name;
    int style;  // 0: the baseline
    std::vector<Place> places;
  };
  struct Group {
    std::string title;
    std::vector<Row> rows;
    std::optional<size_t> baseline;  // if there is one alone
  };
  plot::Axis x;
  std::vector<Group> groups;
};
LaidOut laid_out(const Scene& scene);

// Returns the conditions in display order for figures without a label for x, one category each. If
// there are more than `most`, keeps the best, with the baseline first.
std::vector<size_t> listed(const Scene& scene, size_t most);
plot::Axis condition_axis(const Scene& scene, const std::vector<size_t>& conditions);
// Splits conditions into columns: one for each value of the label for panels, or else columns of
// about equal length.
struct Column {
  std::string title;
  std::vector<size_t> conditions;
};
std::vector<Column> in_columns(const Scene& scene, const std::vector<size_t>& conditions);

bool is_baseline(const Scene& scene, size_t condition);
// Returns the baseline among the conditions if there is exactly one.
std::optional<size_t> only_baseline(const Scene& scene, const std::vector<size_t>& conditions);

// Gives names their styles: 0 to the baseline, then 1, 2 and so on, the same in all panels. If
// several names have baselines, the first one gets their style.
class Styles {
 public:
  int of(const std::string& name, bool has_baseline);

 private:
  std::optional<std::string> baseline_;
  std::vector<std::string> others_;
};

// "fresh examples", "steps", "seconds"
std::string clock_text(size_t clock);
// "Echo factor" for the label "factor"
std::string axis_text(const std::string& label);
std::string upper_first(std::string text);
// "loss < 1.55"
std::string target_text(const Objective& objective);

constexpr const char *kRateKey = "schedule.learning_rate", *kMomentumKey = "optimizer.momentum";
// Returns the searched value of this key, if it is a number.
std::optional<double> searched(const Record& record, const std::string& key);

// These return nothing if there is nothing to show.
std::optional<StudyFigure> to_target_figure(const Scene& scene);
std::optional<StudyFigure> best_metric_figure(const Scene& scene);
std::optional<StudyFigure> scaling_figure(const Scene& scene);
std::optional<StudyFigure> rate_figure(const Scene& scene);
std::optional<StudyFigure> spread_figure(const Scene& scene);
std::optional<StudyFigure> curves_figure(const Scene& scene);
std::optional<StudyFigure> trials_figure(const Scene& scene);

}  // namespace etr::study

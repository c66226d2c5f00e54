// Figures of single trials: spread, curves, trials.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/label_text.h"
#include "core/number_text.h"
#include "study/figure_kinds.h"

namespace etr::study {
namespace {

constexpr size_t kMostCurves = plot::kStyles, kMostPanels = 9;

std::string left_out(size_t shown, size_t all) {
  if (shown >= all) return "";
  return cat(" The best ", shown, " of ", all, " conditions are shown, the baseline first.");
}

size_t all_of(const Scene& scene) {
  return conditions_of_workload(scene.summary, scene.spec.workload).size();
}

// Ends the metric's axis before the worst values, since diverging trials would leave no room for
// the others.
void cut_worst(const Objective& objective, std::vector<double> values, double kept,
               plot::Axis& axis) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.size() < 8 || objective.accuracy) return;
  std::sort(values.begin(), values.end());
  const auto index = static_cast<size_t>(kept * static_cast<double>(values.size() - 1));
  const double low = values.front(), high = values[index];
  if (values.back() > high + 0.5 * (high - low)) axis.to = high + 0.1 * (high - low);
}

// For a trial that was stopped early, the cost of reaching the target is unknown.
bool was_stopped(const Record& record) {
  return record.status == Status::slower || record.status == Status::pruned;
}

// Makes one column of a strip plot, and adds its values to `all`.
plot::Panel strip(const Scene& scene, const Column& column, bool score, std::vector<double>& all) {
  const std::vector<size_t>& conditions = column.conditions;
  plot::Panel panel{column.title, {}, condition_axis(scene, conditions)};
  plot::Series trials{"trial", 2, plot::Mark::points, {}, false, true, 0};
  plot::Series medians{"median of the searches' best", 1, plot::Mark::ticks};
  for (size_t i = 0; i < conditions.size(); ++i) {
    std::vector<double> values;
    for (const size_t index : scene.at(conditions[i]).records) {
      const Record& record = scene.records[index];
      if (!is_feasible(record.status) || (score && was_stopped(record))) continue;
      const double value = !score             ? record.best_metric
                           : record.to_target ? read_clock(*record.to_target, scene.clock())
                                              : kInfinite;
      if (std::isnan(value)) continue;
      values.push_back(value);
      // Jitters points, so that equal ones are seen side by side.
      const double turn = 0.618034 * static_cast<double>(values.size());
      trials.points.push_back(
          {value, static_cast<double>(i) + 0.44 * (turn - std::floor(turn) - 0.5)});
    }
    all.insert(all.end(), values.begin(), values.end());
    // The same median as in other figures: most trials of a search are expected to be worse than
    // its best.
    const ConditionResult& condition = scene.at(conditions[i]);
    if (const Spread& spread = score ? condition.to_target[scene.clock()] : condition.best_metric;
        spread.count > 0 && !values.empty())
      medians.points.push_back({spread.median, static_cast<double>(i)});
  }
  panel.series = {std::move(trials), std::move(medians)};
  return panel;
}

}  // namespace

std::optional<StudyFigure> spread_figure(const Scene& scene) {
  const Objective& objective = scene.objective();
  const bool score = scene.spec.clock && objective.target;
  const std::vector<size_t> conditions = listed(scene, kMostRows);
  StudyFigure out;
  out.name = score ? cat("spread_", kClocks[scene.clock()]) : "spread";
  const std::string text =
      score ? cat(clock_text(scene.clock()), " to target") : cat("best ", objective.metric());
  out.caption =
      cat("Each trial that is feasible. Strokes are medians over searches of the best that a trial "
          "of the search reached.",
          left_out(conditions.size(), all_of(scene)));
  out.figure.title = "Trials of each condition: " + text;
  const bool stopped = std::any_of(scene.records.begin(), scene.records.end(), was_stopped);
  if (score && stopped) out.caption += " Trials that were stopped early are left out.";
  std::vector<double> all;
  for (const Column& column : in_columns(scene, conditions))
    out.figure.panels.push_back(strip(scene, column, score, all));
  if (all.empty()) return {};
  if (std::any_of(all.begin(), all.end(), [](double value) { return std::isinf(value); }))
    out.caption += " Trials that did not reach the target lie under “never”.";
  for (plot::Panel& panel : out.figure.panels) {
    panel.x.label = text;
    panel.x.percent = objective.accuracy && !score;
    if (!score) cut_worst(objective, all, 0.95, panel.x);
  }
  if (std::isfinite(out.figure.panels.front().x.to))
    out.caption += " Trials far worse than the others lie beyond the axis.";
  out.figure.share_x = true;
  out.figure.description =
      cat(all.size(), " trials of ", conditions.size(), " conditions; ", text, " across.");
  return out;
}

namespace {

// Curves of very different lengths cannot share a linear axis.
void set_extent(plot::Panel& panel) {
  double least = kInfinite, most = 0;
  for (const plot::Series& series : panel.series)
    if (!series.points.empty() && series.points.back().x > 0) {
      least = std::min(least, series.points.back().x);
      most = std::max(most, series.points.back().x);
    }
  if (most > 5 * least)
    panel.x.scale = plot::Scale::log10;
  else
    panel.x.from = 0;
}

}  // namespace

std::optional<StudyFigure> curves_figure(const Scene& scene) {
  const Objective& objective = scene.objective();
  std::vector<size_t> conditions = listed(scene, kMostCurves);
  StudyFigure out;
  out.name = "curves";
  out.caption =
      cat("The best trial of each condition.", left_out(conditions.size(), all_of(scene)));
  out.figure.title = cat("Test ", objective.metric(), " of the best trials");
  std::vector<double> values;
  Styles styles;
  for (const size_t clock : {0, 2, 3}) {
    plot::Panel panel;
    panel.x.label = clock == 3 ? "training time, seconds" : clock_text(clock);
    panel.y.label = objective.metric();
    panel.y.percent = objective.accuracy;
    for (const size_t condition : conditions) {
      const std::string name = short_name(scene, condition);
      plot::Series series{name, styles.of(name, is_baseline(scene, condition))};
      if (const auto best = scene.at(condition).best)
        for (const CurvePoint& point : scene.records[*best].curve)
          if (const double y = metric_at(point, objective.accuracy); std::isfinite(y)) {
            series.points.push_back({read_clock(point.at, clock), y});
            values.push_back(y);
          }
      panel.series.push_back(std::move(series));
    }
    if (objective.target) {
      double first = kInfinite, last = 0;
      for (const plot::Series& series : panel.series)
        for (const plot::Point& point : series.points)
          first = std::min(first, point.x), last = std::max(last, point.x);
      panel.references.push_back(
          {"target", {{first, *objective.target}, {last, *objective.target}}});
    }
    set_extent(panel);
    out.figure.panels.push_back(std::move(panel));
  }
  if (values.empty()) return {};
  for (plot::Panel& panel : out.figure.panels) cut_worst(objective, values, 0.9, panel.y);
  out.figure.share_y = true;
  out.figure.description = cat("Curves of ", conditions.size(), " conditions.");
  return out;
}

namespace {

// The two keys that span the figure: the learning rate and 1 - momentum, or else those searched
// first.
struct Plane {
  std::string x, y;
  bool complement = false;  // y is 1 - the key's value
};

Plane plane_of(const Scene& scene) {
  std::vector<std::string> keys;
  for (const Record& record : scene.records)
    if (record.workload == scene.objective().workload && record.point.is_object())
      for (const auto& [key, value] : record.point.items())
        if (value.is_number() && std::find(keys.begin(), keys.end(), key) == keys.end())
          keys.push_back(key);
  Plane out;
  const auto has = [&](const char* key) {
    return std::find(keys.begin(), keys.end(), key) != keys.end();
  };
  if (!keys.empty()) out.x = has(kRateKey) ? kRateKey : keys.front();
  if (has(kMomentumKey) && out.x != kMomentumKey) out.y = kMomentumKey, out.complement = true;
  for (const std::string& key : keys)
    if (out.y.empty() && key != out.x) out.y = key;
  return out;
}

std::string last_part(const std::string& key) {
  const size_t dot = key.rfind('.');
  std::string out = dot == std::string::npos ? key : key.substr(dot + 1);
  std::replace(out.begin(), out.end(), '_', ' ');
  return out;
}

plot::Scale scale_of(const Scene& scene, const std::string& key) {
  double low = kInfinite, high = -kInfinite;
  for (const Record& record : scene.records)
    if (const auto value = searched(record, key);
        value && record.workload == scene.objective().workload)
      low = std::min(low, *value), high = std::max(high, *value);
  return low > 0 && high > 20 * low ? plot::Scale::log10 : plot::Scale::linear;
}

struct Outcome {
  const char* name;
  int style, shape;
  bool hollow;
};

Outcome outcome_of(Status status) {
  switch (status) {
    case Status::reached: return {"reached the target", 2, 0, false};
    case Status::missed: return {"missed it", 2, 0, true};
    case Status::slower: return {"stopped: slower", 0, 1, true};
    case Status::pruned: return {"stopped: pruned", 4, 4, true};
    case Status::diverged: return {"diverged", 1, 7, false};
    default: return {"failed", 5, 5, false};
  }
}

plot::Panel trials_panel(const Scene& scene, const Plane& plane, size_t condition) {
  const Objective& objective = scene.objective();
  plot::Panel panel{short_name(scene, condition)};
  panel.x.label = last_part(plane.x);
  panel.x.scale = scale_of(scene, plane.x);
  panel.y.label = plane.y.empty() ? cat("best ", objective.metric())
                                  : (plane.complement ? "1 − " : "") + last_part(plane.y);
  panel.y.percent = plane.y.empty() && objective.accuracy;
  panel.y.scale = plane.y.empty()    ? plot::Scale::linear
                  : plane.complement ? plot::Scale::log10
                                     : scale_of(scene, plane.y);
  for (size_t i = 0; i < kStatusCount; ++i) {
    const Outcome outcome = outcome_of(static_cast<Status>(i));
    panel.series.push_back({objective.target || i != 1 ? outcome.name : "ended with its budget",
                            outcome.style,
                            plot::Mark::points,
                            {},
                            false,
                            outcome.hollow,
                            outcome.shape});
  }
  plot::Series best{"best", 3, plot::Mark::points, {}, true};
  for (const size_t index : scene.at(condition).records) {
    const Record& record = scene.records[index];
    const auto x = searched(record, plane.x);
    const auto y = plane.y.empty() ? std::optional(record.best_metric) : searched(record, plane.y);
    if (!x || !y) continue;
    const plot::Point point{
        *x, plane.complement ? 1 - *y : *y, plot::kNone, plot::kNone,
        cat("search ", record.search, ", trial ", record.trial, ", ", labels_text(record.point),
            ", best ", objective.metric(), " ",
            objective.accuracy ? cat(number_text(100 * record.best_metric, 2), " %")
                               : number_text(record.best_metric, 4))};
    panel.series[static_cast<size_t>(record.status)].points.push_back(point);
    if (scene.at(condition).best == index) best.points.push_back(point);
  }
  panel.series.push_back(std::move(best));
  return panel;
}

}  // namespace

std::optional<StudyFigure> trials_figure(const Scene& scene) {
  const Plane plane = plane_of(scene);
  if (plane.x.empty()) return {};
  const std::vector<size_t> conditions = listed(scene, kMostPanels);
  StudyFigure out;
  out.name = "trials";
  out.caption = cat("The points of all searches and what became of them.",
                    left_out(conditions.size(), all_of(scene)));
  out.figure.title = "Trials in the space of the search";
  for (const size_t condition : conditions)
    out.figure.panels.push_back(trials_panel(scene, plane, condition));
  // The legend names only what is there.
  for (size_t i = 0; i <= kStatusCount; ++i)
    if (std::all_of(out.figure.panels.begin(), out.figure.panels.end(),
                    [&](const plot::Panel& panel) { return panel.series[i].points.empty(); }))
      for (plot::Panel& panel : out.figure.panels) panel.series[i].name.clear();
  out.figure.share_x = out.figure.share_y = true;
  out.figure.description =
      cat(scene.objective().workload, ": trials of ", conditions.size(), " conditions.");
  return out;
}

}  // namespace etr::study

// Figures of scores: to_target, best_metric, scaling, rate.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/error.h"
#include "core/number_text.h"
#include "study/figure_kinds.h"
#include "study/labels.h"

namespace etr::study {
namespace {

constexpr const char* kWhiskers =
    "Markers are medians over searches, whiskers the least and the most.";

plot::Point point_of(double x, const Spread& spread) {
  return {x, spread.median, spread.low, spread.high};
}

// Returns whether the values have such a range that only a logarithmic axis shows all of them.
bool is_wide(const std::vector<plot::Panel>& panels) {
  double low = kInfinite, high = 0;
  for (const plot::Panel& panel : panels)
    for (const plot::Series& series : panel.series)
      for (const plot::Point& point : series.points)
        for (const double value : {point.y, point.low, point.high})
          if (std::isfinite(value) && value > 0)
            low = std::min(low, value), high = std::max(high, value);
  return high > 5 * low;
}

// Returns whether a level can be shown without taking too much room from the data.
bool is_near(double level, const std::vector<plot::Panel>& panels) {
  double low = kInfinite, high = -kInfinite;
  for (const plot::Panel& panel : panels)
    for (const plot::Series& series : panel.series)
      for (const plot::Point& point : series.points)
        if (std::isfinite(point.y)) low = std::min(low, point.y), high = std::max(high, point.y);
  const double room = 0.6 * (high - low);
  return level >= low - room && level <= high + room;
}

// Explains infinite costs, if the figure has some.
std::string never_text(const plot::Figure& figure) {
  for (const plot::Panel& panel : figure.panels)
    for (const plot::Series& series : panel.series)
      for (const plot::Point& point : series.points)
        if (std::isinf(point.x) || std::isinf(point.y) || std::isinf(point.high))
          return " Searches in which no trial reached it count as “never”: a marker there is a "
                 "median, an arrow the end of a whisker.";
  return "";
}

bool has_points(const plot::Figure& figure) {
  for (const plot::Panel& panel : figure.panels)
    for (const plot::Series& series : panel.series)
      if (!series.points.empty()) return true;
  return false;
}

// Describes the figure for screen readers: each series with its values.
std::string described(const plot::Figure& figure) {
  std::string out;
  for (const plot::Panel& panel : figure.panels)
    for (const plot::Series& series : panel.series) {
      if (series.points.empty() || out.size() > 2000) continue;
      out += cat(panel.title.empty() ? "" : panel.title + ", ", series.name, ": ");
      for (const plot::Point& point : series.points)
        out += cat(std::isinf(point.y) ? "never" : number_text(point.y, 4), " at ",
                   std::isinf(point.x) ? "never" : number_text(point.x, 4), "; ");
    }
  return out;
}

// Adds the description. Returns none if no series has a point.
std::optional<StudyFigure> finished(StudyFigure out) {
  if (!has_points(out.figure)) return {};
  out.figure.description = described(out.figure);
  return out;
}

// Makes panels with a series for each row; `value` gives a condition's value.
template <typename Value>
std::vector<plot::Panel> panels_of(const LaidOut& layout, const plot::Axis& y, const Value& value) {
  std::vector<plot::Panel> out;
  for (const LaidOut::Group& group : layout.groups) {
    plot::Panel panel{group.title, layout.x, y};
    for (const LaidOut::Row& row : group.rows) {
      plot::Series series{row.name, row.style};
      if (layout.x.scale == plot::Scale::category) series.mark = plot::Mark::bars;
      for (const LaidOut::Place& place : row.places)
        if (const Spread spread = value(place.condition); spread.count > 0)
          series.points.push_back(point_of(place.x, spread));
      panel.series.push_back(std::move(series));
    }
    out.push_back(std::move(panel));
  }
  return out;
}

// How the conditions of a figure are arranged.
struct Arranged {
  bool rows = false;                             // values run along x
  std::vector<std::optional<size_t>> baselines;  // of each panel, if it has one alone
};

// Without a label for x, conditions are listed in a column and values run along x.
template <typename Value>
Arranged listed_panels(const Scene& scene, const plot::Axis& values, const Value& value,
                       StudyFigure& figure) {
  const std::vector<size_t> conditions = listed(scene, kMostRows);
  const size_t all = conditions_of_workload(scene.summary, scene.spec.workload).size();
  if (conditions.size() < all)
    figure.caption += cat(" The best ", conditions.size(), " of ", all, " conditions are shown.");
  Arranged out{true, {}};
  for (const auto& [title, column] : in_columns(scene, conditions)) {
    plot::Panel panel{title, values, condition_axis(scene, column)};
    plot::Series series{"", 2, plot::Mark::points, {}, false, false, 0};
    for (size_t i = 0; i < column.size(); ++i)
      if (const Spread spread = value(column[i]); spread.count > 0)
        series.points.push_back({spread.median, static_cast<double>(i), spread.low, spread.high});
    panel.series.push_back(std::move(series));
    figure.figure.panels.push_back(std::move(panel));
    out.baselines.push_back(only_baseline(scene, scene.spec.panel.empty() ? conditions : column));
  }
  return out;
}

// Makes the figure's panels. If there is a label for x, conditions lie along it; otherwise they are
// listed in rows.
template <typename Value>
Arranged set_panels(const Scene& scene, const plot::Axis& values, const Value& value,
                    StudyFigure& out) {
  out.figure.share_x = true;
  if (scene.spec.x.empty()) return listed_panels(scene, values, value, out);
  const LaidOut layout = laid_out(scene);
  out.figure.panels = panels_of(layout, values, value);
  out.figure.share_y = out.figure.dodge = true;
  Arranged arranged;
  for (const LaidOut::Group& group : layout.groups) arranged.baselines.push_back(group.baseline);
  return arranged;
}

std::pair<double, double> x_range(const plot::Panel& panel) {
  if (panel.x.scale == plot::Scale::category)
    return {-0.5, static_cast<double>(panel.x.categories.size()) - 0.5};
  double low = kInfinite, high = -kInfinite;
  for (const plot::Series& series : panel.series)
    for (const plot::Point& point : series.points)
      low = std::min(low, point.x), high = std::max(high, point.x);
  return {low, high};
}

// The curves are straight on their intended axes; on other axes they need enough points.
std::vector<std::pair<double, double>> power_curve(double from, double to, double at, double value,
                                                   double exponent) {
  std::vector<std::pair<double, double>> out;
  for (int i = 0; i <= 32; ++i) {
    const double x = from * std::pow(to / from, i / 32.0);
    out.emplace_back(x, value * std::pow(x / at, exponent));
  }
  return out;
}

// Adds the baseline's median and, if x is a factor, the ideal if each copy were worth a fresh
// example.
void add_baseline(const Scene& scene, std::optional<size_t> baseline, bool rows,
                  plot::Panel& panel) {
  if (!baseline) return;
  const double base = scene.at(*baseline).to_target[scene.clock()].median;
  if (!std::isfinite(base) || base <= 0) return;
  if (rows) {
    const auto count = static_cast<double>(panel.y.categories.size());
    panel.references.push_back({"baseline", {{base, -0.5}, {base, count - 0.5}}});
    return;
  }
  const auto [low, high] = x_range(panel);
  if (!(low <= high)) return;  // the baseline is all that the panel has
  panel.references.push_back({"baseline", {{low, base}, {high, base}}});
  const bool fresh = scene.clock() == 0 && scene.spec.x == "factor" && low > 0;
  if (fresh && panel.x.scale != plot::Scale::category)
    panel.references.push_back(
        {"ideal: baseline / factor", power_curve(low, high, 1, base, -1), true});
}

// Shows differences between metrics, which bars from zero would hide.
void add_metric_range(const Scene& scene, std::optional<size_t> baseline, bool rows,
                      plot::Panel& panel) {
  for (plot::Series& series : panel.series)
    if (series.mark == plot::Mark::bars) series.mark = plot::Mark::points;
  if (!baseline) return;
  const Spread& base = scene.at(*baseline).best_metric;
  if (std::isfinite(base.low))
    panel.ranges.push_back({"baseline, least to most", base.low, base.high, rows});
}

void add_target(double target, plot::Panel& panel) {
  const auto [low, high] = x_range(panel);
  if (low <= high) panel.references.push_back({"target", {{low, target}, {high, target}}});
}

}  // namespace

std::optional<StudyFigure> to_target_figure(const Scene& scene) {
  if (!scene.objective().target) return {};
  const auto value = [&](size_t i) { return scene.at(i).to_target[scene.clock()]; };
  StudyFigure out;
  const std::string text = upper_first(clock_text(scene.clock())) + " to target";
  out.name = cat("to_target_", kClocks[scene.clock()]);
  out.caption = cat("The least of a search at which a trial reached ",
                    target_text(scene.objective()), ". ", kWhiskers);
  out.figure.title = text;
  plot::Axis y;
  y.label = cat(upper_first(clock_text(scene.clock())), " to ", target_text(scene.objective()));
  const Arranged arranged = set_panels(scene, y, value, out);
  const bool wide = is_wide(out.figure.panels);
  for (size_t i = 0; i < out.figure.panels.size(); ++i) {
    plot::Panel& panel = out.figure.panels[i];
    // Costs are compared by their ratios, so a linear axis begins at zero, as bars do.
    if (!arranged.rows && panel.x.scale != plot::Scale::category && wide)
      panel.y.scale = plot::Scale::log10;
    else
      (arranged.rows ? panel.x : panel.y).from = 0;
    add_baseline(scene, arranged.baselines[i], arranged.rows, panel);
  }
  out.caption += never_text(out.figure);
  return finished(std::move(out));
}

std::optional<StudyFigure> best_metric_figure(const Scene& scene) {
  const auto value = [&](size_t i) { return scene.at(i).best_metric; };
  const Objective& objective = scene.objective();
  StudyFigure out;
  out.name = "best_metric";
  out.caption = cat("The best ", objective.metric(), " of a search's trials within the budget. ",
                    scene.summary.workloads[scene.spec.workload].ends_at_target
                        ? "Trials ended when they reached the target. "
                        : "",
                    kWhiskers);
  out.figure.title = cat("Best ", objective.metric(), " within the budget");
  plot::Axis y;
  y.label = cat("Best ", objective.metric());
  y.percent = objective.accuracy;
  const Arranged arranged = set_panels(scene, y, value, out);
  for (size_t i = 0; i < out.figure.panels.size(); ++i)
    add_metric_range(scene, arranged.baselines[i], arranged.rows, out.figure.panels[i]);
  if (!arranged.rows && objective.target && is_near(*objective.target, out.figure.panels))
    for (plot::Panel& panel : out.figure.panels) add_target(*objective.target, panel);
  return finished(std::move(out));
}

namespace {

// Notes on more series than these would cover each other and the data. The report's table has them.
constexpr size_t kMostNotedSeries = 3;

// Marks the points where scaling ends.
void add_ends(const Scene& scene, const LaidOut::Row& row, bool alone, plot::Panel& panel) {
  for (const ScalingResult& scaling : scene.summary.scaling) {
    if (std::find(scaling.at.begin(), scaling.at.end(), row.places.front().condition) ==
        scaling.at.end())
      continue;
    const auto note = [&](const std::optional<double>& batch, const char* text) {
      if (!batch) return;
      const auto steps_at = [&](size_t at) { return scene.at(scaling.at[at]).to_target[2].median; };
      const auto at =
          static_cast<size_t>(std::find(scaling.batches.begin(), scaling.batches.end(), *batch) -
                              scaling.batches.begin());
      const double steps = steps_at(at);
      // Beyond the largest batch that reached the target nothing is known.
      size_t larger = at + 1;
      while (larger < scaling.at.size() && !std::isfinite(steps_at(larger))) ++larger;
      const char* from = larger == scaling.at.size() ? "≥ " : "";
      if (std::isfinite(steps))
        panel.notes.push_back(
            {*batch, steps, cat(text, " ", from, number_text(*batch)), row.style});
    };
    note(scaling.perfect_until, alone ? "perfect scaling up to" : "perfect to");
    note(scaling.largest_useful, alone ? "largest useful batch" : "useful to");
  }
}

}  // namespace

std::optional<StudyFigure> scaling_figure(const Scene& scene) {
  if (!scene.objective().target || !is_numeric(scene.summary, scene.spec.workload, scene.spec.x))
    return {};
  const LaidOut layout = laid_out(scene);
  const bool over_batch = scene.spec.x == scene.batch_label();
  StudyFigure out;
  out.name = "scaling";
  out.caption = cat("Steps to reach ", target_text(scene.objective()), ". ", kWhiskers);
  if (over_batch)
    out.caption +=
        cat(" Scaling is perfect as long as steps are within ", number_text(100 * (kPerfect - 1)),
            " % of those at the smallest batch divided by how often it fits into the larger one; a "
            "larger batch is useful until steps are within ",
            number_text(100 * (kUseful - 1)), " % of the fewest.");
  else
    out.caption += cat(" With perfect scaling, twice the ", scene.spec.x, " halves the steps.");
  out.figure.title =
      cat("Steps to target against ", over_batch ? std::string("batch size") : scene.spec.x);
  plot::Axis y;
  y.label = cat("Steps to ", target_text(scene.objective()));
  y.scale = plot::Scale::log2;
  out.figure.panels = panels_of(layout, y, [&](size_t i) { return scene.at(i).to_target[2]; });
  for (size_t i = 0; i < layout.groups.size(); ++i) {
    plot::Panel& panel = out.figure.panels[i];
    for (const LaidOut::Row& row : layout.groups[i].rows) {
      if (row.places.empty()) continue;
      const LaidOut::Place &first = row.places.front(), &last = row.places.back();
      const double steps = scene.at(first.condition).to_target[2].median;
      if (first.x > 0 && last.x > first.x && std::isfinite(steps))
        panel.references.push_back(
            {"perfect scaling", power_curve(first.x, last.x, first.x, steps, -1)});
      if (over_batch && layout.groups[i].rows.size() <= kMostNotedSeries)
        add_ends(scene, row, layout.groups[i].rows.size() == 1, panel);
    }
  }
  out.figure.share_x = out.figure.share_y = out.figure.dodge = true;
  out.caption += never_text(out.figure);
  return finished(std::move(out));
}

namespace {

// Returns the momentum of a trial: its own, or else the one that its condition fixes.
std::optional<double> momentum_of(const Scene& scene, const Record& record) {
  if (const auto own = searched(record, kMomentumKey)) return own;
  const auto& fixed = scene.objective().momenta;
  const auto found = fixed.find(label_key(record.condition));
  return found == fixed.end() ? std::nullopt : std::optional(found->second);
}

// Returns whether trials differ in their momentum. Otherwise effective rates say nothing more.
bool has_momenta(const Scene& scene) {
  std::optional<double> first;
  for (const size_t condition : conditions_of_workload(scene.summary, scene.spec.workload))
    for (const size_t index : scene.at(condition).records) {
      if (searched(scene.records[index], kMomentumKey)) return true;
      const auto momentum = momentum_of(scene, scene.records[index]);
      if (momentum && first && *momentum != *first) return true;
      if (momentum) first = momentum;
    }
  return false;
}

// Returns the spread of the searches' best rates, or of the effective rates, which a gradient's
// step amounts to in the long run.
Spread best_rate(const Scene& scene, size_t condition, bool effective) {
  std::vector<double> rates;
  for (const SearchResult& search : scene.at(condition).searches) {
    if (!search.best) continue;
    const Record& record = scene.records[*search.best];
    const auto rate = searched(record, kRateKey), momentum = momentum_of(scene, record);
    if (!rate) continue;
    if (!effective)
      rates.push_back(*rate);
    else if (momentum && *momentum < 1)
      rates.push_back(*rate / (1 - *momentum));
  }
  return spread_of(rates);
}

void add_slopes(plot::Panel& panel) {
  const auto [low, high] = x_range(panel);
  if (!(low > 0 && high > low)) return;
  for (const plot::Series& series : panel.series)
    for (const plot::Point& point : series.points)
      if (point.x == low && point.y > 0) {
        panel.references.push_back({"linear rule", power_curve(low, high, low, point.y, 1)});
        panel.references.push_back(
            {"square-root rule", power_curve(low, high, low, point.y, 0.5), true});
        return;
      }
}

}  // namespace

std::optional<StudyFigure> rate_figure(const Scene& scene) {
  if (!is_numeric(scene.summary, scene.spec.workload, scene.spec.x)) return {};
  const LaidOut layout = laid_out(scene);
  const bool momentum = has_momenta(scene);
  const bool over_batch = scene.spec.x == scene.batch_label();  // as scaling rules are
  StudyFigure out;
  out.name = "rate";
  out.caption =
      cat("The learning rate of each search's best trial",
          momentum ? ", and the effective rate: learning rate / (1 − momentum)" : "", ". ",
          kWhiskers, over_batch ? " The slopes begin at the first series' first point." : "");
  out.figure.title = "Best learning rate";
  std::array<size_t, 2> points{};
  for (const bool effective : {false, true}) {
    if (effective && !momentum) continue;
    plot::Axis y;
    y.label = effective ? "Learning rate / (1 − momentum)" : "Learning rate";
    y.scale = plot::Scale::log10;
    std::vector<plot::Panel> panels =
        panels_of(layout, y, [&](size_t i) { return best_rate(scene, i, effective); });
    for (plot::Panel& panel : panels) {
      if (over_batch) add_slopes(panel);
      for (const plot::Series& series : panel.series) points[effective] += series.points.size();
      out.figure.panels.push_back(std::move(panel));
    }
  }
  if (momentum && points[1] < points[0])
    out.caption += " Conditions whose momentum is not known have no effective rate.";
  out.figure.share_x = out.figure.dodge = true;
  return finished(std::move(out));
}

}  // namespace etr::study

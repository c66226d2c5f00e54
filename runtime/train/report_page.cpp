#include "train/report_page.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/markup.h"
#include "core/number_text.h"
#include "plot/svg.h"
#include "train/report_style.h"

namespace etr::train {
namespace {

using Runs = std::vector<ReportedRun>;

// Keeps a number and its unit together.
constexpr const char* kSpace = "\u00a0";

std::string percent(double share) { return number_text(100 * share, 1) + kSpace + "%"; }

std::string loss_text(double loss) {
  const double size = std::abs(loss);
  return number_text(loss, size < 0.1 ? 4 : size < 100 ? 3 : 1);
}

// "8.2 s", "12.5 min", "3.2 h": a single number, so that columns can be compared.
std::string duration(double seconds) {
  if (seconds < 300) return number_text(seconds, 1) + kSpace + "s";
  if (seconds < 3 * 3600) return number_text(seconds / 60, 1) + kSpace + "min";
  return number_text(seconds / 3600, 1) + kSpace + "h";
}

std::string speedup_text(const Json& row, int digits) {
  if (row["speedup"].is_null()) return "–";
  return (row["speedup_is_bound"].get<bool>() ? std::string(">") + kSpace : "") +
         number_text(row["speedup"].get<double>(), digits) + kSpace + "×";
}

// A column of the table: its head, and the text of each row.
struct Column {
  std::string head;
  std::string (*cell)(const Json& row);
};

constexpr auto kDash = "–";

std::string time_cell(const Json& row) {
  return row["time_to_target_s"].is_null() ? std::string(">") + kSpace + duration(row["seconds"])
                                           : duration(row["time_to_target_s"]);
}

template <const char* const& key, std::string (*text)(double)>
std::string optional_cell(const Json& row) {
  return row[key].is_null() ? kDash : text(row[key].get<double>());
}

std::string count_text(double count) { return number_text(count); }

constexpr const char* kFreshToTarget = "fresh_to_target";
constexpr const char* kFinalAccuracy = "final_accuracy";
constexpr const char* kFinalLoss = "final_loss";
constexpr const char* kTrainingLoss = "final_training_loss";
constexpr const char* kNoiseScale = "noise_scale";

std::vector<Column> columns_for(const Runs& runs, const Json& table, double target) {
  const auto any = [&](auto is) { return std::any_of(runs.begin(), runs.end(), is); };
  const bool evaluates = any([](const ReportedRun& run) { return !run.evaluations.empty(); });
  std::vector<Column> out;
  if (target > 0) {
    out.push_back({"Time to " + percent(target), time_cell});
    if (table.size() > 1)
      out.push_back({"Speed\u2011up", [](const Json& row) { return speedup_text(row, 2); }});
    out.push_back(
        {"Fresh examples to " + percent(target), optional_cell<kFreshToTarget, count_text>});
  }
  if (any([](const ReportedRun& run) { return run.classifies(); }))
    out.push_back({"Final accuracy", optional_cell<kFinalAccuracy, percent>});
  if (evaluates) out.push_back({"Final test loss", optional_cell<kFinalLoss, loss_text>});
  if (!evaluates) out.push_back({"Final training loss", optional_cell<kTrainingLoss, loss_text>});
  out.push_back({"Steps", [](const Json& row) { return number_text(row["steps"].get<double>()); }});
  out.push_back({"Training time", [](const Json& row) { return duration(row["seconds"]); }});
  if (any([](const ReportedRun& run) { return !run.noise_scale.empty(); }))
    out.push_back({"Noise scale, examples", optional_cell<kNoiseScale, count_text>});
  out.push_back({"Device idle", [](const Json& row) { return percent(row["device_wait_share"]); }});
  return out;
}

// States the roles, because a phone's layout turns cells into blocks and would lose them.
std::string html_table(const Runs& runs, const Json& table, double target) {
  const std::vector<Column> columns = columns_for(runs, table, target);
  std::string out =
      "<table role='table'><caption>The runs compared</caption><thead><tr role='row'><th "
      "scope='col'>Run</th>";
  for (const Column& column : columns)
    out += cat("<th scope='col'>", escape_markup(column.head), "</th>");
  out += "</tr></thead><tbody>";
  int style = 0;
  for (const Json& row : table) {
    out += cat("<tr role='row'><th scope='row' role='rowheader'>",
               plot::html_swatch({.style = style++}), escape_markup(row["name"].get<std::string>()),
               "</th>");
    for (const Column& column : columns)
      out += cat("<td role='cell' data-label='", escape_markup(column.head), "'>",
                 escape_markup(column.cell(row)), "</td>");
    out += "</tr>";
  }
  return out + "</tbody></table>";
}

// " (median of 3 runs each, 3.1 to 3.6)"; of a slower run, how many times slower.
std::string spread(const Json& row) {
  if (row["speedup_range"].is_null()) return "";
  double least = row["speedup_range"][0], most = row["speedup_range"][1];
  if (row["speedup"] < 1) least = 1 / std::exchange(most, 1 / least);
  return cat(" (median of ", row["runs"].get<int>(), " runs each, ", number_text(least, 2), " to ",
             number_text(most, 2), ")");
}

// "<b>4 ×</b> faster to the target"
std::string speed(const Json& row) {
  const double speedup = row["speedup"];
  const bool bound = row["speedup_is_bound"];
  const std::string times = number_text(std::max(speedup, 1 / speedup), 1);
  const std::string how = times == "1" && !bound ? "<b>About as fast</b>"
                          : speedup < 1
                              ? cat("<b>", times, kSpace, "×</b> slower")
                              : cat("<b>", escape_markup(speedup_text(row, 1)), "</b> faster");
  return cat(how, " to the target", spread(row));
}

// "plain did not reach the target in 40 s"
std::string outcome(const Json& row, const Runs& runs, double target) {
  const auto name = row["name"].get<std::string>();
  const std::string shown = escape_markup(name);
  if (!row["time_to_target_s"].is_null())
    return cat(shown, " reached the target in ", duration(row["time_to_target_s"]));
  if (row["runs"] == 1)
    return cat(shown, " did not reach the target in ", duration(row["seconds"]));
  const auto reached = std::count_if(runs.begin(), runs.end(), [&](const ReportedRun& run) {
    return run.name == name && run.reached(target);
  });
  return cat(shown, " reached the target in ", reached, " of ", row["runs"].get<int>(), " runs");
}

// The main result in one sentence: the last run's, compared with the first one's.
std::string headline(const Runs& runs, const Json& table, double target) {
  if (table.size() < 2 || target <= 0) return "";
  if (std::none_of(runs.begin(), runs.end(), [&](auto& run) { return run.reached(target); }))
    return "No run reached the target accuracy.";
  const Json &base = table.front(), &last = table.back();
  // A lower bound below 1 does not say which of the two was faster.
  if (last["speedup"].is_null() || (last["speedup_is_bound"].get<bool>() && last["speedup"] < 1))
    return cat(outcome(last, runs, target), "; ", outcome(base, runs, target), ".");
  if (base["fresh_to_target"].is_null())
    return cat(speed(last), "; ", outcome(base, runs, target), ".");
  const double saved =
      1 - last["fresh_to_target"].get<double>() / base["fresh_to_target"].get<double>();
  if (!std::isfinite(saved)) return speed(last) + ".";
  return cat(speed(last), ", with <b>", percent(std::abs(saved)), "</b> ",
             saved < 0 ? "more" : "fewer", " examples read from upstream.");
}

// The unit in which a chart shows the training time.
struct TimeUnit {
  double seconds = 1;
  const char* label = "training time, seconds";
};

TimeUnit time_unit(const Runs& runs) {
  double most = 0;
  for (const ReportedRun& run : runs) most = std::max(most, run.seconds);
  if (most <= 300) return {};
  return most <= 3 * 3600 ? TimeUnit{60, "training time, minutes"}
                          : TimeUnit{3600, "training time, hours"};
}

// Describes the curves for screen readers: where each begins and ends.
std::string described(const plot::Panel& panel) {
  std::string out;
  const auto value = [&](double y) { return panel.y.percent ? percent(y) : loss_text(y); };
  for (const plot::Series& s : panel.series)
    if (!s.points.empty())
      out += cat(s.name, ": from ", value(s.points.front().y), " to ", value(s.points.back().y),
                 " at ", number_text(s.points.back().x, 1), ". ");
  return out + "Across: " + panel.x.label + ".";
}

// Fits the axis to the curves, but not to the height from which losses fall at first.
void fit_losses(plot::Panel& panel) {
  std::vector<double> values;
  for (const plot::Series& s : panel.series)
    for (const plot::Point& point : s.points)
      if (std::isfinite(point.y)) values.push_back(point.y);
  if (values.empty()) return;
  std::sort(values.begin(), values.end());
  const double low = values.front(), high = values[values.size() - 1 - values.size() * 3 / 100];
  const double room = std::max({(high - low) * 0.08, std::abs(high) * 0.02, 1e-6});
  panel.y.from = low >= 0 ? std::max(0.0, low - room) : low - room;
  panel.y.to = high + room;
}

class Charts {
 public:
  Charts(const Runs& runs, double target) : runs_(runs), target_(target), time_(time_unit(runs)) {}

  std::string html() {
    using E = ReportedRun::Evaluation;
    using S = ReportedRun::Step;
    if (std::any_of(runs_.begin(), runs_.end(),
                    [](const ReportedRun& r) { return r.classifies(); })) {
      accuracy("Test accuracy over time", time_.label, &E::seconds, time_.seconds);
      accuracy("Test accuracy over fresh examples", "examples read from upstream", &E::fresh, 1);
      accuracy("Test accuracy over steps", "optimizer steps", &E::step, 1);
    } else {
      loss("Test loss over time", time_.label,
           curves(&ReportedRun::evaluations, &E::seconds, &E::loss, time_.seconds));
      loss("Test loss over fresh examples", "examples read from upstream",
           curves(&ReportedRun::evaluations, &E::fresh, &E::loss, 1));
      loss("Training loss over time", time_.label,
           curves(&ReportedRun::steps_taken, &S::seconds, &S::loss, time_.seconds));
    }
    loss("Test loss over steps", "optimizer steps",
         curves(&ReportedRun::evaluations, &E::step, &E::loss, 1));
    loss("Training loss over steps", "optimizer steps",
         curves(&ReportedRun::steps_taken, &S::step, &S::loss, 1));
    noise_scale();
    idle();
    return "<div class='charts'>" + out_ + "</div>";
  }

 private:
  // The index of the run's name: runs of the same name look alike.
  int style_of(const ReportedRun& of) const {
    std::vector<std::string> names;
    for (const ReportedRun& run : runs_) {
      if (run.name == of.name) break;
      if (std::find(names.begin(), names.end(), run.name) == names.end()) names.push_back(run.name);
    }
    return static_cast<int>(names.size());
  }

  // An infinite loss is drawn above the frame.
  plot::Series curve(const ReportedRun& run,
                     const std::vector<std::pair<double, double>>& points) const {
    constexpr double kMost = std::numeric_limits<double>::max();
    plot::Series out{.name = run.name, .style = style_of(run)};
    for (const auto& [x, y] : points)
      if (!std::isnan(y)) out.points.push_back({.x = x, .y = std::clamp(y, -kMost, kMost)});
    return out;
  }

  template <typename Row>
  std::vector<plot::Series> curves(std::vector<Row> ReportedRun::*rows, double Row::*x,
                                   double Row::*y, double unit) const {
    std::vector<plot::Series> out;
    for (const ReportedRun& run : runs_) {
      std::vector<std::pair<double, double>> points;
      for (const Row& row : run.*rows) points.emplace_back(row.*x / unit, row.*y);
      out.push_back(curve(run, points));
    }
    return out;
  }

  static plot::Panel panel_of(const char* x_label, std::vector<plot::Series> series) {
    plot::Panel out{.x = {.label = x_label}, .series = std::move(series)};
    double last = 0;
    for (const plot::Series& s : out.series)
      for (const plot::Point& point : s.points) last = std::max(last, point.x);
    out.x.from = 0;
    if (last > 0) out.x.to = last * 1.02;
    return out;
  }

  void accuracy(const char* title, const char* x_label, double ReportedRun::Evaluation::*x,
                double unit) {
    auto series = curves(&ReportedRun::evaluations, x, &ReportedRun::Evaluation::accuracy, unit);
    for (size_t i = runs_.size(); i-- > 0;)
      if (!runs_[i].classifies()) series.erase(series.begin() + static_cast<ptrdiff_t>(i));
    plot::Panel panel = panel_of(x_label, std::move(series));
    double lowest = target_ > 0 ? target_ : 1;
    for (const plot::Series& s : panel.series)
      for (const plot::Point& point : s.points) lowest = std::min(lowest, point.y);
    panel.y.percent = true;
    panel.y.from = std::max(0.0, std::floor(lowest * 20 - 0.5) / 20);
    panel.y.to = 1;
    if (target_ > 0)
      panel.references.push_back(
          {.name = "target " + percent(target_), .line = {{0, target_}, {panel.x.to, target_}}});
    card(title, std::move(panel));
  }

  void loss(const char* title, const char* x_label, std::vector<plot::Series> series) {
    plot::Panel panel = panel_of(x_label, std::move(series));
    fit_losses(panel);
    card(title, std::move(panel));
  }

  // Shown beside the curve of the loss, because it shows when a larger batch would be worthwhile.
  void noise_scale() {
    std::vector<plot::Series> series;
    for (const ReportedRun& run : runs_) series.push_back(curve(run, run.noise_scale));
    loss("Gradient noise scale in examples", "optimizer steps", std::move(series));
  }

  void idle() {
    std::vector<plot::Series> series;
    for (const ReportedRun& run : runs_) {
      series.push_back(curve(run, run.idle));
      for (plot::Point& point : series.back().points) point.x /= time_.seconds;
    }
    plot::Panel panel = panel_of(time_.label, std::move(series));
    panel.y.percent = true;
    panel.y.from = 0, panel.y.to = 1;
    card("Device idle share", std::move(panel));
  }

  void card(const char* title, plot::Panel panel) {
    if (std::all_of(panel.series.begin(), panel.series.end(),
                    [](const plot::Series& s) { return s.points.empty(); }))
      return;
    plot::Figure figure{.id = cat("chart", ++number_), .title = title};
    figure.description = described(panel);
    figure.panels.push_back(std::move(panel));
    out_ += cat("<section><h2>", escape_markup(title), "</h2>", plot::html_figure(figure),
                "</section>");
  }

  const Runs& runs_;
  const double target_;
  const TimeUnit time_;
  std::string out_;
  int number_ = 0;
};

}  // namespace

std::string report_page(const std::string& title, const std::vector<ReportedRun>& runs,
                        const Json& table, double target) {
  const std::string lead = headline(runs, table, target);
  return cat(
      "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
      "<meta name='viewport' content='width=device-width,initial-scale=1'>"
      "<meta name='color-scheme' content='light dark'><title>",
      escape_markup(title), "</title><style>", kReportStyle, plot::page_style(),
      "</style></head><body><main><h1>", escape_markup(title), "</h1>",
      lead.empty() ? "" : cat("<p class='lead'>", lead, "</p>"), html_table(runs, table, target),
      Charts(runs, target).html(),
      "<footer>Times are training time: evaluation and checkpoints are not counted. Device idle is "
      "the share of that time in which the device had no work. Written by EchoTrain.</footer>",
      "</main></body></html>\n");
}

}  // namespace etr::train

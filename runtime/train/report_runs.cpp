#include "train/report_runs.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "core/error.h"
#include "core/json.h"
#include "core/options.h"
#include "core/parse_json.h"
#include "core/platform.h"
#include "io/line_reader.h"
#include "train/report.h"

namespace etr::train {
namespace {

using Points = std::vector<std::pair<double, double>>;

constexpr int kIdleWindows = 40, kLossWindows = 120;
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Returns the idle share in equal stretches of the run, whose mean is that of the whole run. A
// step's work is recorded when its result is read, so it lies before its row. If a stretch would be
// busy for longer than it lasts, the rest of that work is counted before it.
Points idle_curve(const Points& rows, double seconds) {
  Points busy{{0, 0}};  // by the end of each stretch
  for (const auto& [at, total] : rows) {
    if (at > busy.back().first)
      busy.emplace_back(at, total);
    else
      busy.back().second = std::max(busy.back().second, total);
  }
  if (busy.size() < 3) return {};
  if (seconds > busy.back().first) busy.emplace_back(seconds, busy.back().second);
  for (size_t i = busy.size() - 1; i-- > 0;)
    busy[i].second =
        std::max(busy[i].second, busy[i + 1].second - (busy[i + 1].first - busy[i].first));
  Points out;
  const double length = busy.back().first / kIdleWindows;
  auto from = busy.front();
  for (size_t i = 1; i < busy.size(); ++i) {
    const double lasts = busy[i].first - from.first, left = busy.back().first - busy[i].first;
    if (i + 1 < busy.size() && (lasts < length * (1 - 1e-9) || left < length / 2)) continue;
    const double share = 1 - (busy[i].second - from.second) / lasts;
    out.emplace_back(from.first + lasts / 2, std::clamp(share, 0.0, 1.0));
    from = busy[i];
  }
  return out;
}

// JSON stores NaN and infinity as null.
double number_of(const Json& row, const char* key, double otherwise) {
  const auto it = row.find(key);
  if (it == row.end()) return otherwise;
  return it->is_null() ? kUnknown : it->get<double>();
}

// Counts and times keep their values if a row does not have them.
void take_number(const Json& row, const char* key, double& value) {
  const double given = number_of(row, key, value);
  if (!std::isnan(given)) value = given;
}

Json or_null(double value) { return std::isnan(value) ? Json() : Json(value); }

// Returns means over equal numbers of steps. Only finite losses count; NaN if there are none.
std::vector<ReportedRun::Step> thinned(const std::vector<ReportedRun::Step>& all) {
  std::vector<ReportedRun::Step> out;
  const size_t windows = std::min<size_t>(all.size(), kLossWindows);
  for (size_t window = 0; window < windows; ++window) {
    const size_t begin = window * all.size() / windows, end = (window + 1) * all.size() / windows;
    ReportedRun::Step mean{};
    const auto finite = std::count_if(&all[begin], &all[begin] + (end - begin),
                                      [](const auto& step) { return !std::isnan(step.loss); });
    if (finite == 0) mean.loss = std::numeric_limits<double>::quiet_NaN();
    for (size_t i = begin; i < end; ++i) {
      mean.seconds += all[i].seconds / static_cast<double>(end - begin);
      mean.step += all[i].step / static_cast<double>(end - begin);
      if (!std::isnan(all[i].loss)) mean.loss += all[i].loss / static_cast<double>(finite);
    }
    out.push_back(mean);
  }
  return out;
}

// Keeps some of the points, including the last. No averaging: each is an estimate from all
// measurements so far.
void thin_out(Points& points) {
  const size_t all = points.size(), kept = std::min<size_t>(all, kLossWindows);
  for (size_t i = 0; i < kept; ++i) points[i] = points[(i + 1) * all / kept - 1];
  points.resize(kept);
}

Json or_null(const std::vector<ReportedRun::Evaluation>& evaluations,
             double ReportedRun::Evaluation::*value) {
  return evaluations.empty() ? Json() : or_null(evaluations.back().*value);
}

}  // namespace

bool ReportedRun::classifies() const {
  return std::any_of(evaluations.begin(), evaluations.end(),
                     [](const Evaluation& e) { return e.accuracy > 0; });
}

const ReportedRun::Evaluation* ReportedRun::reached(double target) const {
  for (const Evaluation& e : evaluations)
    if (target > 0 && e.accuracy >= target) return &e;
  return nullptr;
}

namespace {

void add_row(ReportedRun& run, Points& busy, const Json& row) {
  take_number(row, "seconds", run.seconds);
  take_number(row, "step", run.steps);
  take_number(row, "examples", run.examples);
  take_number(row, "fresh", run.fresh);
  take_number(row, "busy_seconds", run.busy);
  if (row.contains("busy_seconds")) busy.emplace_back(run.seconds, run.busy);
  const std::string kind = row.value("kind", std::string());
  if (kind == "evaluation")
    run.evaluations.push_back({run.seconds, run.steps, run.fresh,
                               number_of(row, "eval_accuracy", 0), number_of(row, "eval_loss", 0)});
  else if (kind == "step")
    run.steps_taken.push_back({run.seconds, run.steps, number_of(row, "loss", 0)});
  if (const double scale = number_of(row, "noise_scale", kUnknown); !std::isnan(scale))
    run.noise_scale.emplace_back(run.steps, scale);
}

}  // namespace

ReportedRun load_run(const ReportRun& spec) {
  ReportedRun run;
  run.name = spec.name;
  Points busy;
  std::error_code unknown;  // reading reports the problem
  const std::string path =
      std::filesystem::is_directory(spec.metrics_path, unknown)
          ? (std::filesystem::path(spec.metrics_path) / "metrics.jsonl").string()
          : spec.metrics_path;
  io::require_sized(path);
  constexpr uint64_t kMostOfRow = uint64_t{1} << 20;  // bytes
  io::LineReader lines(io::open_stream(path), path, {kMostOfRow, "the most of a row of metrics"});
  for (std::string line; lines.next(line);) {
    if (line.empty()) continue;
    const std::string where = cat("'", path, "' line ", lines.number());
    const bool any = !run.evaluations.empty() || !run.steps_taken.empty();
    // The run is writing this row, or was killed while it did.
    if (any && !*lines.ending() && !parse_if_json(line, where)) break;
    try {
      add_row(run, busy, parse_json(line, where, {.code = Code::corrupt_data}));
    } catch (const nlohmann::json::exception& error) {  // not an object, or text for a number
      fail(Code::corrupt_data, where, " is not a row of metrics: ", json_problem(error));
    }
  }
  if (run.evaluations.empty() && run.steps_taken.empty())
    fail(Code::invalid_argument, "'", path, "' has neither steps nor evaluations to draw");
  run.idle = idle_curve(busy, run.seconds);
  run.steps_taken = thinned(run.steps_taken);
  thin_out(run.noise_scale);
  return run;
}

namespace {

Json row_of(const ReportedRun& run, const ReportedRun& base, double target) {
  const ReportedRun::Evaluation *hit = run.reached(target), *base_hit = base.reached(target);
  Json best_accuracy, best_loss;
  for (const ReportedRun::Evaluation& e : run.evaluations) {
    if (!std::isnan(e.accuracy) && (best_accuracy.is_null() || e.accuracy > best_accuracy))
      best_accuracy = e.accuracy;
    if (!std::isnan(e.loss) && (best_loss.is_null() || e.loss < best_loss)) best_loss = e.loss;
  }
  Json row{{"name", run.name}};
  row["time_to_target_s"] = hit ? Json(hit->seconds) : Json();
  row["fresh_to_target"] = hit ? Json(hit->fresh) : Json();
  row["steps_to_target"] = hit ? Json(hit->step) : Json();
  row["steps"] = run.steps;
  row["examples"] = run.examples;
  row["fresh"] = run.fresh;
  row["final_accuracy"] =
      run.classifies() ? or_null(run.evaluations, &ReportedRun::Evaluation::accuracy) : Json();
  row["best_accuracy"] = run.classifies() ? best_accuracy : Json();
  row["final_loss"] = or_null(run.evaluations, &ReportedRun::Evaluation::loss);
  row["best_loss"] = best_loss;
  row["final_training_loss"] =
      run.steps_taken.empty() ? Json() : or_null(run.steps_taken.back().loss);
  row["noise_scale"] = run.noise_scale.empty() ? Json() : Json(run.noise_scale.back().second);
  row["seconds"] = run.seconds;
  row["device_wait_share"] = run.seconds > 0 ? std::clamp(1 - run.busy / run.seconds, 0.0, 1.0) : 0;
  const double base_seconds = base_hit ? base_hit->seconds : base.seconds;
  row["speedup"] =
      hit && hit->seconds > 0 && base_seconds > 0 ? Json(base_seconds / hit->seconds) : Json();
  row["speedup_is_bound"] = base_hit == nullptr;
  return row;
}

// Returns the values sorted, with `never` for those that were not reached.
std::vector<double> sorted_values(const std::vector<Json>& rows, const char* key, double never) {
  std::vector<double> values;
  for (const Json& row : rows)
    values.push_back(row[key].is_null() ? never : row[key].get<double>());
  std::sort(values.begin(), values.end());
  return values;
}

Json median_of(const std::vector<double>& sorted, double never) {
  const size_t half = sorted.size() / 2;
  const double low = sorted[sorted.size() % 2 ? half : half - 1], high = sorted[half];
  return low == never || high == never ? Json() : Json((low + high) / 2);
}

// Summarizes the runs of one name.
Json summary_of(const std::vector<Json>& rows) {
  Json out = rows.front();
  constexpr double kNever = std::numeric_limits<double>::infinity();
  for (auto& [key, value] : out.items())
    if (key != "name" && key != "speedup" && key != "speedup_is_bound")
      value = median_of(sorted_values(rows, key.c_str(), kNever), kNever);
  const std::vector<double> speedups = sorted_values(rows, "speedup", 0);
  out["speedup"] = median_of(speedups, 0);
  out["speedup_range"] = speedups.front() > 0 && speedups.front() < speedups.back()
                             ? Json{speedups.front(), speedups.back()}
                             : Json();
  out["speedup_is_bound"] = std::any_of(rows.begin(), rows.end(), [](const Json& row) {
    return row["speedup_is_bound"].get<bool>();
  });
  out["runs"] = rows.size();
  return out;
}

}  // namespace

Json table_of(const std::vector<ReportedRun>& runs, double target) {
  std::vector<std::string> names;
  for (const ReportedRun& run : runs)
    if (std::find(names.begin(), names.end(), run.name) == names.end()) names.push_back(run.name);
  std::vector<const ReportedRun*> bases;
  for (const ReportedRun& run : runs)
    if (run.name == names.front()) bases.push_back(&run);
  Json table = Json::array();
  for (const std::string& name : names) {
    std::vector<Json> rows;
    for (const ReportedRun& run : runs)
      if (run.name == name)
        rows.push_back(row_of(run, *bases[std::min(rows.size(), bases.size() - 1)], target));
    table.push_back(summary_of(rows));
  }
  return table;
}

}  // namespace etr::train

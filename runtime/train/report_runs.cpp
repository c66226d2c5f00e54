#include "train/report_runs.h"

#include <algorithm>
#include <sstream>

#include "core/error.h"
#include "core/json.h"
#include "core/options.h"
#include "core/platform.h"
#include "train/report.h"

namespace etr::train {
namespace {

using Points = std::vector<std::pair<double, double>>;

constexpr int kIdleWindows = 40, kLossWindows = 120;

// Idle share in equal stretches of the run.
Points idle_curve(const Points& busy) {
  Points out;
  if (busy.size() < 2) return out;
  const double length = busy.back().first / kIdleWindows;
  double from = 0, busy_from = 0;
  for (const auto& [seconds, busy_seconds] : busy) {
    if (seconds - from < length || seconds <= from) continue;
    const double share = 1 - (busy_seconds - busy_from) / (seconds - from);
    out.emplace_back((from + seconds) / 2, std::clamp(share, 0.0, 1.0));
    from = seconds;
    busy_from = busy_seconds;
  }
  return out;
}

// Means over equally many steps each.
std::vector<ReportedRun::Step> thinned(const std::vector<ReportedRun::Step>& all) {
  std::vector<ReportedRun::Step> out;
  const size_t windows = std::min<size_t>(all.size(), kLossWindows);
  for (size_t window = 0; window < windows; ++window) {
    const size_t begin = window * all.size() / windows, end = (window + 1) * all.size() / windows;
    ReportedRun::Step mean{};
    for (size_t i = begin; i < end; ++i) {
      mean.seconds += all[i].seconds / static_cast<double>(end - begin);
      mean.step += all[i].step / static_cast<double>(end - begin);
      mean.loss += all[i].loss / static_cast<double>(end - begin);
    }
    out.push_back(mean);
  }
  return out;
}

Json or_null(const std::vector<ReportedRun::Evaluation>& evaluations,
             double ReportedRun::Evaluation::*value) {
  return evaluations.empty() ? Json() : Json(evaluations.back().*value);
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

ReportedRun load_run(const ReportRun& spec) {
  ReportedRun run;
  run.name = spec.name;
  Points busy;
  std::stringstream lines(platform::read_file(spec.metrics_path));
  size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty()) continue;
    const Json row = parse_json(line, cat("'", spec.metrics_path, "' line ", number));
    run.seconds = row.value("seconds", run.seconds);
    run.steps = row.value("step", run.steps);
    run.examples = row.value("examples", run.examples);
    run.fresh = row.value("fresh", run.fresh);
    run.busy = row.value("busy_seconds", run.busy);
    if (row.contains("busy_seconds")) busy.emplace_back(run.seconds, run.busy);
    const std::string kind = row.value("kind", std::string());
    if (kind == "evaluation")
      run.evaluations.push_back({run.seconds, run.steps, run.fresh, row.value("eval_accuracy", 0.0),
                                 row.value("eval_loss", 0.0)});
    else if (kind == "step")
      run.steps_taken.push_back({run.seconds, run.steps, row.value("loss", 0.0)});
  }
  if (run.evaluations.empty() && run.steps_taken.empty())
    fail(Code::invalid_argument, "'", spec.metrics_path,
         "' has neither steps nor evaluations to draw");
  run.idle = idle_curve(busy);
  run.steps_taken = thinned(run.steps_taken);
  return run;
}

Json table_of(const std::vector<ReportedRun>& runs, double target) {
  Json table = Json::array();
  const ReportedRun::Evaluation* base = runs.front().reached(target);
  for (const ReportedRun& run : runs) {
    const ReportedRun::Evaluation* hit = run.reached(target);
    Json best_accuracy, best_loss;
    for (const ReportedRun::Evaluation& e : run.evaluations) {
      if (best_accuracy.is_null() || e.accuracy > best_accuracy) best_accuracy = e.accuracy;
      if (best_loss.is_null() || e.loss < best_loss) best_loss = e.loss;
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
        run.steps_taken.empty() ? Json() : Json(run.steps_taken.back().loss);
    row["seconds"] = run.seconds;
    row["device_wait_share"] =
        run.seconds > 0 ? std::clamp(1 - run.busy / run.seconds, 0.0, 1.0) : 0;
    row["speedup"] =
        hit ? Json((base ? base->seconds : runs.front().seconds) / hit->seconds) : Json();
    row["speedup_is_bound"] = base == nullptr;
    table.push_back(std::move(row));
  }
  return table;
}

}  // namespace etr::train

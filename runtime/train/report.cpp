#include "train/report.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "core/options.h"
#include "core/platform.h"
#include "train/svg_chart.h"

namespace etr::train {
namespace {

const std::vector<std::string> kColors = {"#6b7a90", "#e4572e", "#2a9d8f", "#8a4fbf", "#c9a227"};

struct Evaluation {
  double seconds, step, fresh, accuracy;
};

struct Run {
  std::string name, color;
  std::vector<Evaluation> evaluations;
  std::vector<std::pair<double, double>> idle;  // time, share of the window
  double seconds = 0, steps = 0, examples = 0, fresh = 0, busy = 0;
};

// Idle share in `windows` equal stretches of the run.
std::vector<std::pair<double, double>> idle_curve(
    const std::vector<std::pair<double, double>>& busy, int windows) {
  std::vector<std::pair<double, double>> out;
  if (busy.size() < 2) return out;
  const double length = busy.back().first / windows;
  double from = 0, busy_from = 0;
  for (const auto& [seconds, busy_seconds] : busy) {
    if (seconds - from < length) continue;
    const double share = 1 - (busy_seconds - busy_from) / (seconds - from);
    out.emplace_back((from + seconds) / 2, std::clamp(share, 0.0, 1.0));
    from = seconds;
    busy_from = busy_seconds;
  }
  return out;
}

Run load_run(const ReportRun& spec, const std::string& color) {
  Run run{spec.name, color, {}, {}};
  std::vector<std::pair<double, double>> busy;
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
    if (row.value("kind", std::string()) == "evaluation")
      run.evaluations.push_back(
          {run.seconds, run.steps, run.fresh, row.value("eval_accuracy", 0.0)});
  }
  if (run.evaluations.empty())
    fail(Code::invalid_argument, "'", spec.metrics_path, "' has no evaluations to draw");
  run.idle = idle_curve(busy, 40);
  return run;
}

const Evaluation* reached(const Run& run, double target) {
  for (const Evaluation& e : run.evaluations)
    if (target > 0 && e.accuracy >= target) return &e;
  return nullptr;
}

Json table_of(const std::vector<Run>& runs, double target) {
  Json table = Json::array();
  const Evaluation* base = reached(runs.front(), target);
  for (const Run& run : runs) {
    const Evaluation* hit = reached(run, target);
    double best = 0;
    for (const Evaluation& e : run.evaluations) best = std::max(best, e.accuracy);
    Json row{{"name", run.name}};
    row["time_to_target_s"] = hit ? Json(hit->seconds) : Json();
    row["fresh_to_target"] = hit ? Json(hit->fresh) : Json();
    row["steps_to_target"] = hit ? Json(hit->step) : Json();
    row["steps"] = run.steps;
    row["examples"] = run.examples;
    row["fresh"] = run.fresh;
    row["final_accuracy"] = run.evaluations.back().accuracy;
    row["best_accuracy"] = best;
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

std::string percent(double share) { return number_text(100 * share, 1) + " %"; }

std::string or_dash(const Json& value, int digits, const char* unit) {
  return value.is_null() ? "–" : number_text(value.get<double>(), digits) + unit;
}

std::string time_cell(const Json& row) {
  return row["time_to_target_s"].is_null()
             ? "&gt; " + number_text(row["seconds"].get<double>(), 0) + " s"
             : or_dash(row["time_to_target_s"], 1, " s");
}

std::string speedup_cell(const Json& row, int digits) {
  const bool bound = row["speedup_is_bound"].get<bool>() && !row["speedup"].is_null();
  return (bound ? "&gt; " : "") + or_dash(row["speedup"], digits, " ×");
}

std::string html_table(const Json& table, const std::vector<Run>& runs, double target) {
  std::string out =
      cat("<table><thead><tr><th>Run</th><th>Time to ", percent(target),
          "</th><th>Speed-up</th><th>Fresh examples to ", percent(target),
          "</th><th>Steps</th><th>Final accuracy</th><th>Device idle</th></tr></thead><tbody>");
  for (size_t i = 0; i < runs.size(); ++i) {
    const Json& row = table[i];
    out += cat("<tr><td><span class='dot' style='background:", runs[i].color, "'></span>",
               html_escape(runs[i].name), "</td><td>", time_cell(row), "</td><td>",
               speedup_cell(row, 2), "</td><td>", or_dash(row["fresh_to_target"], 0, ""),
               "</td><td>", number_text(row["steps"].get<double>()), "</td><td>",
               percent(row["final_accuracy"].get<double>()), "</td><td>",
               percent(row["device_wait_share"].get<double>()), "</td></tr>");
  }
  return out + "</tbody></table>";
}

// The one sentence that a reader takes away.
std::string headline(const Json& table, double target) {
  if (table.size() < 2 || target <= 0) return "";
  const Json &base = table[0], &last = table[table.size() - 1];
  if (last["speedup"].is_null()) return "No run reached the target accuracy.";
  const std::string faster = cat("<b>", speedup_cell(last, 1), "</b> faster to the target");
  if (base["fresh_to_target"].is_null())
    return cat(faster, "; ", html_escape(base["name"].get<std::string>()), " did not get there in ",
               number_text(base["seconds"].get<double>(), 0), " s.");
  const double saved =
      1 - last["fresh_to_target"].get<double>() / base["fresh_to_target"].get<double>();
  return cat(faster, ", with <b>", percent(saved), "</b> fewer examples read from upstream.");
}

std::string charts(const std::vector<Run>& runs, double target) {
  std::vector<Series> by_time, by_fresh, by_step, idle;
  double lowest = 1;
  for (const Run& run : runs) {
    Series time{run.name, run.color, {}}, fresh = time, step = time;
    for (const Evaluation& e : run.evaluations) {
      time.points.emplace_back(e.seconds, e.accuracy);
      fresh.points.emplace_back(e.fresh, e.accuracy);
      step.points.emplace_back(e.step, e.accuracy);
      lowest = std::min(lowest, e.accuracy);
    }
    by_time.push_back(time);
    by_fresh.push_back(fresh);
    by_step.push_back(step);
    idle.push_back({run.name, run.color, run.idle});
  }
  ChartOptions accuracy{"Test accuracy over time",
                        "training time, seconds",
                        std::max(0.0, std::floor(lowest * 20 - 0.5) / 20),
                        1,
                        target,
                        false};
  std::string out = "<div class='charts'>";
  const auto card = [&](const std::vector<Series>& s, const ChartOptions& o) {
    out += "<div class='card'>" + svg_chart(s, o) + "</div>";
  };
  card(by_time, accuracy);
  accuracy.title = "Test accuracy over fresh examples";
  accuracy.x_label = "examples read from upstream";
  card(by_fresh, accuracy);
  accuracy.title = "Test accuracy over steps";
  accuracy.x_label = "optimizer steps";
  card(by_step, accuracy);
  card(idle, {"Device idle share", "training time, seconds", 0, 1, 0, true});
  return out + "</div>";
}

constexpr const char* kStyle = R"(
:root{color-scheme:light}
body{font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;color:#1d2733;background:#f4f6f9;margin:0}
main{max-width:1180px;margin:0 auto;padding:40px 24px 64px}
h1{font-size:30px;line-height:1.2;margin:0 0 8px;letter-spacing:-.01em}
.lead{font-size:19px;color:#435063;margin:0 0 28px}.lead b{color:#e4572e}
.card,table{background:#fff;border-radius:12px;box-shadow:0 1px 3px rgba(29,39,51,.10)}
table{width:100%;border-collapse:collapse;margin:0 0 24px;overflow:hidden;font-variant-numeric:tabular-nums}
th,td{padding:12px 16px;text-align:right;white-space:nowrap}th:first-child,td:first-child{text-align:left}
th{font-size:13px;color:#66758a;font-weight:600;white-space:normal;vertical-align:bottom;border-bottom:1px solid #e6eaf0}
tbody tr+tr td{border-top:1px solid #eef1f5}td:first-child{font-weight:600}
.dot{display:inline-block;width:11px;height:11px;border-radius:50%;margin-right:10px}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(440px,1fr));gap:20px}
.card{padding:14px 14px 8px}svg{width:100%;height:auto;display:block;font-family:inherit}
.title{font-size:16px;font-weight:600;fill:#1d2733}.tick{font-size:12px;fill:#66758a}
.label{font-size:13px;fill:#66758a}.grid{stroke:#e9edf2}.axis{stroke:#b9c3d0}
.line{fill:none;stroke-width:2.5;stroke-linejoin:round}
.target{stroke:#1d2733;stroke-dasharray:5 5;opacity:.55}.targettext{font-size:12px;fill:#1d2733;opacity:.75}
footer{margin-top:28px;font-size:13px;color:#66758a}
@media(max-width:560px){main{padding:24px 12px}.charts{grid-template-columns:1fr}table{display:block;overflow-x:auto}}
)";

}  // namespace

Json write_report(const std::string& title, const std::vector<ReportRun>& specs,
                  double target_accuracy, const std::string& html_path) {
  if (specs.empty()) fail(Code::invalid_argument, "a report needs at least one run");
  std::vector<Run> runs;
  for (const ReportRun& spec : specs)
    runs.push_back(load_run(spec, kColors[runs.size() % kColors.size()]));
  const Json table = table_of(runs, target_accuracy);
  const std::string html = cat(
      "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
      "<meta name='viewport' content='width=device-width,initial-scale=1'><title>",
      html_escape(title), "</title><style>", kStyle, "</style></head><body><main><h1>",
      html_escape(title), "</h1><p class='lead'>", headline(table, target_accuracy), "</p>",
      html_table(table, runs, target_accuracy), charts(runs, target_accuracy),
      "<footer>Times are training time: evaluation and checkpoints are not counted. Device idle is "
      "the share of that time in which the device had no work. Written by EchoTrain.</footer>",
      "</main></body></html>\n");
  platform::write_file_atomic(html_path, std::as_bytes(std::span(html)));
  return table;
}

}  // namespace etr::train

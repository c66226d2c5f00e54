#include "study/report_page.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "core/markup.h"
#include "core/number_text.h"
#include "core/text.h"
#include "plot/svg.h"
#include "study/figure_kinds.h"
#include "study/labels.h"
#include "study/report_tables.h"
#include "train/report_style.h"

namespace etr::study {
namespace {

constexpr size_t kMostWarnings = 40;  // conditions with warnings on the page; results.json has all

std::string fact(const std::string& name, const std::string& text) {
  return text.empty() ? ""
                      : cat("<div><dt>", escape_markup(name), "</dt><dd>", escape_markup(text),
                            "</dd></div>");
}

// Joins the different values of a text.
template <typename Part>
std::string joined(const std::vector<Record>& records, const Part& part) {
  std::vector<std::string> seen;
  for (const Record& record : records)
    if (const std::string text = part(record);
        !text.empty() && std::find(seen.begin(), seen.end(), text) == seen.end())
      seen.push_back(text);
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(seen.size(), 6); ++i) out += (i ? ", " : "") + seen[i];
  if (seen.size() > 6) out += cat(" and ", seen.size() - 6, " more");
  return out;
}

// Turns "2026-11-23T15:40:00Z" into "2026-11-23 15:40 UTC"; other texts are unchanged.
std::string minute_of(const std::string& time) {
  if (time.size() != 20 || time[10] != 'T' || time[19] != 'Z') return time;
  return cat(time.substr(0, 10), " ", time.substr(11, 5), " UTC");
}

std::string period(const std::vector<Record>& records) {
  std::string first, last;
  for (const Record& record : records) {
    if (record.time.empty()) continue;
    if (first.empty() || record.time < first) first = record.time;
    if (record.time > last) last = record.time;
  }
  const std::string from = minute_of(first), to = minute_of(last);
  if (from == to) return from;
  const bool one_day =
      from.size() == to.size() && from.ends_with(" UTC") && from.substr(0, 11) == to.substr(0, 11);
  return one_day ? cat(from.substr(0, 10), ", ", from.substr(11, 5), " to ", to.substr(11))
                 : cat(from, " to ", to);
}

std::string facts(const Outline& study, const Summary& summary,
                  const std::vector<Record>& records) {
  std::array<size_t, kStatusCount> counts{};
  std::set<uint64_t> seeds;
  size_t searches = 0;
  double seconds = 0;
  for (const Record& record : records) {
    ++counts[static_cast<size_t>(record.status)];
    seeds.insert(record.seed);
    seconds += record.spent.seconds;
  }
  for (const ConditionResult& condition : summary.conditions) searches += condition.searches.size();
  uint64_t planned = 0;
  for (const Objective& objective : study.objectives)
    for (const auto& [condition, trials] : objective.planned) planned += trials;
  const auto plural = [](size_t count, const char* what, const char* many = "") {
    return counted(static_cast<int64_t>(count), what, many);
  };
  std::string out = "<dl class='facts'>";
  out += fact("Extent",
              cat(plural(summary.objectives.size(), "workload"), ", ",
                  plural(summary.conditions.size(), "condition"), ", ",
                  plural(searches, "search", "searches"), ", ",
                  planned > records.size() ? cat(number_text(static_cast<double>(records.size())),
                                                 " of ", plural(planned, "trial"), " so far")
                                           : plural(records.size(), "trial")));
  out += fact("Trials", outcomes(counts));
  out += fact("Seeds", cat(study.seed ? cat("study ", *study.seed, "; ") : "",
                           plural(seeds.size(), "different seed"), " of trials"));
  out += fact("Training time", duration(seconds) + " in all");
  out += fact("Device", joined(records, [](const Record& record) { return record.device; }));
  out += fact("Host", joined(records, [](const Record& record) { return record.host; }));
  out += fact("Version", joined(records, [](const Record& record) { return record.version; }));
  out += fact("Time", period(records));
  return out + "</dl>";
}

std::string warnings_list(const Summary& summary) {
  std::string items;
  size_t all = 0;
  for (size_t i = 0; i < summary.workloads.size(); ++i)
    for (const std::string& warning : summary.workloads[i].warnings)
      items += cat("<li><b>", escape_markup(summary.objectives[i].workload), "</b> ",
                   escape_markup(warning), ".</li>");
  for (const ConditionResult& condition : summary.conditions) {
    if (condition.warnings.empty() || ++all > kMostWarnings) continue;
    std::string texts;
    for (const std::string& warning : condition.warnings)
      texts += (texts.empty() ? "" : "; ") + escape_markup(warning);
    items += cat("<li><b>", escape_markup(full_name(summary, condition)), "</b> ", texts, ".</li>");
  }
  if (all > kMostWarnings)
    items += cat("<li>", all - kMostWarnings, " more conditions: see results.json.</li>");
  return items;
}

// Lists each different error once, five at most.
std::string errors_list(const std::vector<Record>& records) {
  std::string out;
  std::set<std::string> known;
  for (const Record& record : records)
    if (record.status == Status::failed && known.size() < 5 && known.insert(record.error).second)
      out += cat("<li><b>A trial failed</b> ", escape_markup(record.error), "</li>");
  return out;
}

// Says what the absence of warnings means.
std::string all_well(bool objectives, const Summary& summary) {
  const bool searched =
      std::any_of(summary.conditions.begin(), summary.conditions.end(),
                  [](const ConditionResult& condition) { return condition.borders_checked; });
  return cat(objectives ? " Every search reached its target. " : " ",
             "Most trials of each condition were feasible",
             searched ? ", and no best trial lies at the border of its space." : ".");
}

// Says what a reader must know before the numbers: what diverged or failed, and what missed its
// target.
std::string cautions(const Summary& summary, const std::vector<Record>& records) {
  if (records.empty())
    return "<section class='cautions'><h2>No trial has finished yet</h2></section>";
  std::array<size_t, kStatusCount> short_of{};
  for (const Record& record : records) ++short_of[static_cast<size_t>(record.status)];
  short_of[static_cast<size_t>(Status::reached)] = 0;
  const bool objectives =
      std::any_of(summary.objectives.begin(), summary.objectives.end(),
                  [](const Objective& objective) { return objective.target.has_value(); });
  if (!objectives) short_of[static_cast<size_t>(Status::missed)] = 0;
  const std::string counts = outcomes(short_of);
  const std::string items = warnings_list(summary) + errors_list(records);
  return cat("<section class='cautions", items.empty() ? " none" : "",
             "'><h2>Failures and missed targets</h2><p>Of ",
             number_text(static_cast<double>(records.size())),
             " trials: ", counts.empty() ? "none diverged or failed" : escape_markup(counts), ".",
             items.empty() ? all_well(objectives, summary) : "", "</p>",
             items.empty() ? "" : cat("<ul>", items, "</ul>"), "</section>");
}

// Returns the condition with the largest gain; if several reached a target that the baseline did
// not, the one with the best score.
const ConditionResult* largest_gain(const Summary& summary, size_t workload) {
  const size_t clock = summary.objectives[workload].clock;
  const ConditionResult* best = nullptr;
  for (const ConditionResult& condition : summary.conditions) {
    const double gain = condition.gain[clock].median;
    if (condition.workload != workload || !condition.baseline || std::isnan(gain)) continue;
    const double least = best ? best->gain[clock].median : -1;
    if (gain > least ||
        (gain == least && condition.to_target[clock].median < best->to_target[clock].median))
      best = &condition;
  }
  return best;
}

// The main result in one sentence.
std::string headline(const Summary& summary, size_t workload) {
  const Objective& objective = summary.objectives[workload];
  const ConditionResult* best = largest_gain(summary, workload);
  if (!best || !objective.target) return "";
  const Spread& gain = best->gain[objective.clock];
  const std::string clock = clock_text(objective.clock), name = full_name(summary, *best);
  const std::string from = full_name(summary, summary.conditions[*best->baseline]);
  if (gain.median <= 1)
    return cat("<p class='lead'>No condition reached the target with fewer ", clock,
               " than its baseline.</p>");
  if (std::isinf(gain.median))
    return cat("<p class='lead'><b>", escape_markup(name), "</b> reached the target in ",
               best->gain_reached, " of ",
               counted(static_cast<int64_t>(best->searches.size()), "search", "searches"),
               ", its baseline, ", escape_markup(from), ", in ",
               summary.conditions[*best->baseline].to_target[objective.clock].finite, ".</p>");
  const std::string range = gain.count > 1
                                ? cat(" (", gain_text(gain.low), " to ", gain_text(gain.high),
                                      " over ", gain.count, " pairs of searches)")
                                : "";
  return cat("<p class='lead'>Largest speed-up in ", clock, " to the target: <b>",
             gain_text(gain.median), "</b>", range, " by ", escape_markup(name), " over ",
             escape_markup(from), ".</p>");
}

std::string figure_card(const StudyFigure& figure) {
  const size_t panels = figure.figure.panels.size();
  const char* wide = panels > 1 ? " class='wide'" : "";
  return cat("<section", wide, "><h3>", escape_markup(figure.figure.title), "</h3>",
             plot::html_figure(figure.figure), "<p class='caption'>", escape_markup(figure.caption),
             " <a href='figures/", figure.name, ".svg'>SVG</a> <a href='figures/", figure.name,
             ".csv'>CSV</a></p></section>");
}

std::string workload_part(const Summary& summary, const std::vector<Record>& records,
                          const std::vector<StudyFigure>& figures, size_t workload) {
  const Objective& objective = summary.objectives[workload];
  std::string out =
      cat("<h2 class='part'>",
          escape_markup(objective.workload.empty() ? "Results" : objective.workload),
          "</h2><p class='goal'>Goal: ", escape_markup(target_text(objective)),
          summary.workloads[workload].ends_at_target ? ", where a trial ends" : "",
          objective.limit > 0
              ? cat("; budget of a trial: ", clock_value(objective.clock, objective.limit),
                    objective.clock == 3 ? "" : " " + clock_text(objective.clock))
              : "",
          ".</p>");
  out += headline(summary, workload) + scaling_table(summary, workload) +
         condition_table(summary, records, workload) + "<div class='charts'>";
  for (const StudyFigure& figure : figures)
    if (figure.workload == workload) out += figure_card(figure);
  return out + "</div>";
}

constexpr const char* kPageStyle = R"(
h2.part{font-size:24px;margin:40px 0 4px}h3{font-size:16px;line-height:1.3;margin:0 0 8px}
.about{font-size:17px;color:var(--quiet);max-width:46em;margin:0 0 20px}.goal{color:var(--quiet);margin:0 0 10px}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,250px),1fr));gap:12px 28px;margin:0 0 24px}
.facts dt{font-size:13px;color:var(--quiet)}.facts dd{margin:0;overflow-wrap:anywhere}
.cautions{padding:16px 20px;border-left:4px solid var(--p1)}.cautions.none{border-color:var(--p3)}.cautions ul{margin:8px 0 0;padding-left:1.1em;font-size:15px}
.cautions p{margin:6px 0 0}.cautions li{overflow-wrap:anywhere}
td small{display:block;font-size:12px;color:var(--quiet);white-space:nowrap}td{vertical-align:top}tbody th{vertical-align:top;min-width:17em}
td small.free{white-space:normal}td .key{white-space:nowrap;display:inline-block;margin-left:10px}td:last-child{font-size:14px}
section.wide{grid-column:1/-1}.charts{align-items:start}.caption{font-size:13px;color:var(--quiet);margin:8px 0 2px;max-width:60em}
a{color:var(--p2)}footer{max-width:60em}
details{margin:20px 0}summary{cursor:pointer;font-weight:600}details table{margin:10px 0 0}
@media(max-width:480px){main{padding-left:12px;padding-right:12px}section{padding-left:8px;padding-right:8px}}
@media(max-width:820px){td span{text-align:right}td::before{text-align:left}}
)";

constexpr const char* kFooter =
    "A search's score is the least at which one of its trials reached the target, measured at "
    "evaluations; trials that "
    "diverged or failed do not count. Numbers are medians over searches, and below them the least "
    "and the greatest; a "
    "search that did not reach the target counts as infinite. Speed-up over baseline is the "
    "baseline's score over the condition's, search by search, because these drew the same points: "
    "∞ where only the condition reached the target, 0 where only the baseline did. Times are "
    "training time: evaluation is not counted. Written by EchoTrain.";

}  // namespace

std::string study_page(const Outline& study, const Summary& summary,
                       const std::vector<Record>& records,
                       const std::vector<StudyFigure>& figures) {
  const std::string &title = study.name, &about = study.description;
  std::string parts;
  for (size_t i = 0; i < summary.objectives.size(); ++i)
    parts += workload_part(summary, records, figures, i);
  return cat(
      "<!doctype html><html lang='en'><head><meta charset='utf-8'>"
      "<meta name='viewport' content='width=device-width,initial-scale=1'>"
      "<meta name='color-scheme' content='light dark'><title>",
      escape_markup(title), "</title><style>", train::kReportStyle, plot::page_style(), kPageStyle,
      "</style></head><body><main><h1>", escape_markup(title), "</h1>",
      about.empty() ? "" : cat("<p class='about'>", escape_markup(about), "</p>"),
      facts(study, summary, records), cautions(summary, records), parts, "<footer>", kFooter,
      "</footer></main></body></html>\n");
}

}  // namespace etr::study

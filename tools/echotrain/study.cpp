// echotrain study.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "console.h"
#include "job.h"
#include "study_plan.h"
#include "table.h"

namespace cli {
namespace {

void load_study(const Arguments& arguments, Study& study) {
  const std::vector<std::string> overrides = arguments.values("set");
  std::vector<const char*> pointers;
  for (const std::string& text : overrides) pointers.push_back(text.c_str());
  check(etr_study_load(arguments.operand(0).c_str(), pointers.data(),
                       static_cast<int32_t>(pointers.size()), study.out()));
}

Json spec_of(const Study& study) {
  char* text = nullptr;
  check(etr_study_json(study.get(), &text));
  return Json::parse(take_string(text));
}

std::string folder_of(const Arguments& arguments, const Study& study) {
  char* directory = nullptr;
  check(etr_study_output_dir(study.get(), &directory));
  const std::string otherwise = take_string(directory);
  return arguments.value("out", otherwise);
}

// Formats a score, which is null if a search never reached the target.
std::string score_text(const Json& score) {
  return score.is_null() ? "never" : number_text(score.get<double>());
}

// Formats the median, and if there are several searches also the range: "53,760 (50,000 to
// 61,000)".
std::string spread_text(const Json& spread) {
  if (spread.at("reached") == 0) return "never";
  const std::string median = score_text(spread.at("median"));
  if (spread.at("count") == 1) return median;
  return median + " (" + score_text(spread.at("min")) + " to " + score_text(spread.at("max")) + ")";
}

const Json& scores_of(const Json& result) {
  return result.at("to_target").at(result.at("clock").get<std::string>());
}

// Returns the median over the searches.
std::string best_metric_of(const Json& result) {
  const Json& best = result.at("best_metric").at("median");
  return best.is_null() ? "-" : text_of("%.4g", best.get<double>());
}

int64_t count_of(const Json& result, const char* status) {
  return result.at("counts").at(status).get<int64_t>();
}

std::string title_of(const Json& result, bool with_workload) {
  const std::string name = result.at("name").get<std::string>();
  if (!with_workload && !name.empty()) return name;
  return result.at("workload").get<std::string>() + (name.empty() ? "" : ": " + name);
}

bool has_target(const Json& result) { return !result.at("target").is_null(); }

std::vector<std::string> heads(const Json& results) {
  const Json& first = results.at(0);
  std::vector<std::string> out{"condition"};
  if (has_target(first))
    out.push_back(clock_name(first.at("clock")) + " to " + first.at("metric").get<std::string>() +
                  " " + text_of("%g", first.at("target").get<double>()));
  out.push_back("best " + first.at("metric").get<std::string>());
  out.push_back("trials");
  if (has_target(first)) out.emplace_back("reached");
  out.emplace_back("infeasible");
  return out;
}

std::vector<std::string> cells(const Json& result) {
  std::vector<std::string> out{title_of(result, /*with_workload=*/false)};
  if (has_target(result)) out.push_back(spread_text(scores_of(result)));
  out.push_back(best_metric_of(result));
  const auto trials = result.at("trials").get<int64_t>(), planned = result.value("planned", trials);
  out.push_back(std::to_string(trials) +
                (trials < planned ? " of " + std::to_string(planned) : ""));
  if (has_target(result)) out.push_back(std::to_string(count_of(result, "reached")));
  out.push_back(std::to_string(count_of(result, "diverged") + count_of(result, "failed")));
  return out;
}

// Prints how many trials are still to come.
void print_missing(const Json& spec, const Json& results) {
  int64_t trials = 0;
  for (const Json& result : results) trials += result.at("trials").get<int64_t>();
  const int64_t planned = planned_trials(spec);
  if (trials < planned)
    std::printf("\n%lld of %s have ended so far\n", static_cast<long long>(trials),
                counted(planned, "trial").c_str());
}

// Prints a table for each workload.
void print_table(const Json& results) {
  std::vector<std::vector<std::string>> rows;
  std::string workload;
  const auto flush = [&](bool several) {
    if (rows.empty()) return;
    std::printf("\n%s", several ? (workload + "\n").c_str() : "");
    print_rows(rows);
    rows.clear();
  };
  if (results.empty()) return;
  const bool several = results.front().at("workload") != results.back().at("workload");
  for (const Json& result : results) {
    if (result.at("workload") != workload) flush(several);
    workload = result.at("workload");
    if (rows.empty()) rows.push_back(heads(Json::array({result})));
    rows.push_back(cells(result));
  }
  flush(several);
}

Json results_of(const Study& study, const std::string& folder) {
  char* text = nullptr;
  check(etr_study_results(study.get(), folder.c_str(), &text));
  return Json::parse(take_string(text));
}

// Prints the warnings of workloads, and those of conditions unless `were_shown`, when they ended.
void print_warnings(const std::string& folder, bool were_shown) {
  std::ifstream file(std::filesystem::path(folder) / "results.json");
  const Json results = Json::parse(file);
  if (!were_shown)
    for (const Json& condition : results.at("conditions"))
      for (const Json& warning : condition.at("warnings"))
        std::printf("\nwarning: %s: %s\n", title_of(condition, true).c_str(),
                    warning.get<std::string>().c_str());
  for (const Json& workload : results.at("workloads"))
    for (const Json& warning : workload.at("warnings"))
      std::printf("\nwarning: %s: %s\n", workload.at("name").get<std::string>().c_str(),
                  warning.get<std::string>().c_str());
}

// Prints the results, writes the report and returns the results.
Json report(const Study& study, const Json& spec, const std::string& folder, bool ran) {
  Json results = results_of(study, folder);
  print_table(results);  // first, since a report may fail for want of space
  check(etr_study_write_report(study.get(), folder.c_str()));
  print_missing(spec, results);
  print_warnings(folder, /*were_shown=*/ran);
  std::printf("\nwrote %s/report.html\n", folder.c_str());
  return results;
}

// A study in which no trial trained has failed.
void check_any_trained(const Json& results, const std::string& folder) {
  int64_t trials = 0, failed = 0;
  for (const Json& result : results) {
    trials += result.at("trials").get<int64_t>();
    failed += count_of(result, "failed");
  }
  if (trials > 0 && failed == trials)
    throw Mistake("all " + counted(trials, "trial") + " of the study have failed; '" + folder +
                  "/trials.jsonl' has the errors, and the same command runs them again");
}

std::string best_text(const Json& event) {
  if (event.at("best_to_target").is_number())
    return ", best " + number_text(event["best_to_target"]) + " " +
           clock_name(event.value("clock", ""));
  if (event.at("best_metric").is_number())
    return ", best " + event.value("metric", "loss") + " " +
           text_of("%.4g", event["best_metric"].get<double>());
  return "";
}

std::string progress_of(const Json& event) {
  const auto done = event.at("done").get<int64_t>(), total = event.at("total").get<int64_t>();
  std::string out = "trials " +
                    bar(total ? static_cast<double>(done) / static_cast<double>(total) : 1, 16) +
                    " " + std::to_string(done) + " of " + std::to_string(total);
  const auto running = event.at("running").get<int64_t>();
  if (running > 0) out += ", " + std::to_string(running) + " running";
  if (event.at("seconds_left").is_number() && done < total)
    out += ", " + time_text(event["seconds_left"].get<double>()) + " left";
  const std::string name = event.at("condition");
  return out + "  " + (name.empty() ? event.at("workload").get<std::string>() : name) +
         best_text(event);
}

void print_condition(const Json& result) {
  std::string out = title_of(result, true) + ": ";
  if (has_target(result)) {
    const int64_t reached = count_of(result, "reached");
    out += reached == 0 ? "no trial reached the target"
                        : spread_text(scores_of(result)) + " " + clock_name(result.at("clock")) +
                              " to the target, which " + std::to_string(reached) + " of " +
                              counted(result.at("trials").get<int64_t>(), "trial") + " reached";
    out += "; ";
  }
  std::printf("%sbest %s %s\n", out.c_str(), result.at("metric").get<std::string>().c_str(),
              best_metric_of(result).c_str());
  for (const Json& warning : result.at("warnings"))
    std::printf("  warning: %s\n", warning.get<std::string>().c_str());
}

// Prints a study's events while it runs.
class Show {
 public:
  void event(const Json& event) {
    const std::string kind = event.at("kind");
    if (kind == "trial") print_failure(event.at("trial"), event.at("condition"));
    if (kind == "condition") {
      line_.erase();
      print_condition(event.at("result"));
    }
    if (kind != "end") line_.show(progress_of(event));
  }
  void end() { line_.erase(); }

 private:
  // Prints each error once, however many trials have it.
  void print_failure(const Json& trial, const std::string& condition) {
    if (trial.at("status") != "failed") return;
    const std::string error = trial.at("error");
    if (!told_.insert(error).second) return;
    line_.erase();
    const std::string where = condition.empty() ? "" : " (" + condition + ")";
    std::fprintf(stderr, "echotrain: trial %lld of search %lld of %s%s has failed: %s\n",
                 static_cast<long long>(trial.at("trial").get<int64_t>()),
                 static_cast<long long>(trial.at("search").get<int64_t>()),
                 trial.at("workload").get<std::string>().c_str(), where.c_str(), error.c_str());
  }

  ProgressLine line_;
  std::set<std::string> told_;
};

// Runs the study to its end, or until a signal stops it. Returns the last event.
Json run(const Study& study) {
  const StudyGuard guard(study.get());
  Show show;
  Json event;
  char* text = nullptr;
  while (check(etr_study_next_event(study.get(), 0.2, &text)) == ETR_OK) {
    event = Json::parse(take_string(text));
    show.event(event);
  }
  show.end();
  return event;
}

}  // namespace

int command_study(const Arguments& arguments) {
  const int32_t parallel = arguments.integer("parallel", -1, 0, 1024);
  Study study;
  load_study(arguments, study);
  const std::string folder = folder_of(arguments, study);
  const Json spec = spec_of(study);
  if (arguments.flag("report")) {
    report(study, spec, folder, /*ran=*/false);
    return 0;
  }
  if (arguments.flag("plan")) {
    print_plan(spec);
    return 0;
  }
  Runtime runtime;
  open_runtime(arguments, spec.at("workloads").at(0).at("job").value("device", ""), runtime);
  check(etr_study_start(study.get(), runtime.get(), folder.c_str(), parallel,
                        arguments.flag("overwrite")));
  std::printf("output: %s\n", folder.c_str());
  const Json end = run(study);
  if (interrupted())
    throw Interrupted{std::to_string(end.at("done").get<int64_t>()) + " of " +
                      counted(end.at("total").get<int64_t>(), "trial") + " are done and saved in '" +
                      folder + "'; continue with the same command"};
  check_any_trained(report(study, spec, folder, /*ran=*/true), folder);
  return 0;
}

}  // namespace cli

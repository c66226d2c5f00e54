#include "study/study.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "core/error.h"
#include "core/json_members.h"
#include "core/log.h"
#include "core/options.h"
#include "core/parse_json.h"
#include "core/platform_files.h"
#include "core/text.h"
#include "nn/model.h"
#include "optim/schedule.h"
#include "optim/update.h"
#include "study/conditions.h"
#include "study/figures.h"
#include "study/schema.h"
#include "study/trial_job.h"
#include "train/launch_checks.h"
#include "train/membership.h"
#include "train/milestones.h"
#include "train/ranks.h"

namespace etr::study {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMostTrials = 100'000;  // of a study: the places of all are held in memory

// Merges a workload's section into the study's, key by key, and the space of a search likewise.
Json merged(const Json& below, const Json& above) {
  if (!below.is_object() || !above.is_object()) return above;
  Json out = below;
  for (const auto& [key, value] : above.items())
    out[key] = out.contains(key) && key == "space" ? merged(out[key], value) : value;
  return out;
}

// Merges what the file says for all workloads with what one of them says.
Json merged_workload(const Json& file, const Json& own) {
  Json out = Json::object();
  for (const std::string& key : kSharedKeys) {
    const bool above = own.contains(key), below = file.contains(key);
    if (key == "set" && above && below && own[key].is_array() && file[key].is_array()) {
      out[key] = file[key];
      out[key].insert(out[key].end(), own[key].begin(), own[key].end());
    } else if (key == "search" && above && below) {
      out[key] = merged(file[key], own[key]);
    } else if (above || below) {
      out[key] = above ? own[key] : file[key];
    }
  }
  return out;
}

struct JobSource {
  Json json;
  std::string name, origin;
};

// Options accept null as an empty object. In a file, a section without content is a mistake.
void check_sections(const Json& given, const std::string& owner) {
  for (const char* key : {"goal", "budget", "evaluate", "search", "for", "baseline"})
    object_in(given, key, owner);
}

JobSource job_of(const Json& given, const std::string& folder, const std::string& owner) {
  if (!given.contains("job"))
    fail(Code::invalid_argument, owner, ": 'job' is missing: the path of a job, or the job itself");
  const Json& job = given["job"];
  if (job.is_object()) {
    const Json name = job.value("name", Json("job"));
    return {job, name.is_string() ? name.get<std::string>() : "job", cat(owner, ": the job")};
  }
  if (!job.is_string())
    fail(Code::invalid_argument, owner, ": 'job' is ", brief_json(job),
         "; it takes the path of a job, or the job itself");
  if (job.get<std::string>().empty())
    fail(Code::invalid_argument, owner,
         ": 'job' is an empty text; it takes the path of a job, or the job itself");
  const std::string path = (fs::path(folder) / job.get<std::string>()).lexically_normal().string();
  const std::string origin = cat("job file '", path, "'");
  try {
    return {parse_json(platform::read_document(path), origin), fs::path(path).stem().string(),
            origin};
  } catch (const Error& error) {
    fail(error.code(), owner, ": 'job': ", error.what());
  }
}

Goal goal_of(const Json& given, const std::string& owner) {
  const Options options(kGoal, cat(owner, ": goal"), given.value("goal", Json::object()));
  Goal out;
  out.accuracy = options.string("metric") == "accuracy";
  const double target = options.number("target");
  if (!out.accuracy && target < 0)
    fail(Code::invalid_argument, owner, ": goal: 'target' is ", target, "; no loss is below 0");
  if (target != 0) out.target = target;
  if (out.accuracy && !(target >= 0 && target < 1))
    fail(Code::invalid_argument, owner, ": goal: 'target' is ", target,
         "; an accuracy is from 0 to below 1");
  return out;
}

Budget budget_of(const Json& given, const std::string& owner) {
  const Json section = given.value("budget", Json::object());
  const Options options(kBudget, cat(owner, ": budget"), section);
  Budget out;
  out.fresh = static_cast<double>(options.integer("fresh"));
  out.steps = static_cast<double>(options.integer("steps"));
  out.seconds = options.number("seconds");
  for (const auto& [key, value] : section.items())
    if (out.clock.empty() && value.get<double>() > 0) out.clock = key;
  if (out.clock.empty())
    fail(Code::invalid_argument, owner,
         ": 'budget' needs 'fresh', 'steps' or 'seconds', or a trial would never end");
  return out;
}

StopRule stop_rule_of(const Json& given, const Goal& goal, const std::string& owner) {
  Json only = Json::object();
  if (given.contains("stop_early")) only["stop_early"] = given["stop_early"];
  if (only.value("stop_early", Json()) == kFormerSlower) {
    log_line(LogLevel::warning, cat(owner, ": stop_early '", kFormerSlower,
                                    "' is now called 'slower'; the old name will stop working"));
    only["stop_early"] = "slower";
  }
  const std::string rule = Options(kWorkload, owner, only).string("stop_early");
  if (rule == "slower" && !goal.target)
    fail(Code::invalid_argument, owner,
         ": stop_early 'slower' needs a 'target' in 'goal': it stops trials that would "
         "reach the target later than another one");
  return rule == "slower" ? StopRule::slower : rule == "median" ? StopRule::median : StopRule::none;
}

Common common_of(const Json& given, const std::string& owner) {
  Common out;
  Json search = object_in(given, "search", owner);
  std::vector<std::string> keys{"space"};
  for (const OptionSpec& option : kSearch) keys.emplace_back(option.name);
  check_keys(search, keys, cat(owner, ": search"));
  out.space = search.value("space", Json::object());
  remove_member(search, "space");
  const Options options(kSearch, cat(owner, ": search"), search);
  out.trials = static_cast<uint64_t>(options.integer("trials"));
  out.searches = static_cast<uint64_t>(options.integer("searches"));
  out.set = texts_in(given, "set", owner);
  out.labels_for = object_in(given, "for", owner);
  return out;
}

// Makes a workload from its merged entry; `resolved` receives the entry as a self-contained one.
Workload workload_of(const Json& given, const std::string& name, const std::string& folder,
                     const std::vector<std::string>& overrides, const std::string& owner,
                     Json& resolved) {
  Workload out;
  JobSource job = job_of(given, folder, owner);
  out.name = name.empty() ? job.name : name;
  out.job = std::move(job.json);
  out.origin = std::move(job.origin);
  out.goal = goal_of(given, owner);
  out.budget = budget_of(given, owner);
  out.evaluate = given.value("evaluate", Json::object());
  const Options check_evaluate(kEvaluate, cat(owner, ": evaluate"), out.evaluate);
  out.stop_early = stop_rule_of(given, out.goal, owner);
  Common common = common_of(given, owner);
  common.set.insert(common.set.end(), overrides.begin(), overrides.end());
  out.set = common.set;
  out.sequence =
      sequence_named(given.value("search", Json::object()).value("sequence", std::string("sobol")));
  resolved = given;
  remove_member(resolved, "for");
  resolved["name"] = out.name;
  resolved["job"] = out.job;
  resolved["set"] = common.set;
  out.conditions = conditions_of(given.value("conditions", Json::array({Json::object()})), common,
                                 owner, resolved["conditions"]);
  return out;
}

std::vector<std::string> file_keys() {
  std::vector<std::string> out = kSharedKeys;
  for (const OptionSpec& option : kStudy) out.emplace_back(option.name);
  out.insert(out.end(), {"workloads", "figures", "baseline"});
  return out;
}

Options study_options(const Json& given, const std::string& origin) {
  Json own = Json::object();
  for (const OptionSpec& option : kStudy)
    if (given.contains(option.name)) own[option.name] = given[option.name];
  return Options(kStudy, origin, own);
}

std::string key_of(const std::string& override_text) {
  return override_text.substr(0, override_text.find('='));
}

void check_own_key(const Workload& workload, const std::string& key, const std::string& owner) {
  if (const std::string by = set_by_study(workload, key); !by.empty())
    fail(Code::invalid_argument, owner, " is '", key,
         "', which the study sets in each of its trials, from ", by, ": set it there");
}

// Also checks a section that is set as a whole: train={"steps": 5}.
void check_own_keys(const Workload& workload, const std::string& text, const std::string& owner) {
  const std::string key = key_of(text);
  check_own_key(workload, key, owner);
  if ((key != "train" && key != "evaluation") || key.size() == text.size()) return;
  const auto section = parse_if_json(text.substr(key.size() + 1), "an override");
  if (!section || !section->is_object()) return;  // the job rejects it
  for (const auto& [name, value] : section->items())
    check_own_key(workload, cat(key, ".", name), owner);
}

// Returns the value at a key of the job as it is written; nullptr if there is none. (A JSON pointer
// throws for an index that is no size_t.)
const Json* written_at(const Json& job, const std::string& key) {
  const Json* at = &job;
  for (const std::string_view name : split(key, '.')) {
    const std::string text(name);
    if (at->is_object() && at->contains(text)) {
      at = &(*at)[text];
    } else if (at->is_array()) {
      char* end = nullptr;
      const size_t index = std::strtoull(text.c_str(), &end, 10);
      if (*end != 0 || index >= at->size()) return nullptr;
      at = &(*at)[index];
    } else {
      return nullptr;
    }
  }
  return at;
}

// Returns "batch" for "vars.batch", which is the same key.
std::string plain_key(const std::string& key) {
  return key.starts_with("vars.") ? key.substr(5) : key;
}

// Returns whether setting `one` also affects `other`: they are the same key, or the job takes one
// of them from the other ("${batch}").
bool overlap(const Json& job, const std::string& one, const std::string& other) {
  const std::string a = plain_key(one), b = plain_key(other);
  const auto takes = [&](const std::string& key, const std::string& variable) {
    const Json* at = written_at(job, key);
    return at && at->dump().find("${" + variable + "}") != std::string::npos;
  };
  return a == b || takes(a, b) || takes(b, a);
}

// Rejects "${name}" if it names no variable. Labels have already been filled in.
void check_names(const Workload& workload, const Condition& condition, const std::string& text,
                 const std::string& where) {
  const Json variables = workload.job.value("vars", Json::object());
  for (size_t at = 0; (at = text.find("${", at)) != std::string::npos; at += 2) {
    const size_t end = text.find('}', at);
    if (end == std::string::npos) return;  // the job rejects it
    const std::string name = text.substr(at + 2, end - at - 2);
    if (variables.contains(name)) continue;
    std::vector<std::string> known;
    for (const Json& names : {condition.labels, variables})
      for (const auto& [one, value] : names.items()) known.push_back(one);
    fail(Code::invalid_argument, where, ": '", text, "' names '", name,
         "', which is neither a label of this condition nor a variable of the job",
         suggestion(name, known));
  }
}

// A key that a search draws, a scale derives, or the study sets cannot also be set for all trials.
void check_set(const Workload& workload, const Condition& condition, const std::string& owner) {
  const std::string where = cat(owner, " (", condition.name, ")");
  for (const Dimension& dimension : condition.space.dimensions())
    check_own_key(workload, dimension.key, where + ": a key of 'space'");
  for (const Scaling& scaling : condition.scale)
    check_own_key(workload, scaling.key, where + ": a key of 'scale'");
  for (const std::string& text : condition.set)
    check_own_keys(workload, text, where + ": what 'set' or --set changes");
  for (size_t i = 0; i < condition.set.size(); ++i) {
    const std::string& text = condition.set[i];
    const bool replaced =
        std::any_of(condition.set.begin() + static_cast<std::ptrdiff_t>(i) + 1, condition.set.end(),
                    [&](const std::string& later) { return key_of(later) == key_of(text); });
    if (!replaced) check_names(workload, condition, text, where);
    for (const Dimension& dimension : condition.space.dimensions())
      if (overlap(workload.job, key_of(text), dimension.key))
        fail(Code::invalid_argument, where, ": '", text, "' sets '", dimension.key,
             "', which the search draws: take it out of the space ({\"", dimension.key,
             "\": null} in the condition's 'space'), or do not set it");
    for (const Scaling& scaling : condition.scale)
      if (overlap(workload.job, key_of(text), scaling.key))
        fail(Code::invalid_argument, where, ": '", text, "' sets '", scaling.key,
             "', which 'scale' derives: leave out one of the two");
  }
}

// Rejects logs: trials run at the same time, and a log has the decisions of one run.
void check_no_log(const Json& stages, const std::string& owner) {
  for (const Json& stage : stages)
    if (stage.contains("log") && stage["log"] != "")
      fail(Code::invalid_argument, owner, ": the stage '", stage["stage"].get<std::string>(),
           "' writes the log '", stage["log"].get<std::string>(),
           "', which all trials would write to at once; leave 'log' out, and log a run of the best "
           "trial's job");
}

// The ranks of a trial are threads of the process that runs the study.
void check_ranks(const train::Job& job, const std::string& owner) {
  const Options& parallel = *job.parallel();
  const auto ranks = static_cast<int>(parallel.strings("devices").size());
  const auto refuse = [&](const std::string& what) {
    fail(Code::invalid_argument, owner, ": parallel", what,
         "; the ranks of a trial are devices of the program that runs the study: name them in "
         "parallel.devices, which may name one twice ([\"0\", \"0\"]), or leave 'parallel' out");
  };
  if (ranks == 0) refuse(" names no 'devices'");
  if (train::has_processes(job))
    refuse(": its 'rank' and 'size', or a launcher, name other processes");
  if (const std::string option = train::network_option(parallel); !option.empty())
    refuse(cat(".", option, " is for several processes"));
  if (train::uses_servers(job))
    refuse(cat(": the algorithm '", parallel.string("algorithm"), "' needs a parameter server"));
  if (parallel.boolean("elastic")) refuse(".elastic is for several processes");
  if (ranks > 1) job.mesh().fitted(ranks);
  if (ranks > 1 && job.train().integer("noise_scale_every") > 0)
    fail(Code::invalid_argument, owner,
         ": train.noise_scale_every measures on one device, and parallel.devices names ", ranks,
         ": set it to 0 for these trials");
}

// Returns the points at which a condition's job is tried: both ends of every range, and each value
// of every list.
std::vector<Json> tried_points(const Condition& condition) {
  const auto& dimensions = condition.space.dimensions();
  std::vector<Json> out(2, Json::object());
  for (size_t end = 0; end < 2; ++end) {
    for (const Dimension& d : dimensions) out[end][d.key] = d.at(static_cast<double>(end));
    for (const Scaling& by : condition.scale)  // with base "best" the value is not known yet
      if (by.base) out[end][by.key] = scaled(by, *by.base, condition.labels);
  }
  for (const Dimension& d : dimensions)
    for (size_t i = 1; i + 1 < d.values.size(); ++i) {
      out.push_back(out.front());
      out.back()[d.key] = d.values[i];
    }
  return out;
}

// A schedule that ends needs a length, which a trial has from the budget.
void check_schedule(const train::Job& job) {
  const Options schedule(optim::schedule_schema(), "schedule", job.schedule());
  const int64_t length = optim::counts_fresh(schedule)
                             ? job.train().integer("fresh")
                             : static_cast<int64_t>(train::planned_steps(job.train()));
  if (length == 0) optim::Schedule(schedule, length);
}

std::string device_of(const Workload& workload, const Condition& condition) {
  return trial_job(workload, condition, tried_points(condition).front(), 1)
      .json()
      .value("device", std::string());
}

// All trials run on the device that the program has opened.
void check_device(const train::Job& job, const std::string& device, const std::string& owner) {
  const std::string named = job.json().value("device", std::string());
  if (!named.empty() && named != device)
    fail(Code::invalid_argument, owner, ": the job's device is '", named,
         "', and that of the first job is '", device,
         "'; a study runs on one device (--device DEVICE). To compare devices, run one study for "
         "each");
}

// Returns none if the optimizer has no momentum, or if it refuses its options, which the trials
// will report.
std::optional<double> momentum_of(const train::Job& job) try {
  const Json options = optim::UpdateSpec(job.optimizer()).options().json();
  const auto found = options.find("momentum");
  if (found == options.end() || !found->is_number()) return {};
  return found->get<double>();
} catch (const Error&) {
  return {};
}

struct Tried {
  uint64_t ranks = 1;              // of a trial
  std::optional<double> momentum;  // if it is the same for all points
};

// Tries the job with some values of the search, so that a key or value that the job rejects is
// found at once.
Tried check_job(const Study& study, size_t workload, size_t condition, const std::string& owner) {
  const Workload& of = study.workloads()[workload];
  const Condition& in = of.conditions[condition];
  Tried out;
  const std::vector<Json> points = tried_points(in);
  for (size_t i = 0; i < points.size(); ++i) {
    const train::Job job = trial_job(of, in, points[i], 1);
    const auto momentum = momentum_of(job);
    if (i == 0)
      out.momentum = momentum;
    else if (momentum != out.momentum)
      out.momentum.reset();
    check_device(job, study.device(), owner);
    check_schedule(job);
    if (!job.evaluation())
      fail(Code::invalid_argument, owner, ": the job has no 'evaluation', which a study needs");
    check_no_log(job.pipeline()["stages"], owner);
    if (job.parallel()) {
      check_ranks(job, owner);
      out.ranks = std::max<uint64_t>(out.ranks, job.parallel()->strings("devices").size());
    }
    if (of.goal.accuracy && !nn::Model(job.model()).loss().classifies())
      fail(Code::invalid_argument, owner,
           ": goal: the job's model has no accuracy; set 'metric' to loss");
  }
  return out;
}

// Returns what a condition changes, without its labels.
std::string changes_of(const Condition& condition) {
  Json out{{"set", condition.set}, {"space", condition.space.json()}, {"scale", Json::array()}};
  for (const Scaling& by : condition.scale)  // `by.with` is a label: its value counts, not its name
    out["scale"].push_back({by.key, by.rule, by.at, condition.labels.at(by.with)});
  return out.dump();
}

// Warns of conditions that differ only in a label which nothing uses: one would be compared with
// itself.
void warn_of_equal_conditions(const Workload& workload, const std::string& owner) {
  std::map<std::string, const Condition*> known;
  for (const Condition& condition : workload.conditions) {
    const auto [first, is_new] = known.try_emplace(changes_of(condition), &condition);
    if (is_new) continue;
    log_line(LogLevel::warning, cat(owner, ": ", workload.name, ": the conditions '",
                                    first->second->name, "' and '", condition.name,
                                    "' differ in nothing but the seeds of their trials: no 'set', "
                                    "'space' or 'scale' uses the label in which they differ"));
    return;
  }
}

}  // namespace

bool Goal::reaches(double metric) const {
  // An accuracy is a mean in single precision, so one that should be 0.6 may seem to be above 0.6.
  constexpr double kRounding = 1e-6;
  return target && is_better(metric, accuracy ? *target + kRounding : *target, accuracy);
}

Study Study::load(const std::string& path, const std::vector<std::string>& overrides) {
  const std::string origin = cat("study '", path, "'");
  Study out = parse(parse_json(platform::read_document(path), origin), origin,
                    fs::path(path).parent_path().string(), overrides);
  out.folder_ = (fs::path("runs") / "studies" / fs::path(path).stem()).generic_string();
  for (const Workload& workload : out.workloads_) warn_of_equal_conditions(workload, origin);
  return out;
}

Study Study::parse(const Json& given, const std::string& origin, const std::string& folder,
                   const std::vector<std::string>& overrides) {
  if (!given.is_object())
    fail(Code::invalid_argument, origin, " holds no study: a study is a JSON object");
  check_keys(given, file_keys(), origin);
  check_sections(given, origin);
  const Options options = study_options(given, origin);
  Study out;
  out.origin_ = origin;
  out.name_ = options.string("name");
  out.seed_ = static_cast<uint64_t>(options.integer("seed"));
  out.parallel_ = static_cast<uint64_t>(options.integer("parallel"));
  out.json_ = options.json();
  for (const char* shown : {"figures", "baseline"})  // read by reports
    if (given.contains(shown)) out.json_[shown] = given[shown];
  if (const auto figures = given.find("figures"); figures != given.end() && figures->is_null())
    fail(Code::invalid_argument, origin, ": 'figures' is null, not a list");
  Json entries = given.value("workloads", Json::array({Json::object()}));
  if (!entries.is_array() || entries.empty())
    fail(Code::invalid_argument, origin, ": 'workloads' is ", brief_json(entries),
         "; it takes a list of workloads");
  out.json_["workloads"] = Json::array();
  std::set<std::string> names;
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string owner =
        given.contains("workloads") ? cat(origin, ": workload ", i + 1) : origin;
    if (!entries[i].is_object())
      fail(Code::invalid_argument, owner, " is ", brief_json(entries[i]), "; it takes an object");
    std::vector<std::string> keys = kSharedKeys;
    keys.emplace_back("name");
    check_keys(entries[i], keys, owner);
    check_sections(entries[i], owner);
    Json name = entries[i].value("name", Json(""));
    if (!name.is_string())
      fail(Code::invalid_argument, owner, ": 'name' is ", brief_json(name), "; it takes a text");
    Json resolved;
    out.workloads_.push_back(
        workload_of(merged_workload(given, entries[i]), name, folder, overrides, owner, resolved));
    if (!names.insert(out.workloads_.back().name).second)
      fail(Code::invalid_argument, owner, ": there are two workloads with the name '",
           out.workloads_.back().name, "'; give them different ones");
    out.json_["workloads"].push_back(std::move(resolved));
  }
  if (out.trials() > kMostTrials)
    fail(Code::invalid_argument, origin, ": there are ", out.trials(), " trials in all; at most ",
         kMostTrials, " are possible: lower 'trials' or 'searches'");
  out.check_figures();
  out.check_trials();
  if (!out.device_.empty()) out.json_["workloads"][0]["job"]["device"] = out.device_;
  return out;
}

void Study::check_figures() const {
  std::vector<WorkloadLabels> labels;
  for (const Workload& workload : workloads_) {
    labels.push_back({workload.name, {}});
    for (const Condition& condition : workload.conditions)
      labels.back().labels.push_back(condition.labels);
  }
  try {
    study::check_figures(outline_of(*this), labels);
  } catch (const Error& error) {
    fail(error.code(), origin_, ": ", error.what());
  }
}

void Study::check_trials() {
  for (size_t w = 0; w < workloads_.size(); ++w)
    for (size_t c = 0; c < workloads_[w].conditions.size(); ++c) {
      Condition& condition = workloads_[w].conditions[c];
      const std::string owner = cat(origin_, ": ", workloads_[w].name);
      check_set(workloads_[w], condition, owner);
      try {
        if (w == 0 && c == 0) device_ = device_of(workloads_[w], condition);
        const Tried tried = check_job(*this, w, c, owner);
        most_ranks_ = std::max(most_ranks_, tried.ranks);
        condition.momentum = tried.momentum;
      } catch (const Error& error) {
        if (std::string_view(error.what()).starts_with(origin_)) throw;
        fail(error.code(), owner, condition.name.empty() ? "" : cat(" (", condition.name, ")"),
             ": ", error.what());
      }
    }
}

uint64_t Study::trials() const {
  uint64_t out = 0;  // at most 10^10 for each of 10,000 conditions: no overflow
  for (const Workload& workload : workloads_)
    for (const Condition& condition : workload.conditions)
      out += condition.trials * condition.searches;
  return out;
}

Json study_schema() {
  return {{"study", schema_json(kStudy)},       {"workload", schema_json(kWorkload)},
          {"goal", schema_json(kGoal)},         {"budget", schema_json(kBudget)},
          {"evaluate", schema_json(kEvaluate)}, {"search", schema_json(kSearch)},
          {"range", schema_json(kRange)},       {"scale", schema_json(kScaling)}};
}

}  // namespace etr::study

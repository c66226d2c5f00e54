// The pipeline's own options.
#include <algorithm>
#include <iterator>

#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "pipeline/pipeline.h"

namespace etr::pipeline {
namespace {

constexpr OptionSpec kOptions[] = {
    {"threads", OptionType::integer, "0",
     "number of worker threads; 0: one for each usable core. Echoing on demand adds one", 0, 256},
    {"rank", OptionType::integer, "0",
     "index of this process among 'world_size' processes; each gets one of every world_size "
     "samples",
     0, 1e6},
    {"world_size", OptionType::integer, "1",
     "number of processes that share the samples; all get equally many (see 'drop_remainder')", 1,
     1e6, "processes", "", "world"},
    {"drop_remainder", OptionType::boolean, "true",
     "leave out the last samples if there is not one for each of 'world_size' processes; false: "
     "the first processes get one more, for evaluations",
     0, 0, "", "", "drop_rest"},
    {"tuned", OptionType::string, "\"\"",
     "file written by 'echotrain tune-pipeline'; its settings apply where the pipeline has none of "
     "its own",
     0, 0, "path"},
    {"seed", OptionType::integer, "0", "seed of all random numbers", 0, 9007199254740991},
    {"epochs", OptionType::integer, "0", "epochs until the pipeline ends; 0: it never ends", 0,
     1e9},
    {"queue_items", OptionType::integer, "512", "capacity of each queue between stages", 1, 1e7,
     "samples"},
    {"queue_bytes", OptionType::integer, "67108864", "capacity of each queue between stages", 1,
     1e13, "bytes"},
    {"prefetch", OptionType::integer, "4",
     "number of finished batches that may wait for the consumer", 1, 1e4, "batches"},
    {"low_water", OptionType::integer, "2",
     "an echo node in the mode auto or on_demand repeats samples while fewer batches "
     "than this are finished; a value above the capacity of the last queue counts as "
     "that capacity",
     1, 1e4, "batches"},
    {"budget_bytes", OptionType::integer, "0",
     "memory for all queues, buffers and caches together, and for any single record; "
     "0: each has only its own limit. If it is too small, there is an error when the "
     "pipeline is created or, if the pipeline is built stage by stage or calls "
     "functions of your program, at the first batch",
     0, 1e15, "bytes"},
    {"trace_events", OptionType::integer, "0",
     "number of newest events that a trace keeps; 0: none", 0, 1e8, "events"},
    {"on_error", OptionType::string, "\"fail\"",
     "what happens on a bad record: fail: the run ends; skip: it is dropped; quarantine: it is "
     "dropped and a copy is set aside; substitute: the good sample before it takes its place",
     0, 0, "", "fail|skip|quarantine|substitute"},
    {"on_error_in", OptionType::string, "\"\"",
     "a different 'on_error' for some stages: 'decode=skip, csv=fail'"},
    {"max_bad_records", OptionType::integer, "1000",
     "number of different bad records that are tolerated before the run ends", 0, 1e12, "records"},
    {"max_bad_share", OptionType::number, "1",
     "largest fraction of the records read that may be bad; as long as fewer than 100 "
     "have been read, it is a fraction of 100",
     0, 1},
    {"bad_records_file", OptionType::string, "\"\"",
     "file to which each tolerated bad record is written as a line of JSON", 0, 0, "path"},
    {"remote_connections", OptionType::integer, "4",
     "concurrent requests for each file that is read over the network", 1, 256},
    {"remote_part_bytes", OptionType::integer, "4194304",
     "size of each such request; with 'budget_bytes', it is reduced so that the parts "
     "that are read ahead take at most a quarter of the budget",
     1024, 1e10, "bytes"},
    {"remote_retries", OptionType::integer, "5",
     "how often a request is retried after a broken connection, a time-out or an overloaded "
     "server; the pauses in between grow, or are as the server asks (Retry-After), up to 30 s each",
     0, 1000},
    {"remote_low_speed_s", OptionType::number, "30",
     "a request fails after this long below 1 KiB/s", 1, 1e6, "s"},
    {"remote_timeout_s", OptionType::number, "0", "longest total time of a request; 0: no limit", 0,
     1e6, "s"},
    {"remote_cache_dir", OptionType::string, "\"\"",
     "folder that keeps remote files, shared with other processes and later runs", 0, 0, "path"},
    {"remote_cache_bytes", OptionType::integer, "10737418240",
     "capacity of that folder; the least recently used files are removed first", 0, 1e15, "bytes"},
    {"quarantine_dir", OptionType::string, "\"\"", "folder that receives the quarantined records",
     0, 0, "path"},
    {"write_files", OptionType::boolean, "true",
     "write logs, the list of bad records and quarantined records; false: write none "
     "of these, and drop records that would be quarantined, for a pipeline that is "
     "run only to look at its samples or its speed. 'cache' and 'remote_cache_dir' "
     "write in either case"},
};

ErrorPolicy policy_of(const std::string& name) {
  if (name == "skip") return ErrorPolicy::skip;
  if (name == "substitute") return ErrorPolicy::substitute;
  return name == "quarantine" ? ErrorPolicy::quarantine : ErrorPolicy::fail;
}

const std::string kPolicies[] = {"fail", "skip", "quarantine", "substitute"};

}  // namespace

Schema pipeline_schema() { return kOptions; }

// The spec may be invalid; the pipeline's constructor reports that.
Json without_side_files(Json spec) {
  if (!spec.is_object()) return spec;
  remove_member(spec, "bad_records_file");
  for (const char* key : {"on_error", "on_error_in"}) {
    if (!spec.contains(key) || !spec[key].is_string()) continue;
    auto text = spec[key].get<std::string>();
    const std::string writing = "quarantine";
    for (size_t at = 0; (at = text.find(writing, at)) != std::string::npos;)
      text.replace(at, writing.size(), "skip");
    spec[key] = text;
  }
  if (!spec.contains("stages") || !spec["stages"].is_array()) return spec;
  for (Json& stage : spec["stages"]) {
    const Json name = stage.is_object() ? stage.value("stage", Json()) : Json();
    if (name == "echo" || name == "overtake") remove_member(stage, "log");
  }
  return spec;
}

ErrorRules Pipeline::error_rules() const {
  ErrorRules rules;
  rules.policy = policy_of(options_->string("on_error"));
  rules.limit = options_->integer("max_bad_records");
  rules.share = options_->number("max_bad_share");
  rules.directory = options_->string("quarantine_dir");
  rules.list = options_->string("bad_records_file");
  const std::string by_stage = options_->string("on_error_in");
  if (by_stage.empty()) return rules;
  for (const std::string_view entry : split(by_stage, ',')) {
    const auto parts = split(entry, '=');
    const std::string stage(trim(parts[0])), policy(parts.size() == 2 ? trim(parts[1]) : "");
    std::vector<std::string> names;
    for (size_t i = 0; i < entries_.size(); ++i) {
      names.push_back(entries_[i].name);
      if (entries_[i].name == stage) rules.by_stage[i] = policy_of(policy);
    }
    if (std::find(names.begin(), names.end(), stage) == names.end())
      fail(Code::invalid_argument, "pipeline: on_error_in names '", stage,
           "', which is not a stage of this pipeline", suggestion(stage, names));
    if (std::find(std::begin(kPolicies), std::end(kPolicies), policy) == std::end(kPolicies))
      fail(Code::invalid_argument, "pipeline: on_error_in: '", trim(entry), "' is not STAGE=POLICY",
           suggestion(policy, kPolicies));
  }
  return rules;
}

}  // namespace etr::pipeline

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
     "worker threads; 0 takes one for each usable core. Echoing on demand has one more", 0, 256},
    {"rank", OptionType::integer, "0",
     "which of 'world_size' processes this is: it gets one sample of each world_size", 0, 1e6},
    {"world_size", OptionType::integer, "1",
     "processes that share the samples; all get as many (see 'drop_remainder')", 1, 1e6,
     "processes", "", "world"},
    {"drop_remainder", OptionType::boolean, "true",
     "samples that do not give one to each of 'world_size' processes are left out; false: the "
     "first processes get one more, for evaluations",
     0, 0, "", "", "drop_rest"},
    {"tuned", OptionType::string, "\"\"",
     "file that 'echotrain tune-pipeline' wrote: its settings count where the pipeline has none of "
     "its own",
     0, 0, "path"},
    {"seed", OptionType::integer, "0", "seed of everything random", 0, 9007199254740991},
    {"epochs", OptionType::integer, "0", "epochs until the pipeline ends; 0 never ends", 0, 1e9},
    {"queue_items", OptionType::integer, "512", "samples that a queue between stages may hold", 1,
     1e7, "samples"},
    {"queue_bytes", OptionType::integer, "67108864", "bytes that a queue between stages may hold",
     1, 1e13, "bytes"},
    {"prefetch", OptionType::integer, "4", "finished batches that may wait for the consumer", 1,
     1e4, "batches"},
    {"low_water", OptionType::integer, "2",
     "finished batches below which an on-demand echo node repeats samples; no more count than the "
     "last queue holds",
     1, 1e4, "batches"},
    {"budget_bytes", OptionType::integer, "0",
     "memory for all queues, buffers and caches together, and for any one record; too little is an "
     "error when the pipeline is made (made stage by stage, or with functions of the program in "
     "it: at "
     "the first batch); 0: each keeps to its own limit",
     0, 1e15, "bytes"},
    {"trace_events", OptionType::integer, "0", "newest events that a trace keeps; 0: none", 0, 1e8,
     "events"},
    {"on_error", OptionType::string, "\"fail\"",
     "what a bad record does: end the run, be dropped, be dropped and set aside, or be replaced by "
     "the "
     "good sample before it",
     0, 0, "", "fail|skip|quarantine|substitute"},
    {"on_error_in", OptionType::string, "\"\"",
     "another 'on_error' for some stages: 'decode=skip, csv=fail'"},
    {"max_bad_records", OptionType::integer, "1000",
     "different bad records tolerated before the run ends", 0, 1e12, "records"},
    {"max_bad_share", OptionType::number, "1",
     "share of the records read that may be bad; of the first 100, as if 100 had been read", 0, 1},
    {"bad_records_file", OptionType::string, "\"\"",
     "file that receives a line of JSON for each bad record that is tolerated", 0, 0, "path"},
    {"remote_connections", OptionType::integer, "4",
     "requests in flight for each file that is read over the network", 1, 256},
    {"remote_part_bytes", OptionType::integer, "4194304", "what one such request asks for", 1024,
     1e10, "bytes"},
    {"remote_retries", OptionType::integer, "5",
     "times that a request is tried again after a broken connection, a time-out or an overloaded "
     "server",
     0, 1000},
    {"remote_low_speed_s", OptionType::number, "30",
     "a request below 1 KiB/s for so long has failed", 1, 1e6, "s"},
    {"remote_timeout_s", OptionType::number, "0", "a request may take so long in all; 0: any time",
     0, 1e6, "s"},
    {"remote_cache_dir", OptionType::string, "\"\"",
     "folder that keeps remote files, also for other processes and later runs", 0, 0, "path"},
    {"remote_cache_bytes", OptionType::integer, "10737418240",
     "what that folder may hold; the least recently used files go first", 0, 1e15, "bytes"},
    {"quarantine_dir", OptionType::string, "\"\"", "directory that receives quarantined records", 0,
     0, "path"},
};

ErrorPolicy policy_of(const std::string& name) {
  if (name == "skip") return ErrorPolicy::skip;
  if (name == "substitute") return ErrorPolicy::substitute;
  return name == "quarantine" ? ErrorPolicy::quarantine : ErrorPolicy::fail;
}

const std::string kPolicies[] = {"fail", "skip", "quarantine", "substitute"};

}  // namespace

Schema pipeline_schema() { return kOptions; }

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
           "', which is no stage of this pipeline", suggestion(stage, names));
    if (std::find(std::begin(kPolicies), std::end(kPolicies), policy) == std::end(kPolicies))
      fail(Code::invalid_argument, "pipeline: on_error_in: '", trim(entry), "' is not STAGE=POLICY",
           suggestion(policy, kPolicies));
  }
  return rules;
}

}  // namespace etr::pipeline

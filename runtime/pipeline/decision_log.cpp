#include "pipeline/decision_log.h"

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "core/json.h"
#include "core/json_members.h"
#include "core/log.h"
#include "core/packed.h"
#include "core/parse_json.h"

namespace etr::pipeline {
namespace {

bool has_lines(const std::string& path) {
  std::error_code missing;  // then there are none
  const auto bytes = std::filesystem::file_size(path, missing);
  return !missing && bytes > 0;
}

}  // namespace

DecisionLog::DecisionLog(std::string path, const char* stage, const char* key)
    : path_(std::move(path)), stage_(stage), key_(key) {}

// A run that ends within an epoch leaves its last decision.
DecisionLog::~DecisionLog() {
  try {
    complete();
  } catch (const std::exception& error) {
    log_line(LogLevel::warning,
             cat(stage_, ": the last decision is not in the log: ", error.what()));
  }
}

void DecisionLog::begin(uint64_t epoch, const std::optional<EpochDecisions>& made) {
  if (path_.empty()) return;
  const bool voids = made || has_lines(path_);
  file_.emplace(path_, platform::OutputFile::Mode::append);  // where nothing is decided, it says so
  if (!voids) return;
  write({{"epoch", epoch}, {"after", 0}, {"restored", true}});
  for (const auto& [after, number] : made.value_or(EpochDecisions()))
    write({{"epoch", epoch}, {"after", after}, {key_, number}});
  file_->flush();
}

void DecisionLog::note(uint64_t epoch, uint64_t after, uint64_t number, const Json& details) {
  if (!file_) return;
  if (place_ != std::pair(epoch, after)) complete();
  place_ = {epoch, after};
  Json row{{"epoch", epoch}, {"after", after}, {key_, number}};
  if (details.is_object()) row.update(details);
  line_ = row.dump() + "\n";
}

void DecisionLog::complete() {
  if (line_.empty()) return;
  file_->write(std::exchange(line_, ""));
  file_->flush();  // a run that is ended from outside leaves its decisions
}

void DecisionLog::write(const Json& row) { file_->write(row.dump() + "\n"); }

void read_decision_log(const std::string& path, const char* stage, const char* key,
                       DecisionsByEpoch& decisions) {
  std::ifstream in(path);
  if (!in) fail(Code::io, stage, ": cannot open the decisions to replay, '", path, "'");
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    const std::string where = cat("'", path, "', line ", ++number);
    const Json row = parse_json(line, where);
    const JsonMembers members(row, cat(where, " is not a decision of the stage '", stage, "'"),
                              Code::corrupt_data);
    const uint64_t epoch = members.whole("epoch"), after = members.whole("after");
    EpochDecisions& made = decisions[epoch];
    made.erase(made.lower_bound(after), made.end());
    decisions.erase(decisions.upper_bound(epoch), decisions.end());
    if (members.has("restored") && members.flag("restored")) continue;
    made[after] = members.whole(key);
  }
}

EpochDecisions decisions_of(const std::vector<uint64_t>& numbers) {
  EpochDecisions out;
  uint64_t after = 0;
  for (size_t i = 0; i + 1 < numbers.size(); i += 2) out[after += numbers[i]] = numbers[i + 1];
  return out;
}

EpochDecisions unpack_decisions(const Json& saved, const char* stage) {
  const auto damaged = [&] {
    fail(Code::corrupt_data, "the saved decisions of the stage '", stage, "' are damaged");
  };
  if (!saved.is_string()) damaged();
  const std::vector<uint64_t> numbers = unpack_numbers(saved.get<std::string>());
  if (numbers.size() % 2 != 0) damaged();
  return decisions_of(numbers);
}

}  // namespace etr::pipeline

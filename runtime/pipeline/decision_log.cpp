#include "pipeline/decision_log.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <span>

#include "core/error.h"
#include "core/json.h"
#include "core/json_members.h"
#include "core/log.h"
#include "core/packed.h"
#include "core/parse_json.h"

namespace etr::pipeline {
namespace {

bool has_lines(const std::string& path) {
  std::error_code missing;  // no file, no lines
  const auto bytes = std::filesystem::file_size(path, missing);
  return !missing && bytes > 0;
}

void check_folder(const std::string& path, const char* stage) {
  const auto folder = std::filesystem::path(path).parent_path();
  std::error_code none;
  if (!folder.empty() && !std::filesystem::is_directory(folder, none))
    fail(Code::io, stage, ": 'log' is '", path, "', and there is no folder '", folder.string(),
         "': make the folder");
}

// Returns whether the file begins like a log. A full disk may have left only a few bytes of it.
bool begins_like_a_log(const std::string& path) {
  constexpr std::string_view kBeginning = R"({"epoch":)";
  const platform::InputFile file(path);
  std::string beginning(static_cast<size_t>(std::min<uint64_t>(file.size(), 64)), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(beginning)));
  std::erase(beginning, ' ');
  return kBeginning.starts_with(beginning) || beginning.starts_with(kBeginning);
}

// Throws if there is a file that cannot be continued because it is not a log. Such a file is left
// alone.
void check_log(const std::string& path, const char* stage) {
  check_folder(path, stage);
  if (!platform::is_file_or_free(path))
    fail(Code::io, stage, ": 'log': '", path,
         "' is not a regular file: name a file that the run may write");
  if (has_lines(path) && !begins_like_a_log(path))
    fail(Code::invalid_argument, stage, ": 'log': '", path,
         "' has other content than decisions, and is not written to: name another file, or remove "
         "this one");
}

std::ifstream open_log(const std::string& path, const char* stage) {
  if (!platform::is_file_or_free(path))
    fail(Code::io, stage, ": 'replay': '", path,
         "' is not a regular file: name the file that a run has written as its 'log'");
  std::ifstream in(std::filesystem::path{path});
  if (!in)
    fail(Code::io, stage, ": cannot open the decisions to replay, '", path,
         "': 'replay' names a file that a run has written as its 'log'");
  in.exceptions(std::ios::badbit);  // otherwise a lack of memory would look like the end
  return in;
}

// Reads a line; false at the end, and where the file cannot be read any further (in.bad()).
bool next_line(std::ifstream& in, std::string& line) {
  try {
    return static_cast<bool>(std::getline(in, line));
  } catch (const std::ios_base::failure&) {
    return false;
  }
}

// Runs decide in order. If lines are not in order, the log was edited, or two runs have written to
// it.
void check_place(const std::string& where, std::pair<uint64_t, uint64_t> place,
                 std::pair<uint64_t, uint64_t> least, uint64_t first_place) {
  if (place.second < first_place)
    fail(Code::corrupt_data, where, ": 'after' is ", place.second,
         ", and nothing can be decided in front of ", first_place);
  if (place < least)
    fail(Code::corrupt_data, where, ": a decision after ", place.second, " of epoch ", place.first,
         " stands behind a later one, or one for the same place: the lines of a log are in order; "
         "it was edited, or several runs have written into it at once");
}

}  // namespace

DecisionLog::DecisionLog(std::string path, const char* stage, const char* key)
    : path_(std::move(path)), stage_(stage), key_(key) {}

// A run that ends within an epoch still writes its last decision.
DecisionLog::~DecisionLog() {
  try {
    complete();
  } catch (const std::exception& error) {
    try_log_line(LogLevel::warning,
                 {stage_, ": the last decision is not in the log: ", error.what()});
  }
}

void DecisionLog::begin(uint64_t epoch, const std::optional<EpochDecisions>& made) {
  if (path_.empty()) return;
  check_log(path_, stage_);
  platform::cut_unfinished_line(path_);
  const bool voids = made || has_lines(path_);
  // The file is created even if nothing will be decided: an empty log says so.
  file_.emplace(path_, platform::OutputFile::Mode::append);
  if (!voids) return;
  write({{"epoch", epoch}, {"after", 0}, {"restored", true}});
  // Marked "again", because the run may continue at the newest of these places and replace that
  // decision.
  for (const auto& [after, number] : made.value_or(EpochDecisions()))
    write({{"epoch", epoch}, {"after", after}, {key_, number}, {"again", true}});
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
  file_->flush();  // so that a killed run leaves its decisions
}

void DecisionLog::write(const Json& row) { file_->write(row.dump() + "\n"); }

void read_decision_log(const std::string& path, const char* stage, const char* key,
                       uint64_t first_place, DecisionsByEpoch& decisions) {
  std::ifstream in = open_log(path, stage);
  // The smallest place that the next line may have.
  std::pair<uint64_t, uint64_t> least(0, first_place);
  int64_t number = 0;
  for (std::string line; next_line(in, line);) {
    const std::string where = cat("'", path, "', line ", ++number);
    const Json row = parse_json(line, where);
    const JsonMembers members(row, cat(where, " is not a decision of the stage '", stage, "'"),
                              Code::corrupt_data);
    const uint64_t epoch = members.whole("epoch"), after = members.whole("after");
    const bool restored = members.has("restored") && members.flag("restored");
    if (!restored) check_place(where, {epoch, after}, least, first_place);
    const bool replaceable = members.has("again") && members.flag("again");
    least = {epoch, restored ? first_place : after + !replaceable};
    EpochDecisions& made = decisions[epoch];
    made.erase(made.lower_bound(after), made.end());
    decisions.erase(decisions.upper_bound(epoch), decisions.end());
    if (!restored) made[after] = members.whole(key);
  }
  if (in.bad())
    fail(Code::io, stage, ": 'replay' cannot be read to its end, '", path, "', line ", number + 1);
}

bool warn_where_log_ends(const std::string& path, const char* stage, uint64_t epoch,
                         const DecisionsByEpoch& decisions) {
  if (decisions.lower_bound(epoch) != decisions.end()) return false;
  log_line(LogLevel::warning, cat(stage, ": '", path, "' has no decisions from epoch ", epoch,
                                  " on: from there on nothing is repeated"));
  return true;
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

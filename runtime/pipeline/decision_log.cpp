#include "pipeline/decision_log.h"

#include <fstream>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "core/json_members.h"
#include "core/packed.h"
#include "core/parse_json.h"

namespace etr::pipeline {

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

EpochDecisions unpack_decisions(const Json& saved, const char* stage) {
  const auto damaged = [&] {
    fail(Code::corrupt_data, "the saved decisions of the stage '", stage, "' are damaged");
  };
  if (!saved.is_string()) damaged();
  const std::vector<uint64_t> numbers = unpack_numbers(saved.get<std::string>());
  if (numbers.size() % 2 != 0) damaged();
  EpochDecisions out;
  uint64_t after = 0;
  for (size_t i = 0; i < numbers.size(); i += 2) out[after += numbers[i]] = numbers[i + 1];
  return out;
}

}  // namespace etr::pipeline

// Records the decisions of a stage that depend on time, so that a run can be repeated. A decision
// is a number at a place in an epoch. A log has a line of JSON per decision; a saved position has a
// packed list.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/json_fwd.h"
#include "core/platform_files.h"

namespace etr::pipeline {

using EpochDecisions = std::map<uint64_t, uint64_t>;          // by place
using DecisionsByEpoch = std::map<uint64_t, EpochDecisions>;  // by epoch

// A run's log. Its lines are {"epoch", "after": the place, `key`: the number}. Several runs may
// write to one file. A killed run may have logged decisions beyond the position where the next run
// starts, and the next run need not decide anything at the same places. So a run that finds lines
// in the file, or starts at a saved position, first writes {"epoch", "after": 0, "restored": true},
// which voids all lines from that epoch on. It then repeats the known decisions of the epoch,
// marked "again": true. The line after one of these may have the same place and then replaces it. A
// last line that a full disk has left incomplete is removed. Not thread safe.
class DecisionLog {
 public:
  DecisionLog(std::string path, const char* stage, const char* key);  // `path` "": no log
  ~DecisionLog();  // completes the log; a failure is a warning
  DecisionLog(const DecisionLog&) = delete;
  DecisionLog& operator=(const DecisionLog&) = delete;

  // Starts the log of a run that begins in `epoch`. Before this call nothing is written, not even
  // an empty file, because copies of a stage that only replay the way to a position never begin.
  // `made`: if the run starts at a saved position, the decisions made before it in the epoch.
  // Throws Error(io / invalid_argument) if the file cannot be written, or holds something else.
  void begin(uint64_t epoch, const std::optional<EpochDecisions>& made);

  // Records a decision, replacing a previous one at the same place. It is written when a decision
  // at another place follows, or by complete(). `details`: an object whose members are added to the
  // line, or null.
  void note(uint64_t epoch, uint64_t after, uint64_t number, const Json& details);
  void complete();

 private:
  void write(const Json& row);

  const std::string path_;
  const char* const stage_;
  const char* const key_;
  std::optional<platform::OutputFile> file_;
  std::pair<uint64_t, uint64_t> place_;  // of the decision that may still be replaced
  std::string line_;                     // its text; "": none
};

// Reads a log into `decisions`. Each line first removes the known decisions at its place and all
// later ones; a line with "restored": true does nothing else. Within an epoch, places start at
// `first_place` and increase from line to line. They may start again only after a line with
// "restored", and the place may repeat only after one with "again". Throws Error(io) if there is no
// such file, and Error(corrupt_data / invalid_argument) that names the file and the line. `stage`
// is the stage that should have made the decisions.
void read_decision_log(const std::string& path, const char* stage, const char* key,
                       uint64_t first_place, DecisionsByEpoch& decisions);

// Warns if a replayed log has nothing for `epoch` and later: it ends before the run does, or
// nothing was decided there. Returns whether it warned.
bool warn_where_log_ends(const std::string& path, const char* stage, uint64_t epoch,
                         const DecisionsByEpoch& decisions);

// Decodes a list that holds, for each decision, the distance from the previous place and the
// number.
EpochDecisions decisions_of(const std::vector<uint64_t>& numbers);

// Decodes such a list as saved in a position by pack_numbers(). Throws Error(corrupt_data).
EpochDecisions unpack_decisions(const Json& saved, const char* stage);

}  // namespace etr::pipeline

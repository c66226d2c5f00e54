// What a stage decided by the clock, so that a run can be repeated: a number at some of the places in an epoch. A log has a line of
// JSON for each, a saved position a packed list.
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

// The log that a run writes, whose lines are {"epoch", "after": the place, `key`: the number}. A log outlives runs: one that was
// killed has logged decisions beyond the position where the next run begins, and that run may decide nothing at their places. So
// a run that finds lines of another one in the file, or begins at a saved position, first writes {"epoch", "after": 0,
// "restored": true}, which removes all from that epoch on, and what it knows of the epoch's decisions, with "again": true. The
// next line may have the place of such a one, and replaces it. Not thread safe.
class DecisionLog {
 public:
  DecisionLog(std::string path, const char* stage, const char* key);  // `path` "": none
  ~DecisionLog();  // completes it; a problem is a warning
  DecisionLog(const DecisionLog&) = delete;
  DecisionLog& operator=(const DecisionLog&) = delete;

  // The run begins in `epoch`. Until then nothing is written, not even a file: copies of a stage that only find the way to a
  // position never begin. `made`: where the run begins at a saved position, the epoch's decisions that were made again so far.
  void begin(uint64_t epoch, const std::optional<EpochDecisions>& made);

  // A decision, which replaces one for the same place. It is written when one for another place comes, or with complete().
  // `details`: an object whose members are written along, or null.
  void note(uint64_t epoch, uint64_t after, uint64_t number, const Json& details);
  void complete();

 private:
  void write(const Json& row);

  const std::string path_;
  const char* const stage_;
  const char* const key_;
  std::optional<platform::OutputFile> file_;
  std::pair<uint64_t, uint64_t> place_;  // of the decision that may still be replaced
  std::string line_;                     // "": there is none
};

// Adds the decisions of a log: each line first removes what is known of its place and of all later ones, and one with
// "restored": true does nothing else. Places rise from line to line, and begin at `first_place` in each epoch; only behind a line
// with "restored" they may begin again, and behind one with "again" the place may be the same. Throws Error(io) where there is
// no such file, and Error(corrupt_data / invalid_argument) that names the file and the line; `stage` is whose decisions they
// should be.
void read_decision_log(const std::string& path, const char* stage, const char* key,
                       uint64_t first_place, DecisionsByEpoch& decisions);

// A warning where a log that is replayed has nothing for `epoch` and what follows: it ends before the run does, or nothing was
// decided there. Returns whether it warned.
bool warn_where_log_ends(const std::string& path, const char* stage, uint64_t epoch,
                         const DecisionsByEpoch& decisions);

// From a list that has of each decision the step from the place before, and the number.
EpochDecisions decisions_of(const std::vector<uint64_t>& numbers);

// From what a position has saved of such a list with pack_numbers(). Error(corrupt_data).
EpochDecisions unpack_decisions(const Json& saved, const char* stage);

}  // namespace etr::pipeline

// What an echo node decided by the clock, so that a run can be repeated: how many echoes followed which fresh item; in the
// saved position, and in a log file.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/json_fwd.h"
#include "pipeline/decision_log.h"

namespace etr::echo {

// A decision is a number of echoes, given after `after` fresh items of an epoch and before the next. Thread safe: a position
// is saved while the node works.
class Decisions {
 public:
  // `log`: file that receives a line of JSON for each decision; "" for none. `replay`: such a file, whose
  // decisions are repeated, and no others are made. It is read when the first epoch starts.
  Decisions(std::string log, std::string replay)
      : replay_path_(std::move(replay)), log_(std::move(log), "echo", "echoes") {}

  void start_epoch(uint64_t epoch);
  void begin_run();  // from here on the log is written

  // So many fresh items have come: decisions before this place will not be made any more, and a restored run makes none there.
  void reach(uint64_t after);

  // The decision that is to be repeated here, if there is one.
  std::optional<uint64_t> due(uint64_t after);
  // Whether decisions are still to be repeated here or further on: then none may be made.
  bool replaying(uint64_t after);

  // Notes a decision; one for the same place, which is the newest, is replaced. `details` go into the log.
  void note(uint64_t after, uint64_t echoes, const Json& details);
  void end_epoch();  // completes the log

  Json save(uint64_t epoch) const;
  void load(uint64_t epoch, const Json& saved);  // Error(corrupt_data)
  void forget_before(uint64_t epoch);

 private:
  // The same in two bytes each for the most part: an epoch may have millions.
  struct Packed {
    std::vector<uint8_t> bytes;  // of all but the newest: steps between places, and echoes
    uint64_t before = 0;         // the place of the newest but one
    std::optional<std::pair<uint64_t, uint64_t>> newest;
    uint64_t reached = 0;  // saved as a place without echoes

    void note(uint64_t after, uint64_t echoes);
    std::vector<uint64_t> numbers() const;
  };

  void warn_where_replay_ends();

  const std::string replay_path_;
  mutable std::mutex mutex_;
  uint64_t epoch_ = 0;
  std::map<uint64_t, Packed> made_;  // by epoch
  pipeline::DecisionsByEpoch replay_;
  bool replay_read_ = false, restored_ = false;
  bool runs_ = false, warned_ = false;  // copies that only find the way to a position do not run
  pipeline::DecisionLog log_;
};

}  // namespace etr::echo

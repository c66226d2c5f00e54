// The time-dependent decisions of an echo node, so that a run can be repeated: how many echoes
// followed which fresh item. They are stored in the saved position and in a log file.
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

// A decision is a number of echoes, emitted after `after` fresh items of a pass and before the
// next. The bits of `after` from kPassShift on hold the number of the pass. Thread safe, because a
// position is saved while the node works.
class Decisions {
 public:
  // `log`: file that gets a line of JSON per decision; "": none. `replay`: such a file, whose
  // decisions are repeated, and no others are made; "": none. It is read when the first epoch
  // starts.
  Decisions(std::string log, std::string replay)
      : replay_path_(std::move(replay)), log_(std::move(log), "echo", "echoes") {}

  void start_epoch(uint64_t epoch);
  void begin_run();  // from now on the log is written

  // Records that `after` fresh items have arrived. No more decisions will be made at earlier
  // places, so a restored run must not make any there either.
  void reach(uint64_t after);

  // Returns the decision to be repeated here, if any.
  std::optional<uint64_t> due(uint64_t after);
  // Returns whether decisions are still to be repeated here or later. If so, none may be made.
  bool replaying(uint64_t after);

  std::string source() const;  // of the decisions that are repeated, for errors

  // Records a decision. Replaces one at the same place, which can only be the newest. `details` are
  // added to the log.
  void note(uint64_t after, uint64_t echoes, const Json& details);
  void end_pass();  // completes the log

  Json save(uint64_t epoch) const;
  void load(uint64_t epoch, const Json& saved);  // Error(corrupt_data)
  void forget_before(uint64_t epoch);

 private:
  // Decisions in mostly two bytes each, since an epoch may have millions.
  struct Packed {
    std::vector<uint8_t> bytes;  // all but the newest: distances between places, and echoes
    uint64_t before = 0;         // place of the second newest
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
  bool runs_ = false, warned_ = false;  // runs_: not a copy that only replays the way to a position
  pipeline::DecisionLog log_;
};

}  // namespace etr::echo

// What an echo node decided by the clock, so that a run can be repeated: in the saved position, and in a
// log file.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "core/platform_files.h"

namespace etr::echo {

// Each decision is a number, made after `after` fresh items of an epoch. Thread safe: a position is saved
// while the node works.
class Decisions {
 public:
  // `log`: file that receives a line of JSON for each decision; "" for none. `replay`: such a file, whose
  // decisions are repeated, and no others are made. Files are opened at the first use.
  Decisions(std::string log, std::string replay)
      : log_path_(std::move(log)), replay_path_(std::move(replay)) {}

  void start_epoch(uint64_t epoch);

  // The decision that is to be repeated here, if there is one.
  std::optional<uint64_t> due(uint64_t after);
  // Whether decisions are still to be repeated here or further on: then none may be made.
  bool replaying(uint64_t after);

  // Notes a decision; one for the same place is replaced. `details` go into the log.
  void note(uint64_t after, uint64_t value, const Json& details);
  void end_epoch();  // completes the log

  Json save(uint64_t epoch) const;
  void load(uint64_t epoch, const Json& saved);  // Error(corrupt_data)
  void forget_before(uint64_t epoch);

 private:
  using Made = std::map<uint64_t, uint64_t>;  // by place

  void read_replay();
  void write_line();

  const std::string log_path_, replay_path_;
  mutable std::mutex mutex_;
  uint64_t epoch_ = 0;
  std::map<uint64_t, Made> made_, replay_;  // by epoch
  bool replay_read_ = false;
  std::optional<platform::OutputFile> log_;
  std::string line_;  // of the newest decision; written when it can no longer change
};

}  // namespace etr::echo

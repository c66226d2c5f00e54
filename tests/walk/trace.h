// What the walk has called: the latest calls, those that have not returned, and counts.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>

namespace walk {

// A set of statuses.
using Codes = uint32_t;
constexpr Codes code(int32_t status) { return 1u << (1 - status); }

std::string name_of(int32_t status);
std::string names_of(Codes codes);

// Written by all threads of the walk. A failure prints the seed and the latest calls, and ends the
// process: threads may be in the library, so that nothing can be taken down in order.
class Trace {
 public:
  // `repeat` is the command that walks the same way again. A call may last for `patience_s`.
  Trace(std::string repeat, double patience_s)
      : repeat_(std::move(repeat)), patience_s_(patience_s) {}

  // Returns the call's number.
  uint64_t begin(const char* function, std::string detail);
  void end(uint64_t number, int32_t status);
  // Of a call that returns no status.
  void end(uint64_t number) { end(number, 0); }

  [[noreturn]] void fail(const std::string& why);
  // Prints without taking a lock that the crashed thread may hold.
  void print_after_crash();
  // Fails if a call has lasted for too long.
  void check_patience();

  // Those of the thread that walks.
  uint64_t calls() const;
  void print_counts() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Call {
    uint64_t number = 0;
    uint64_t thread = 0;
    const char* function = "";
    std::string detail;
    Clock::time_point began;
    bool returned = false;
    int32_t status = 0;
  };
  static constexpr size_t kLatest = 60;

  void print() const;
  static void print(const Call& call);

  const std::string repeat_;
  const double patience_s_;
  mutable std::mutex mutex_;
  uint64_t calls_ = 0, calls_of_walk_ = 0;
  std::deque<Call> latest_;
  std::map<uint64_t, Call> open_;  // have not returned, by number
  struct Count {
    uint64_t made = 0, succeeded = 0;
  };
  std::map<std::string, Count> by_function_;
  std::map<int32_t, uint64_t> by_status_;
};

}  // namespace walk

// The state of one rank in its helper: the current call, which ranks are there, and the verdict
// when something fails.
#pragma once

#include <gloo/context.h>

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/platform_process.h"
#include "exchange/engines/gloo/notices.h"
#include "exchange/engines/verdict.h"

namespace etr::exchange {

// Thread-safe. A verdict is final: the helper reports it to the library and to the other ranks,
// then the process ends.
class Member {
 public:
  using Deadline = platform::Deadline;

  Member(std::shared_ptr<gloo::Context> context, platform::Channel& library);

  void begin(const Call& call);  // the library has made this call
  void check_left();             // ends with a verdict if the call needs a rank that has left
  void finish();                 // the call is done
  Deadline due() const;          // the deadline of the current call
  // If the current call is overdue, asks the other ranks where they are, and ends with a verdict on
  // those that have not begun it.
  void expire();

  // Reports that Gloo failed: waits for a better verdict, else ends with this one.
  void broken(const std::string& why);
  void abort(const std::string& reason);
  // Waits until the others have left as well, then ends the process.
  void leave();

  [[noreturn]] void end(const Failure& failure);

 private:
  void heard(int rank, const Notice& notice);
  void silent(int rank, const std::string& why);
  Notice notice(NoticeKind kind) const;
  bool needs(int rank) const;

  const std::shared_ptr<gloo::Context> context_;
  platform::Channel& library_;
  Notices notices_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Call> call_;
  Deadline due_ = Deadline::max();
  uint64_t calls_ = 0, collectives_ = 0;
  std::map<int, uint64_t> left_;  // the number of collective calls before each rank left
  std::set<int> lost_;
  std::map<int, Notice> answers_;
  bool leaving_ = false;
  std::mutex verdict_;  // the first verdict takes it and never releases it
};

}  // namespace etr::exchange

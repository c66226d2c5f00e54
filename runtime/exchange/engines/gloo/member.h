// A rank of the group, as its helper sees it: what goes on, who is there, and the verdict when something fails.
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

// Any thread. A verdict is final: the library and the other ranks are told who is missing, and the process ends.
class Member {
 public:
  using Deadline = platform::Deadline;

  Member(std::shared_ptr<gloo::Context> context, platform::Channel& library);

  void begin(const Call& call);  // a call of the library
  void check_left();             // a verdict where it needs a rank that has left
  void finish();                 // it is done
  Deadline due() const;          // of the call that goes on
  void
  expire();  // asks the others where they are, if it is due: a verdict on those who are not at this call

  void broken(
      const std::string& why);  // Gloo has failed: the verdict of those who know why, or this
  void abort(const std::string& reason);
  void leave();  // waits until the others have left as well, and ends the process

  [[noreturn]] void end(const Failure& failure);

 private:
  void heard(int rank, const Notice& notice);
  void silent(int rank, const std::string& why);
  Notice notice(NoticeKind kind) const;
  bool needs(int rank) const;
  void wait_for_better_verdict();

  const std::shared_ptr<gloo::Context> context_;
  platform::Channel& library_;
  Notices notices_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Call> call_;
  Deadline due_ = Deadline::max();
  uint64_t calls_ = 0, collectives_ = 0;
  std::map<int, uint64_t> left_;  // after which operation of all ranks
  std::set<int> lost_;
  std::map<int, Notice> answers_;
  bool leaving_ = false;
  std::mutex verdict_;  // taken once, for good
};

}  // namespace etr::exchange

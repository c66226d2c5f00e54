// Starts, calls and ends a helper process (helper.h).
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/platform_process.h"
#include "exchange/helper_protocol.h"
#include "exchange/meeting.h"
#include "exchange/shared_pool.h"

namespace etr::exchange {

struct HelperPlace;

class HelperProcess {
 public:
  using Deadline = platform::Deadline;

  // Starts the program, which joins the session of `meeting`. Throws if this attempt fails:
  // Error(cancelled) if another rank gave it up.
  HelperProcess(const HelperPlace& place, Meeting& meeting, Deadline deadline);

  SharedPool& memory() { return memory_; }  // shared with the helper

  // Has the helper perform the call. Throws the error that the helper reports, or RankLost if the
  // helper is gone.
  void call(const Call& call, std::span<const uint64_t> sizes);

  void check_owner() const;  // Error(state) in a child of fork()

  void abort(const std::string& reason);  // any thread; does nothing in a child of fork()
  bool leave(Deadline deadline);          // returns whether all ranks left before the deadline

 private:
  void start(const HelperPlace& place);
  void join(Meeting& meeting, Deadline deadline, bool& ready);
  void relay(Meeting& meeting, platform::Frame& frame, bool& ready);
  // Receives the next frame. Throws if the helper has failed.
  platform::Channel::Outcome receive(platform::Frame& frame, Deadline deadline);

  const int rank_;
  const std::string program_;
  const int64_t owner_;  // the process that made this; a child of fork() must not use it
  SharedPool memory_;
  platform::Channel channel_;
  std::unique_ptr<platform::Child> child_;
  std::optional<std::string> wanted_;  // the rendezvous key that the helper waits for
  std::exception_ptr ended_;  // an error after the group formed, for the first call to throw
  bool heard_ = false;        // whether the helper has sent anything
};

}  // namespace etr::exchange

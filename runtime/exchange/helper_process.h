// A helper (helper.h) as the library sees it: started, asked, ended.
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

  // Starts the program and has it join the session of `meeting`. Throws where this attempt has failed, Error(cancelled) where
  // another rank gave it up.
  HelperProcess(const HelperPlace& place, Meeting& meeting, Deadline deadline);

  SharedPool& memory() { return memory_; }  // what the helper sees

  // Has the call done; throws what the helper says, or that it is gone.
  void call(const Call& call, std::span<const uint64_t> sizes);

  void check_owner() const;  // Error(state) in a child of fork()

  void abort(const std::string& reason);  // any thread; nothing in a child of fork()
  bool leave(Deadline deadline);          // whether all ranks have left before the deadline

 private:
  void start(const HelperPlace& place);
  void join(Meeting& meeting, Deadline deadline, bool& ready);
  void relay(Meeting& meeting, platform::Frame& frame, bool& ready);
  // The next frame; throws where the helper has failed.
  platform::Channel::Outcome receive(platform::Frame& frame, Deadline deadline);

  const int rank_;
  const std::string program_;
  const int64_t owner_;  // the process: a child of fork() has no part in it
  SharedPool memory_;
  platform::Channel channel_;
  std::unique_ptr<platform::Child> child_;
  std::optional<std::string> wanted_;  // the key of the rendezvous that the helper waits for
  std::exception_ptr ended_;           // why the group ended as soon as it stood
  bool heard_ = false;                 // whether the helper has said anything
};

}  // namespace etr::exchange

// What helpers tell each other beside the calls of the library.
#pragma once

#include <gloo/context.h>

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "exchange/helper_protocol.h"

namespace etr::exchange {

enum class NoticeKind : uint32_t {
  ask = 1,  // which operation are you at?
  answer,   // at this
  failed,   // the group has ended, for this reason
  leave,    // my library is done with the group, after this operation
};

struct Notice {
  NoticeKind kind;
  Operation operation;  // what goes on here; 0: nothing
  uint64_t collective;  // how many operations of all ranks have begun here
  uint64_t count;
  Failure failure;
};

// A receive is pending from every peer all the time. Gloo takes no notice of a connection that breaks while it writes
// (it swallows EPIPE and ECONNRESET), but such a receive fails at once.
class Notices {
 public:
  using Heard = std::function<void(int rank, const Notice&)>;
  using Silent = std::function<void(int rank, const std::string& why)>;  // the connection is gone

  explicit Notices(std::shared_ptr<gloo::Context> context) : context_(std::move(context)) {}

  void watch(Heard heard, Silent silent);  // on a thread for each peer, until the process ends
  void tell(int rank, const Notice& notice);
  void tell_all(const Notice& notice);
  void flush(std::chrono::milliseconds patience);  // waits until what was told is on its way

 private:
  struct Sent {
    Notice notice;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  };

  const std::shared_ptr<gloo::Context> context_;
  std::mutex mutex_;
  std::list<Sent> sent_;  // kept: a frozen peer takes them later, or never
};

}  // namespace etr::exchange

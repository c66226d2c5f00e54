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

#include "exchange/engines/verdict.h"

namespace etr::exchange {

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

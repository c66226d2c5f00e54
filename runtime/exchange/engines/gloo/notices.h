// Messages that helpers send each other outside the calls of the library.
#pragma once

#include <gloo/context.h>

#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "exchange/engines/verdict.h"

namespace etr::exchange {

// A receive from every peer is always pending. When a connection breaks, Gloo's writes do not fail
// (it ignores EPIPE and ECONNRESET), but such a receive fails at once.
class Notices {
 public:
  using Heard = std::function<void(int rank, const Notice&)>;
  using Silent = std::function<void(int rank, const std::string& why)>;  // the connection is gone

  explicit Notices(std::shared_ptr<gloo::Context> context) : context_(std::move(context)) {}

  void watch(Heard heard, Silent silent);  // one thread for each peer, until the process ends
  void send(int rank, const Notice& notice);
  void tell_all(const Notice& notice);
  // Waits until the sent notices are on their way. Those to `lost` ranks may never be.
  void flush(std::chrono::milliseconds patience, std::span<const int> lost = {});

 private:
  struct Sent {
    int rank;
    Notice notice;
    std::unique_ptr<gloo::transport::UnboundBuffer> buffer;
  };

  const std::shared_ptr<gloo::Context> context_;
  std::mutex mutex_;
  std::list<Sent> sent_;  // kept, because a frozen peer receives them late or never
};

}  // namespace etr::exchange

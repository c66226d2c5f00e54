// Messages that are on their way while the device computes: a thread that sends or receives them one after another.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <thread>

#include "exchange/group.h"

namespace etr::parallel {

// Owns its end of a group, which nobody else uses.
class Courier {
 public:
  // `on_failure` is told, on the courier's thread, why a message could not be sent or received; those behind it are not tried.
  Courier(exchange::Group group, std::function<void(const std::string& reason)> on_failure);
  ~Courier();  // gives up what has not been sent or received
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  // Return at once; the memory is in use until wait() has returned. Messages are numbered from 1 on.
  uint64_t send(std::span<const std::byte> data, int to, uint32_t tag);
  uint64_t receive(std::span<std::byte> data, int from, uint32_t tag);

  uint64_t begun() const;      // the number of the last one
  void wait(uint64_t number);  // until that one is done; throws what has failed

  void abort(const std::string& reason) { group_.abort(reason); }

 private:
  uint64_t post(std::function<void()> job);
  void run();

  exchange::Group group_;
  const std::function<void(const std::string&)> on_failure_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  uint64_t begun_ = 0, done_ = 0;
  std::exception_ptr failed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace etr::parallel

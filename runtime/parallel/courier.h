// A thread that sends or receives messages one after another while the device computes.
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

// Owns its end of a group, which nothing else uses.
class Courier {
 public:
  // `on_failure` is called on the courier's thread with the reason why a message failed. Later
  // messages are not attempted.
  Courier(exchange::Group group, std::function<void(const std::string& reason)> on_failure);
  ~Courier();  // drops messages that have not been sent or received
  Courier(const Courier&) = delete;
  Courier& operator=(const Courier&) = delete;

  // Both return at once; the memory is in use until wait() returns. Messages are numbered from 1.
  uint64_t send(std::span<const std::byte> data, int to, uint32_t tag);
  uint64_t receive(std::span<std::byte> data, int from, uint32_t tag);

  uint64_t begun() const;      // the number of the latest message
  void wait(uint64_t number);  // waits until that message is done; throws if it failed

  void abort(const std::string& reason) { group_.abort(reason); }

 private:
  uint64_t post(std::function<void()> job);
  void run();
  std::exception_ptr failure_of(const std::function<void()>& job);

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

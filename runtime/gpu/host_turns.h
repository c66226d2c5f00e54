// The thread on which recordings with host turns go their way, one after another; a device has one.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace etr::gpu {

class HostTurns {
 public:
  HostTurns() = default;
  ~HostTurns();  // after the last job
  HostTurns(const HostTurns&) = delete;
  HostTurns& operator=(const HostTurns&) = delete;

  // Runs `job`, which does not throw, after those before it. Starts the thread with the first one: Error(out_of_memory)
  // where it cannot be had.
  void post(std::function<void()> job);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace etr::gpu

// The thread that runs recordings with host turns, one after another. Each device has one.
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
  ~HostTurns();  // waits for the last job
  HostTurns(const HostTurns&) = delete;
  HostTurns& operator=(const HostTurns&) = delete;

  // Queues `job`, which must not throw. Jobs run in order. The first call starts the thread and
  // throws Error(out_of_memory) if that fails.
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

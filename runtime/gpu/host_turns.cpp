#include "gpu/host_turns.h"

#include <utility>

#include "core/start_thread.h"

namespace etr::gpu {

HostTurns::~HostTurns() {
  if (!thread_.joinable()) return;
  {
    std::scoped_lock lock(mutex_);
    over_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void HostTurns::post(std::function<void()> job) {
  std::scoped_lock lock(mutex_);
  if (!thread_.joinable())
    thread_ =
        start_thread("a thread for the host's turns", "how many devices train", [this] { run(); });
  jobs_.push_back(std::move(job));
  changed_.notify_one();
}

void HostTurns::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return over_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace etr::gpu

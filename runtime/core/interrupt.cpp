#include "core/interrupt.h"

namespace etr {

void Interrupt::stop() {
  std::scoped_lock lock(mutex_);
  stopped_ = true;
  if (event_) event_->signal();
  changed_.notify_all();
}

bool Interrupt::sleep_until(std::chrono::steady_clock::time_point due) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_until(lock, due, [&] { return stopped_.load(); });
}

int Interrupt::descriptor() const {
  std::scoped_lock lock(mutex_);
  if (!event_) {
    event_.emplace();
    if (stopped_) event_->signal();
  }
  return event_->descriptor();
}

}  // namespace etr

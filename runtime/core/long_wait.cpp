#include "core/long_wait.h"

#include <chrono>
#include <utility>

#include "core/log.h"
#include "core/start_thread.h"

namespace etr {

LongWait::LongWait(std::string text) {
  if (text.empty()) return;
  thread_ = start_thread("a thread that tells of a long wait", "the number of ranks",
                         [this, text = std::move(text)] {
                           constexpr std::chrono::seconds kLong(3);
                           std::unique_lock lock(mutex_);
                           if (changed_.wait_for(lock, kLong, [this] { return over_; })) return;
                           try_log_line(LogLevel::warning, {text.c_str()});
                         });
}

LongWait::~LongWait() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace etr

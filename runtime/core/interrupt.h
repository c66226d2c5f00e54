// A stop signal that ends waits.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

#include "core/platform_files.h"

namespace etr {

// Thread safe.
class Interrupt {
 public:
  void stop();
  bool stopped() const { return stopped_.load(); }  // lock-free: checked for every sample

  // Sleeps until `due`. Returns false if stopped earlier.
  bool sleep_until(std::chrono::steady_clock::time_point due);

  // A descriptor for poll() that is readable after stop(). Created by the first call, because few
  // users need it. Throws Error(io).
  int descriptor() const;

 private:
  mutable std::mutex mutex_;  // keeps a sleeper from missing stop()
  std::condition_variable changed_;
  std::atomic<bool> stopped_{false};
  mutable std::optional<platform::Event> event_;
};

}  // namespace etr

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
  bool stopped() const { return stopped_.load(); }  // asked for every sample: takes no lock

  // Sleeps until `due`; false when stopped before.
  bool sleep_until(std::chrono::steady_clock::time_point due);

  // For poll(): readable from stop() on. Made at the first call, which few need; Error(io).
  int descriptor() const;

 private:
  mutable std::mutex mutex_;  // orders stop() against a sleeper that is about to wait
  std::condition_variable changed_;
  std::atomic<bool> stopped_{false};
  mutable std::optional<platform::Event> event_;
};

}  // namespace etr

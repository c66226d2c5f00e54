// Waits for effects of other threads.
#pragma once

#include <chrono>
#include <thread>

namespace etr::test {

// Polls until `holds()` is true. Returns false after five minutes, and the test should fail.
template <typename Condition>
bool eventually(Condition&& holds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace etr::test

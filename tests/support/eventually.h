// Waiting for what other threads will bring about.
#pragma once

#include <chrono>
#include <thread>

namespace etr::test {

// Asks until `holds()` is true; false after five minutes, for a test that is about to fail.
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

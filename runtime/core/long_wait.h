// A wait that may take long says what it waits for: whoever looks on would take the program for frozen.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace etr {

// Logs `text`, as a warning, once the object has lived for a few seconds. "" logs nothing.
class LongWait {
 public:
  explicit LongWait(std::string text);
  ~LongWait();
  LongWait(const LongWait&) = delete;
  LongWait& operator=(const LongWait&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace etr

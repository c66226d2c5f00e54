// Reports long waits, so that a waiting program does not look frozen.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace etr {

// Logs `text` as a warning if the object is still alive after three seconds. "" logs nothing.
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

// The library's log lines, for languages whose code must not run on the thread that logs: it may
// hold locks that a thread of the interpreter waits for. The lines wait in a queue, which a thread
// of the language reads.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "echotrain/echotrain.hpp"

namespace echotrain::facade {

struct LogLine {
  bool valid = false;  // false: there is none
  int level = 0;       // ETR_LOG_DEBUG to ETR_LOG_ERROR
  int subject = 0;     // ETR_LOG_ABOUT_OTHER and so on
  std::string message;
};

class LogQueue {
 public:
  // Sends the process's log lines here.
  static void open() {
    set_log_hook([](LogLevel level, LogSubject subject, const char* message) {
      queue().push({true, static_cast<int>(level), static_cast<int>(subject), message});
    });
  }
  // Returns the oldest line and waits for one if necessary; after close(), it does not wait.
  static LogLine next() { return queue().pop(); }
  // Ends waiting, now and in later calls; lines that are left can still be read.
  static void close() {
    const std::lock_guard<std::mutex> lock(queue().mutex_);
    queue().closed_ = true;
    queue().changed_.notify_all();
  }

 private:
  static constexpr size_t kMostLines = 4096;

  static LogQueue& queue() {
    static auto* const the_queue = new LogQueue;  // never destroyed: threads log during exit
    return *the_queue;
  }
  void push(LogLine line) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (lines_.size() >= kMostLines) {
      ++dropped_;
      return;
    }
    if (dropped_ > 0)
      lines_.push_back({true, ETR_LOG_WARNING, ETR_LOG_ABOUT_OTHER,
                        std::to_string(std::exchange(dropped_, 0)) +
                            " log lines were dropped here, because more came than were read"});
    lines_.push_back(std::move(line));
    changed_.notify_one();
  }
  LogLine pop() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !lines_.empty(); });
    if (lines_.empty()) return {};
    LogLine out = std::move(lines_.front());
    lines_.pop_front();
    return out;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<LogLine> lines_;
  size_t dropped_ = 0;
  bool closed_ = false;
};

}  // namespace echotrain::facade

// A limit on the memory that several threads use for a short time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

namespace etr {

// Threads that take memory wait until all of them together stay within `shared` bytes. A thread
// that is alone may take up to `most`. A thread that holds a share must not wait for another thread
// that may be waiting here. Thread safe.
class ByteGate {
 public:
  class Hold {
   public:
    Hold() = default;
    Hold(ByteGate& gate, int64_t bytes) : gate_(&gate), bytes_(bytes) { gate.enter(bytes); }
    Hold(Hold&& other) noexcept
        : gate_(std::exchange(other.gate_, nullptr)), bytes_(other.bytes_) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold() {
      if (gate_) gate_->leave(bytes_);
    }

   private:
    ByteGate* gate_ = nullptr;
    int64_t bytes_ = 0;
  };

  ByteGate(int64_t shared, int64_t most) : shared_(shared), most_(most) {}

  int64_t most() const { return most_; }  // the caller rejects larger requests

 private:
  void enter(int64_t bytes) {
    std::unique_lock lock(mutex_);
    left_.wait(lock, [&] { return taken_ == 0 || taken_ + bytes <= shared_; });
    taken_ += bytes;
  }
  void leave(int64_t bytes) {
    std::scoped_lock lock(mutex_);
    taken_ -= bytes;
    left_.notify_all();
  }

  const int64_t shared_, most_;
  std::mutex mutex_;
  std::condition_variable left_;
  int64_t taken_ = 0;
};

}  // namespace etr

// Who is in a handle: convention 4 of echotrain.h, kept for all handles in one place.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/error.h"
#include "core/platform.h"

namespace etr::capi {

enum class Access {
  alone,     // changes the handle, or uses what serves one thread
  reading,   // beside others that read
  visiting,  // beside everything else: "any thread"
};

// A member of every handle. Entering and leaving cost an atomic operation each.
class Occupancy {
 public:
  // Throws Error(state) where the handle is in use by others; `name` is what the caller calls it.
  void enter(Access access, const char* name);

  // True: the handle was destroyed meanwhile, and this was its last user, who ends it.
  bool leave(Access access) noexcept {
    return word_.fetch_sub(unit(access)) == unit(access) + kDestroyed;
  }

  // True: nobody is in the handle, so that the caller ends it; otherwise its last user does.
  bool destroy() noexcept { return word_.fetch_or(kDestroyed) == 0; }

 private:
  // The word: who is in alone, whether the handle was destroyed, and counts of the others.
  static constexpr uint64_t kAlone = 1, kDestroyed = 2, kReader = 4, kVisitor = uint64_t{1} << 32;
  static constexpr uint64_t kReaders = kVisitor - kReader;

  static constexpr uint64_t unit(Access access) {
    return access == Access::alone ? kAlone : access == Access::reading ? kReader : kVisitor;
  }
  static const void* this_thread() {
    static thread_local char mine;
    return &mine;
  }

  std::atomic<uint64_t> word_{0};
  std::atomic<const void*> alone_{nullptr};  // the thread that is, for messages
};

inline void Occupancy::enter(Access access, const char* name) {
  const uint64_t excluded = access == Access::alone     ? kAlone | kReaders
                            : access == Access::reading ? kAlone
                                                        : 0;
  uint64_t seen = 0;
  while (!word_.compare_exchange_weak(seen, seen + unit(access))) {
    if (seen & kDestroyed) fail(Code::state, "the ", name, " was destroyed");
    if (!(seen & excluded)) continue;
    if (!(seen & kAlone))
      fail(Code::state, "the ", name, " is being read by another call, and cannot be changed now");
    if (alone_.load() == this_thread())
      fail(Code::state, "the ", name,
           " is in use by the call that has called this function of the program");
    fail(Code::state, "the ", name,
         " is in use by another thread; a handle serves one thread at a time");
  }
  if (access == Access::alone) alone_.store(this_thread(), std::memory_order_relaxed);
}

// The handles that one call of the API has entered; it leaves them when it ends. guarded() makes it, required() enters.
// Meanwhile the thread cannot be cancelled: that would unwind it by force, through code that does not expect it.
class Call {
 public:
  Call() : outer_(current()) {
    if (!outer_) cancellable_ = platform::set_cancellable(false);
    current() = this;
  }
  ~Call() {
    current() = outer_;
    while (count_ > 0) {
      const Entered& last = entered_[--count_];
      if (last.occupancy->leave(last.access)) last.end(last.handle);
    }
    if (!outer_ && cancellable_) platform::set_cancellable(true);
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Of this thread, which is in one.
  static Call*& current() {
    static thread_local Call* innermost = nullptr;
    return innermost;
  }

  // `end` ends the handle, should it be destroyed meanwhile. What this call has entered already it enters once.
  void enter(Occupancy& occupancy, Access access, const char* name, void* handle,
             void (*end)(void*)) {
    for (size_t i = 0; i < count_; ++i)
      if (entered_[i].occupancy == &occupancy) return;
    if (count_ == entered_.size()) fail(Code::internal, "a call with too many handles");
    occupancy.enter(access, name);
    entered_[count_++] = {&occupancy, access, handle, end};
  }

 private:
  struct Entered {
    Occupancy* occupancy;
    Access access;
    void* handle;
    void (*end)(void*);
  };
  Call* outer_;
  bool cancellable_ = false;  // the thread, before its outermost call
  size_t count_ = 0;
  std::array<Entered, 6> entered_;
};

}  // namespace etr::capi

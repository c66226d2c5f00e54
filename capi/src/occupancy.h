// Tracks which calls are using a handle, and so enforces convention 4 of echotrain.h for all
// handles.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/error.h"
#include "core/platform.h"

namespace etr::capi {

enum class Access {
  alone,     // exclusive: changes the handle, or uses parts that serve one thread only
  reading,   // shared with other readers
  visiting,  // shared with every other call: "any thread"
};

// A member of every handle. Entering and leaving cost one atomic operation each.
class Occupancy {
 public:
  // Throws Error(state) if other calls use the handle in a way that excludes this access, or if it
  // was destroyed. Messages call the handle `name`.
  void enter(Access access, const char* name);

  // Returns true if the handle was destroyed meanwhile and this was its last user, which must free
  // it.
  bool leave(Access access) noexcept {
    return word_.fetch_sub(unit(access)) == unit(access) + kDestroyed;
  }

  // Returns true if nobody is using the handle, so that the caller must free it. Otherwise the last
  // user does.
  bool destroy() noexcept { return word_.fetch_or(kDestroyed) == 0; }

  // For a caller that visits the handle: whether other calls are using it, too.
  bool has_others() const noexcept { return (word_.load() & ~kDestroyed) != kVisitor; }

  // After destroy(), when its caller or the last user has done what it had to: allows new calls.
  void reopen() noexcept { word_.fetch_and(~kDestroyed); }

 private:
  // The word has a bit for an exclusive user, a bit for `destroyed`, and counts of readers and
  // visitors.
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
  std::atomic<const void*> alone_{nullptr};  // the thread of the exclusive user, for messages
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

// The handles that one API call has entered; it leaves them when it ends. guarded() creates the
// Call, and required() enters handles. The thread cannot be cancelled meanwhile, because
// cancellation would unwind it by force, through code that does not expect that.
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

  // The innermost call on this thread; nullptr if there is none.
  static Call*& current() {
    static thread_local Call* innermost = nullptr;
    return innermost;
  }

  // Enters a handle, unless this call has entered it already. `end` frees the handle if it is
  // destroyed meanwhile.
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
  bool cancellable_ = false;  // whether the thread was, before its outermost call
  size_t count_ = 0;
  std::array<Entered, 6> entered_;
};

}  // namespace etr::capi

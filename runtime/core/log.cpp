#include "core/log.h"

#include <mutex>

#include "core/message.h"

namespace etr {
namespace {

struct HookSlot {
  std::mutex mutex;
  LogHook hook;
};

LogSubject& current_subject() {
  thread_local LogSubject subject = LogSubject::other;
  return subject;
}

HookSlot& slot() {
  static auto* the_slot = new HookSlot;  // never destroyed: worker threads may log during exit
  return *the_slot;
}

}  // namespace

void set_log_hook(LogHook hook) {
  // The former hook goes with `hook`, after the lock: its destructor is the program's, and may log
  // or set a hook.
  std::scoped_lock lock(slot().mutex);
  std::swap(slot().hook, hook);
}

void log_line(LogLevel level, const std::string& message, LogSubject subject) {
  std::scoped_lock lock(slot().mutex);
  if (!slot().hook) return;
  current_subject() = subject;
  slot().hook(level, as_message(message).c_str());
  current_subject() = LogSubject::other;
}

void try_log_line(LogLevel level, std::initializer_list<const char*> parts) noexcept {
  try {
    std::string line;
    for (const char* part : parts) line += part;
    log_line(level, line);
  } catch (...) {
  }
}

LogSubject log_subject() { return current_subject(); }

}  // namespace etr

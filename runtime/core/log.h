// Log lines go to a hook that the host installs; without one they are dropped. The library itself
// never prints.
#pragma once

#include <functional>
#include <string>

namespace etr {

enum class LogLevel : int { debug = 0, info = 1, warning = 2, error = 3 };

using LogHook = std::function<void(LogLevel, const char* message)>;

// The one process-wide setting: log lines can arise before any handle exists. Thread safe. The hook
// runs on whichever thread logs and must not call back into the library.
void set_log_hook(LogHook hook);

// What a line is about, where programs treat it in its own way.
enum class LogSubject : int { other = 0, bad_record = 1, partition = 2 };

void log_line(LogLevel level, const std::string& message, LogSubject subject = LogSubject::other);

// Within the hook: of its line.
LogSubject log_subject();

}  // namespace etr

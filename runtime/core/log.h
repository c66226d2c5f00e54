// Log lines go to a hook that the host installs. Without a hook they are dropped: the library
// itself never prints.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>

namespace etr {

enum class LogLevel : int { debug = 0, info = 1, warning = 2, error = 3 };

using LogHook = std::function<void(LogLevel, const char* message)>;

// The hook is process-wide because log lines can occur before any handle exists. Thread safe. The
// hook runs on whichever thread logs and must not call back into the library; the destructor of one
// that was replaced may.
void set_log_hook(LogHook hook);

// The subject of a log line, for lines that programs handle specially.
enum class LogSubject : int { other = 0, bad_record = 1, partition = 2 };

void log_line(LogLevel level, const std::string& message, LogSubject subject = LogSubject::other);

// The same where nothing may be thrown, as in destructors: joins the parts. If there is no memory
// for the line, or the hook throws, the line is lost.
void try_log_line(LogLevel level, std::initializer_list<const char*> parts) noexcept;

// The subject of the current line. Only meaningful within the hook.
LogSubject log_subject();

}  // namespace etr

// Runs part of a test in a child process, for tests that set limits or send signals.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "support/sanitized.h"

namespace etr::test {

// Returns a number from /proc/self/status, in kB.
inline int64_t status_kb(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key)) return std::stoll(line.substr(line.find(':') + 1));
  return 0;
}

// Runs `body` in a forked child and returns its exit status; 99 if a signal ends it or it takes
// longer than five minutes.
template <typename Body>
int in_child(Body&& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(300);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

// Limits this process to its present memory plus `bytes`. No limit under a sanitizer, which needs
// far more memory itself.
inline bool limit_memory(int64_t bytes) {
  if (kSanitized) return true;
  const auto most = static_cast<rlim_t>(status_kb("VmData") * 1024 + bytes);
  const rlimit limit{most, most};
  return setrlimit(RLIMIT_DATA, &limit) == 0;
}

inline bool limit_files(rlim_t bytes) {
  const rlimit limit{bytes, bytes};
  return setrlimit(RLIMIT_FSIZE, &limit) == 0;
}

}  // namespace etr::test

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <utility>

#include "terminal.h"

namespace cli {
namespace {

int outside = -1;  // the original standard output, while it is silenced

}  // namespace

std::vector<std::string> words_of(int argc, char** argv) { return {argv + 1, argv + argc}; }

std::string as_word(const std::string& word) {
  if (!word.empty() && word.find_first_of(" \t\n&()[]{}^=;!'\"+,`~|<>*?$#%\\") == std::string::npos)
    return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

bool output_is_terminal() { return ::isatty(STDOUT_FILENO) != 0; }

bool errors_are_on_terminal() { return ::isatty(STDERR_FILENO) != 0; }

size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void silence_output() {
  if (outside >= 0) return;
  std::fflush(stdout);
  outside = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere < 0) {
    ::close(STDOUT_FILENO);
    return;
  }
  ::dup2(nowhere, STDOUT_FILENO);
  ::close(nowhere);
}

void restore_output() {
  if (outside < 0) return;
  std::fflush(stdout);
  ::dup2(outside, STDOUT_FILENO);
  ::close(std::exchange(outside, -1));
}

void end_with(const char* text, int status) noexcept {
  [[maybe_unused]] const ssize_t told = ::write(STDERR_FILENO, text, std::strlen(text));
  ::_exit(status);
}

struct SignalSetting::Former {
  struct sigaction interrupt {
  }, terminate{};
};

SignalSetting::SignalSetting(void (*handler)(int), bool stays)
    : former_(std::make_unique<Former>()) {
  struct sigaction action {};
  action.sa_handler = handler;
  if (!stays) action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, &former_->interrupt);
  ::sigaction(SIGTERM, &action, &former_->terminate);
}

SignalSetting::~SignalSetting() {
  ::sigaction(SIGINT, &former_->interrupt, nullptr);
  ::sigaction(SIGTERM, &former_->terminate, nullptr);
}

}  // namespace cli

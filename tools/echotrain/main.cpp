// echotrain: the command line, a thin layer over the C API.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <set>

#include "arguments.h"
#include "cli.h"
#include "console.h"
#include "help.h"

namespace {

// The command's name for the words that stand for one.
std::string command_name(const std::string& word) {
  if (word == "--help" || word == "-h") return "help";
  if (word == "--version" || word == "-V") return "version";
  return word;
}

int run(const std::vector<std::string>& words) {
  const cli::Command& command = cli::find_command(words.empty() ? "help" : command_name(words[0]));
  const cli::Arguments arguments(
      command, words.empty() ? words : std::vector<std::string>(words.begin() + 1, words.end()));
  if (arguments.help()) {
    std::fputs(cli::help_of(command).c_str(), stdout);
    return 0;
  }
  const int status = command.run(arguments);
  return words.empty() ? 2 : status;
}

// Bad records come again in every epoch and evaluation; the first few are shown, once each. Called from many threads.
bool is_news(const std::string& message) {
  static std::mutex mutex;
  static std::set<std::string> shown;
  constexpr size_t kMost = 20;
  if (message.rfind("bad record", 0) != 0) return true;
  const std::scoped_lock lock(mutex);
  if (shown.size() == kMost || !shown.insert(message).second) return false;
  if (shown.size() == kMost)
    std::fprintf(stderr, "echotrain: many bad records; further ones are counted and not shown\n");
  return true;
}

void print_log(void*, int32_t level, const char* message) {
  if (level < ETR_LOG_WARNING || !is_news(message)) return;
  const bool over_progress = ::isatty(STDERR_FILENO) && ::isatty(STDOUT_FILENO);
  std::fprintf(stderr, "%sechotrain: %s\n", over_progress ? "\r\033[K" : "", message);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit on files is an error with a name
  etr_set_log_hook(print_log, nullptr, nullptr);
  try {
    return run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const cli::Interrupted& interruption) {
    return cli::exit_status(interruption);
  } catch (const cli::UsageError& error) {
    std::fprintf(stderr, "echotrain: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "echotrain: %s\n", error.what());
    return 1;
  }
}

// echotrain: the command line, a thin layer over the C API.
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>

#include "arguments.h"
#include "cli.h"
#include "console.h"
#include "help.h"
#include "rank.h"
#include "terminal.h"
#include "warnings.h"

namespace {

// Returns the command's name for words that stand for one.
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

// Returns `status`, unless the output was lost, as on a full disk or a closed pipe.
int after_output(int status) {
  errno = 0;
  if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return status;
  std::fprintf(stderr, "echotrain: cannot write standard output: %s\n",
               errno ? std::strerror(errno) : "an earlier write has failed");
  return status ? status : 1;
}

void print_error(const std::exception& error) {
  std::fprintf(stderr, "%sechotrain: %s\n", cli::rank_prefix().c_str(), error.what());
}

}  // namespace

int main(int argc, char** argv) {
#ifdef SIGXFSZ
  std::signal(SIGXFSZ, SIG_IGN);  // writes beyond the file size limit then fail with an error
#endif
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // a log file gets each line at once, in order
  cli::print_warnings();
  try {
    return after_output(run(cli::words_of(argc, argv)));
  } catch (const cli::Interrupted& interruption) {
    // The first rank says for all how to continue the run.
    if (!cli::rank_prefix().empty()) return 128 + cli::interrupted();
    return cli::exit_status(interruption);
  } catch (const cli::Mistake& mistake) {
    if (cli::tells_mistakes()) print_error(mistake);
    return dynamic_cast<const cli::UsageError*>(&mistake) ? 2 : 1;
  } catch (const std::exception& error) {
    print_error(error);
    return 1;
  }
}

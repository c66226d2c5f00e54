#include "rank.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <thread>
#include <utility>

#include "cli.h"
#include "core/launcher_variables.h"
#include "job.h"

namespace cli {
namespace {

constexpr auto kFirstTells = std::chrono::seconds(3);

const std::optional<etr::Launch>& launch() {
  static const auto of_process = etr::launch_in(etr::variable_of_process);
  return of_process;
}

int outside = -1;  // the original standard output, while this rank leaves output to the first

void leave_output() {
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

void take_output() {
  if (outside < 0) return;
  std::fflush(stdout);
  ::dup2(outside, STDOUT_FILENO);
  ::close(std::exchange(outside, -1));
}

bool is_first() { return !launch() || launch()->rank == 0; }

// 'echotrain launch' drops repeated messages; so may another script that sets its variables.
bool is_script() { return launch() && launch()->variables == &etr::kLaunchers[0]; }

}  // namespace

std::string rank_prefix() {
  return is_first() ? "" : "rank " + std::to_string(launch()->rank) + ": ";
}

void leave_output_to_first_rank() {
  if (!is_first() || etr::is_told_to_join(etr::variable_of_process)) leave_output();
}

void follow_first_rank(etr_run* run) {
  if (!launch()) return;  // started by hand, in its own terminal
  char* text = nullptr;
  check(etr_run_pipeline_stats(run, &text));
  const Json stats = Json::parse(take_string(text));
  if (stats.value("/ranks/rank"_json_pointer, int64_t{0}) == 0)
    take_output();
  else
    leave_output();
}

bool ended_by_launcher() { return is_script(); }

bool tells_mistakes() {
  if (is_first() || is_script()) return true;
  std::this_thread::sleep_for(kFirstTells);
  // Slurm lets the others run on. One on each machine may have its own files.
  return launch()->local_rank <= 0;
}

}  // namespace cli

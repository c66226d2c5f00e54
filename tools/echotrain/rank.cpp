#include "rank.h"

#include <thread>

#include "cli.h"
#include "core/launcher_variables.h"
#include "job.h"
#include "terminal.h"

namespace cli {
namespace {

constexpr auto kFirstTells = std::chrono::seconds(3);

const std::optional<etr::Launch>& launch() {
  static const auto of_process = etr::launch_in(etr::variable_of_process);
  return of_process;
}

bool is_first() { return !launch() || launch()->rank == 0; }

// 'echotrain launch' drops repeated messages; so may another script that sets its variables.
bool is_script() { return launch() && launch()->variables == &etr::kLaunchers[0]; }

}  // namespace

std::string rank_prefix() {
  return is_first() ? "" : "rank " + std::to_string(launch()->rank) + ": ";
}

void leave_output_to_first_rank() {
  if (!is_first() || etr::is_told_to_join(etr::variable_of_process)) silence_output();
}

void follow_first_rank(etr_run* run) {
  if (!launch()) return;  // started by hand, in its own terminal
  char* text = nullptr;
  check(etr_run_pipeline_stats(run, &text));
  const Json stats = Json::parse(take_string(text));
  if (stats.value("/ranks/rank"_json_pointer, int64_t{0}) == 0)
    restore_output();
  else
    silence_output();
}

bool ended_by_launcher() { return is_script(); }

bool tells_mistakes() {
  if (is_first() || is_script()) return true;
  std::this_thread::sleep_for(kFirstTells);
  // Slurm lets the others run on. One on each machine may have its own files.
  return launch()->local_rank <= 0;
}

}  // namespace cli

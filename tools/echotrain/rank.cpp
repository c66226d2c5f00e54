#include "rank.h"

#include <cstdio>
#include <cstdlib>
#include <thread>

#include "core/launcher_variables.h"

namespace cli {
namespace {

constexpr auto kFirstTells = std::chrono::seconds(3);

const std::optional<etr::Launch>& launch() {
  static const auto of_process = etr::launch_in([](const char* name) { return std::getenv(name); });
  return of_process;
}

bool is_first() { return !launch() || launch()->rank == 0; }

// 'echotrain launch' tells nothing twice by itself; so may another script that sets its variables.
bool is_script() { return launch() && launch()->variables == &etr::kLaunchers[0]; }

}  // namespace

std::string rank_prefix() {
  return is_first() ? "" : "rank " + std::to_string(launch()->rank) + ": ";
}

void leave_output_to_first_rank() {
  if (is_first()) return;
  if (!std::freopen("/dev/null", "w", stdout)) std::fclose(stdout);
}

bool tells_mistakes() {
  if (is_first() || is_script()) return true;
  std::this_thread::sleep_for(kFirstTells);
  // Slurm lets the others run. One on each machine may have files of its own.
  return launch()->local_rank <= 0;
}

}  // namespace cli

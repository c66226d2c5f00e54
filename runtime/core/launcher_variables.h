// The environment variables in which launchers pass a process its rank. Depends only on the
// standard library, because the command line includes this header too.
#pragma once

#include <charconv>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string_view>

namespace etr {

struct LauncherVariables {
  const char* launcher;
  const char *rank, *size;
  const char* local_rank;  // rank on this machine; "": the launcher does not set it
  const char* step;  // must be set, else the variables describe a batch script; "": not needed
};

// In order of precedence: the first complete set is used.
inline constexpr LauncherVariables kLaunchers[] = {
    {"a script", "ECHOTRAIN_RANK", "ECHOTRAIN_SIZE", "", ""},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", ""},
    {"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", ""},
    {"MPICH's mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", ""},
    // A shell within an allocation also has SLURM_NTASKS, but there it counts the tasks of the
    // whole allocation. Only a job step sets SLURM_STEP_NUM_TASKS.
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_ID"},
    {"srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_ID"},
};

// This process's place in its group, according to a launcher's variables.
struct Launch {
  const LauncherVariables* variables;
  int rank, size;
  int local_rank;  // -1: unknown
};

using ReadVariable = std::function<const char*(const char* name)>;  // nullptr: not set

inline const char* variable_of_process(const char* name) { return std::getenv(name); }

// Returns nothing if no launcher started this process or its variables are not numbers.
inline std::optional<Launch> launch_in(const ReadVariable& read) {
  const auto said = [&](const char* name) -> std::string_view {
    const char* const value = *name ? read(name) : nullptr;
    return value ? value : "";
  };
  const auto number = [&](const char* name) -> std::optional<int> {
    const std::string_view text = said(name);
    int out = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (text.empty() || error != std::errc() || end != text.data() + text.size() || out < 0)
      return std::nullopt;
    return out;
  };
  for (const LauncherVariables& of : kLaunchers) {
    if (*of.step && said(of.step).empty()) continue;
    const auto rank = number(of.rank), size = number(of.size);
    if (rank && size && *rank < *size)
      return Launch{&of, *rank, *size, number(of.local_rank).value_or(-1)};
  }
  return std::nullopt;
}

// Returns whether this process should join a running job (like the job option parallel.join).
inline bool is_told_to_join(const ReadVariable& read) {
  const char* const value = read("ECHOTRAIN_JOIN");
  return value && std::string_view(value) == "1";
}

}  // namespace etr

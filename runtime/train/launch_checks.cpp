#include "train/launch_checks.h"

#include <string>

#include "core/error.h"
#include "core/launcher_variables.h"
#include "train/membership.h"

namespace etr::train {
namespace {

// Returns network_option() with its value, for errors: "parallel.host is 'a'".
std::string said_of_network(const Options& parallel) {
  const std::string option = network_option(parallel);
  if (option.empty()) return "";
  return cat("parallel.", option, " is '", parallel.string(option.c_str()), "'");
}

void check_number(const Options& parallel, int launched) {
  const int64_t rank = parallel.integer("rank"), size = parallel.integer("size");
  if (rank >= 0 && size == 0)
    fail(Code::invalid_argument, "parallel.rank is ", rank,
         ", and parallel.size is missing: set both, or neither under a launcher");
  if (rank < 0 && size > 0 && launched == 0)
    fail(Code::invalid_argument, "parallel.size is ", size,
         ", and neither parallel.rank nor a launcher says which of these ranks this is: set "
         "parallel.rank, or use 'echotrain launch', mpirun, torchrun or srun");
  if (rank < 0 && size > 0 && size != launched)
    fail(Code::invalid_argument, "parallel.size is ", size, ", and the launcher has started ",
         launched, ": leave parallel.size out, or set parallel.rank as well");
}

}  // namespace

std::string network_option(const Options& parallel) {
  for (const char* option : {"rendezvous", "host", "interface"})
    if (!parallel.string(option).empty()) return option;
  return "";
}

bool is_alone(const Options& parallel) {
  return parallel.integer("size") == 1 && parallel.integer("rank") < 0 &&
         !parallel.boolean("elastic");
}

void check_processes(const Job& job) {
  const auto launch = launch_in(variable_of_process);
  if (!job.parallel() && launch && launch->size > 1)
    fail(Code::invalid_argument, launch->variables->launcher, " has started ", launch->size,
         " processes (", launch->variables->size,
         "), but the job has no section 'parallel': each would train the whole job alone, "
         "and they would overwrite each other's files. To train together, add the "
         "section: --set 'parallel={}'. If each is meant to train alone, say so with "
         "--set parallel.size=1, and give each an output.dir of its own");
  if (!job.parallel() || uses_servers(job) || job.parallel()->strings("devices").empty()) return;
  const bool several = job.parallel()->integer("rank") >= 0 || launch;
  if (const std::string said = said_of_network(*job.parallel()); !several && !said.empty())
    fail(Code::invalid_argument, said,
         ", which is used only between processes, but this process has all of "
         "parallel.devices: leave it out, or set parallel.rank and parallel.size in each "
         "process");
}

void fail_without_rank(const Options& parallel) {
  check_number(parallel, 0);
  const std::string half = exchange::half_said_by_launcher(variable_of_process);
  fail(Code::invalid_argument,
       "parallel: no launcher has started this process, and the job does not say which rank it is",
       half.empty() ? "" : " (" + half + ")",
       ": run it with 'echotrain launch', mpirun, torchrun or srun, or set rank, size and "
       "rendezvous, or devices of this process");
}

void check_world(const Options& parallel, const exchange::World& processes) {
  check_number(parallel, processes.size);
  const bool is_mpi = processes.engine == "mpi" || processes.engine.starts_with("mpi-");
  if (const std::string said = said_of_network(parallel); is_mpi && !said.empty())
    fail(Code::invalid_argument, said, ", which the engine '", processes.engine,
         "' does not use, since mpirun connects its processes: leave it out, or set "
         "parallel.engine to gloo");
  if (is_told_to_join(variable_of_process) && !parallel.boolean("elastic"))
    fail(Code::invalid_argument,
         "ECHOTRAIN_JOIN is 1, but the job is not elastic, so no rank can join it: unset "
         "the variable, or set parallel.elastic to true on all ranks");
  const int64_t least = parallel.integer("min_ranks");
  const bool joins = parallel.boolean("join") || is_told_to_join(variable_of_process);
  if (parallel.boolean("elastic") && !joins && least > processes.size)
    fail(Code::invalid_argument, "parallel.min_ranks is ", least, ", and the run begins with ",
         processes.size, " ranks: start more, or lower it");
}

}  // namespace etr::train

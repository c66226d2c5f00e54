#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "core/most_ranks.h"
#include "exchange/world.h"

namespace etr::exchange {

namespace {

class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  std::string text(const char* name) const {
    const char* const value = environment_(name);
    return value ? value : "";
  }
  bool has(const std::vector<const char*>& names) const {
    for (const char* name : names)
      if (text(name).empty()) return false;
    return true;
  }
  int number(const char* name) const {
    const std::string value = text(name);
    int out = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
    if (error != std::errc() || end != value.data() + value.size() || out < 0)
      fail(Code::invalid_argument, "the environment variable ", name, " is '", value,
           "', which is not a number of ranks");
    return out;
  }

  // Returns a world with the rank and the size that these two variables hold.
  World world(const char* rank, const char* size) const {
    World out;
    out.rank = number(rank);
    out.size = number(size);
    if (out.size > kMostRanks)  // rank 0 looks for each of them
      fail(Code::invalid_argument, "the environment variable ", size, " is ", out.size,
           ", and a group has at most ", kMostRanks, " ranks");
    out.interface = text("GLOO_SOCKET_IFNAME");  // PyTorch reads it, too
    if (out.rank >= out.size)
      fail(Code::invalid_argument, "the environment variable ", rank, " is ", out.rank, ", and ",
           size, " is ", out.size, ": ranks are numbered from 0 to the size minus 1");
    return out;
  }

 private:
  const Environment& environment_;
};

// Returns the next higher port, since the launcher's own store may listen on the given one.
std::string next_port(const Variables& variables, const char* name) {
  const int port = variables.number(name);
  if (port < 1 || port > 65534)
    fail(Code::invalid_argument, "the environment variable ", name, " is ", port,
         ", which is not a port below 65535");
  return std::to_string(port + 1);
}

// Returns the first host of a list such as "node[03-07,9],login".
std::string first_host(const std::string& list) {
  const size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const size_t end = list.find_first_of(",-]", bracket);
  const size_t close = list.find(']', bracket);
  if (end == std::string::npos || close == std::string::npos) return list.substr(0, bracket);
  const size_t after = list.find_first_of(",[", close);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1) +
         list.substr(close + 1, after == std::string::npos ? after : after - close - 1);
}

World of_echotrain(const Variables& v) {
  World out = v.world("ECHOTRAIN_RANK", "ECHOTRAIN_SIZE");
  out.rendezvous = v.text("ECHOTRAIN_RENDEZVOUS");
  if (v.has({"ECHOTRAIN_ENGINE"})) out.engine = v.text("ECHOTRAIN_ENGINE");
  if (v.has({"ECHOTRAIN_GROUP"})) out.name = v.text("ECHOTRAIN_GROUP");
  return out;
}

// torchrun, and launchers that set the same variables: Kubernetes' training operator, Ray,
// Lightning.
World of_torchrun(const Variables& v) {
  World out = v.world("RANK", "WORLD_SIZE");
  out.rendezvous = "tcp://" + v.text("MASTER_ADDR") + ":" + next_port(v, "MASTER_PORT");
  if (v.has({"TORCHELASTIC_RUN_ID"}))
    out.name = v.text("TORCHELASTIC_RUN_ID") + "." + v.text("TORCHELASTIC_RESTART_COUNT");
  return out;
}

World of_open_mpi(const Variables& v) {
  World out = v.world("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE");
  out.engine = "mpi-openmpi";
  return out;
}

World of_mpich(const Variables& v) {
  World out = v.world("PMI_RANK", "PMI_SIZE");
  out.engine = "mpi-mpich";
  return out;
}

// Derives the port from the job's number, so that different jobs on one node use different ports.
World of_slurm(const Variables& v) {
  World out = v.world("SLURM_PROCID",
                      v.has({"SLURM_STEP_NUM_TASKS"}) ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS");
  const std::string nodes =
      v.text(v.has({"SLURM_STEP_NODELIST"}) ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST");
  const int job = v.has({"SLURM_JOB_ID"}) ? v.number("SLURM_JOB_ID") : 0;
  out.rendezvous = "tcp://" + first_host(nodes) + ":" + std::to_string(20000 + job % 10000);
  out.name = "job" + std::to_string(job) + "." + v.text("SLURM_STEP_ID") + "." +
             v.text("SLURM_RESTART_COUNT");
  return out;
}

struct Launcher {
  std::vector<const char*> variables;  // all the variables that it sets, rank and size first
  World (*world)(const Variables& v);
};

// All but Slurm, whose batch scripts also have rank variables.
const std::vector<Launcher>& launchers() {
  static const std::vector<Launcher> all{
      {{"ECHOTRAIN_RANK", "ECHOTRAIN_SIZE"}, of_echotrain},
      {{"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}, of_torchrun},
      {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, of_open_mpi},
      {{"PMI_RANK", "PMI_SIZE"}, of_mpich}};
  return all;
}

}  // namespace

std::optional<World> world_from(const Environment& environment) {
  const Variables v(environment);
  for (const Launcher& launcher : launchers())
    if (v.has(launcher.variables)) return launcher.world(v);
  // A batch script has the first two variables as well, but is not a rank.
  if (v.has({"SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_ID"})) return of_slurm(v);
  return std::nullopt;
}

std::string half_said_by_launcher(const Environment& environment) {
  const Variables v(environment);
  for (const auto& [variables, world] : launchers()) {
    // MASTER_ADDR and MASTER_PORT alone mean nothing: some clusters set them for every job.
    if (!v.has({variables[0]}) && !v.has({variables[1]})) continue;
    std::string there, missing;
    for (const char* name : variables) {
      std::string& list = v.has({name}) ? there : missing;
      list += (list.empty() ? "" : ", ") + std::string(name);
    }
    if (!missing.empty()) return cat("the environment has ", there, ", and lacks ", missing);
  }
  if (v.has({"SLURM_PROCID", "SLURM_JOB_ID"}) && !v.has({"SLURM_STEP_ID"}))
    return "this is Slurm's batch script or shell, in which 'srun' starts the ranks";
  return "";
}

}  // namespace etr::exchange

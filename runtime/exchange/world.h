// Which group a process belongs to, as a job, a program or a launcher says.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/options.h"
#include "exchange/group.h"
#include "exchange/store.h"

namespace etr::exchange {

struct World {
  std::string engine =
      "gloo";  // gloo, mpi, mpi-openmpi, mpi-mpich, or the path of a plug-in library
  int rank = 0;
  int size = 1;
  std::string rendezvous;  // where ranks find each other: file:FOLDER, or tcp://HOST:PORT (Gloo)
  std::string name = "world";  // of the group; another attempt, or another run, has another name
  std::string host;            // the address on which this rank listens; "": see open_group()
  std::string interface;       // or the network interface
  double timeout_s = kDefaultTimeout;
  std::string engines;  // the folder of helpers and plug-ins; "": see engine_file()
};

extern const Schema kWorldSchema;

// From {"engine": "gloo", "rank": 0, "size": 2, ...}. Error(invalid_argument).
World world_of(const Json& spec);

using Environment = std::function<const char*(const char* name)>;

// What the launcher says: EchoTrain's own variables, those of torchrun, of Open MPI, of MPICH, of Slurm, in this order. Nothing
// where no launcher has started this process. Error(invalid_argument) where its variables make no sense. Reads only `environment`.
std::optional<World> world_from(const Environment& environment);

// If world_from() gives nothing: which of a launcher's variables are set and which are missing, for an error; "" if none is
// set.
std::string half_said_by_launcher(const Environment& environment);

// Joins the group. Gloo listens on the given host or interface; without one on the address from which the rendezvous's host is
// reached, and on the loopback interface alone where the rendezvous is a folder. A group of one rank needs no engine.
Group open_group(const World& world);

// The store of a Gloo world's rendezvous; with `serve` this process serves that of tcp://.
std::unique_ptr<Store> open_store(const World& world, bool serve);

// The path of a helper or plug-in: in world.engines, else in the folder that ECHOTRAIN_ENGINES names, else in `echotrain` beside the
// library. Error(not_found) that says what to install.
std::string engine_file(const World& world, const std::string& name, const std::string& package);

}  // namespace etr::exchange

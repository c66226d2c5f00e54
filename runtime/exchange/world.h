// The group that a process belongs to, as given by a job, a program or a launcher.
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
  // gloo, mpi, mpi-openmpi, mpi-mpich, or the path of a plug-in library.
  std::string engine = "gloo";
  int rank = 0;
  int size = 1;
  std::string rendezvous;      // where the ranks meet: file:FOLDER, or tcp://HOST:PORT (Gloo)
  std::string name = "world";  // of the group; unique to each run and each attempt
  std::string host;            // the address on which this rank listens; "": see open_group()
  std::string interface;       // or the network interface
  double timeout_s = kDefaultTimeout;
  std::string engines;  // the folder of helpers and plug-ins; "": see engine_file()
};

extern const Schema kWorldSchema;

// From {"engine": "gloo", "rank": 0, "size": 2, ...}. Error(invalid_argument).
World world_of(const Json& spec);

using Environment = std::function<const char*(const char* name)>;

// Reads the world from the launcher's variables: EchoTrain's own, then those of torchrun, Open MPI,
// MPICH and Slurm, in this order. Returns nothing if no launcher started this process. Reads only
// `environment`. Error(invalid_argument) if the variables make no sense.
std::optional<World> world_from(const Environment& environment);

// Explains why world_from() returned nothing: says which of a launcher's variables are set and
// which are missing. Returns "" if none is set.
std::string half_said_by_launcher(const Environment& environment);

// Joins the group. Gloo listens on the given host or interface. Without one, it listens on the
// address from which it reaches the rendezvous host, or only on the loopback interface if the
// rendezvous is a folder. A group of one rank needs no engine.
Group open_group(const World& world);

// Opens the store of a Gloo world's rendezvous. With `serve`, this process serves the store if the
// rendezvous is tcp://.
std::unique_ptr<Store> open_store(const World& world, bool serve);

// Returns the path of a helper or plug-in. Looks in world.engines if set, else in the folder of
// ECHOTRAIN_ENGINES, else in `echotrain` beside the library. Error(not_found) says what to install.
std::string engine_file(const World& world, const std::string& name, const std::string& package);

}  // namespace etr::exchange

#include "exchange/plugin.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>

#include "core/json.h"
#include "core/platform.h"

namespace etr::exchange {

namespace {

// Plug-ins stay loaded, because MPI does not survive unloading.
etr_engine_open_function open_function(const std::string& path) {
  static std::mutex mutex;
  static auto& libraries = *new std::map<std::string, std::unique_ptr<platform::Library>>;
  const std::lock_guard lock(mutex);
  auto& library = libraries[path];
  if (!library) {
    const char* const names[] = {path.c_str()};
    library = std::make_unique<platform::Library>(names);
  }
  void* const symbol = library->symbol("etr_engine_open");
  if (!symbol)
    fail(Code::not_found, "'", path,
         "' is not an engine: it does not export etr_engine_open (echotrain/engine.h)");
  return reinterpret_cast<etr_engine_open_function>(symbol);
}

// Returns the MPI engine whose launcher started this process.
std::string mpi_of_launcher() {
  if (std::getenv("OMPI_COMM_WORLD_SIZE")) return "mpi-openmpi";
  if (std::getenv("PMI_SIZE")) return "mpi-mpich";
  fail(Code::invalid_argument,
       "the engine 'mpi', but neither Open MPI's nor MPICH's launcher has started this process: "
       "start it with "
       "mpirun, or name the engine (mpi-openmpi, mpi-mpich)");
}

std::string path_of(const World& world) {
  if (world.engine.find('/') != std::string::npos) return world.engine;
  const std::string engine = world.engine == "mpi" ? mpi_of_launcher() : world.engine;
  const std::string file = "libechotrain-" + engine + ".so";
  if (engine == "mpi-openmpi") return engine_file(world, file, "Open MPI (libopenmpi-dev)");
  if (engine == "mpi-mpich") return engine_file(world, file, "MPICH (libmpich-dev)");
  fail(Code::invalid_argument, "no engine '", engine,
       "': there are gloo, mpi, mpi-openmpi, mpi-mpich, and paths of plug-in libraries");
}

}  // namespace

Group open_plugin(const World& world) {
  const auto open = open_function(path_of(world));
  const Json spec{
      {"rank", world.rank},        {"size", world.size}, {"rendezvous", world.rendezvous},
      {"name", world.name},        {"host", world.host}, {"interface", world.interface},
      {"timeout", world.timeout_s}};
  etr_engine engine{};
  engine.struct_size = sizeof engine;
  etr_engine_error error{};
  error.struct_size = sizeof error;
  const int32_t status = open(spec.dump().c_str(), &engine, &error);
  if (status != 0) raise(status, error);
  return Group(engine, world.timeout_s);
}

}  // namespace etr::exchange

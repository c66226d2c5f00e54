#include "exchange/world.h"

#include <algorithm>
#include <filesystem>

#include "core/json.h"
#include "core/platform.h"
#include "core/platform_process.h"
#include "exchange/helper.h"
#include "exchange/local.h"
#include "exchange/plugin.h"
#include "exchange/store.h"

namespace etr::exchange {

namespace {

constexpr OptionSpec kOptions[] = {
    {"engine", OptionType::string, "\"gloo\"",
     "transport: gloo, mpi (the launcher's implementation), mpi-openmpi, mpi-mpich, or the path of "
     "a plug-in library"},
    {"rank", OptionType::integer, nullptr, "index of this process in the group, from 0", 0, 1e6},
    {"size", OptionType::integer, nullptr, "number of ranks in the group", 1, 1e6},
    {"rendezvous", OptionType::string, "\"\"",
     "where ranks find each other (gloo): file:FOLDER, a folder that all of them can see, or "
     "tcp://HOST:PORT, served by rank 0"},
    {"name", OptionType::string, "\"world\"",
     "name of the group in the rendezvous; must differ between runs and attempts"},
    {"host", OptionType::string, "\"\"", "address or host name on which this rank listens (gloo)"},
    {"interface", OptionType::string, "\"\"",
     "network interface on which this rank listens, such as eth0, instead of 'host' (gloo)"},
    {"timeout", OptionType::number, "60",
     "time after which a rank that does not answer counts as lost", 0.01, 1e6, "seconds"},
    {"engines", OptionType::string, "\"\"", "folder that holds the engines (transports)", 0, 0,
     "path"},
};

constexpr const char* kFile = "file:";
constexpr const char* kTcp = "tcp://";

}  // namespace

const Schema kWorldSchema = kOptions;

World world_of(const Json& spec) {
  const Options options(kWorldSchema, "the group", spec);
  World world;
  world.engine = options.string("engine");
  world.rank = static_cast<int>(options.integer("rank"));
  world.size = static_cast<int>(options.integer("size"));
  world.rendezvous = options.string("rendezvous");
  world.name = options.string("name");
  world.host = options.string("host");
  world.interface = options.string("interface");
  world.timeout_s = options.number("timeout");
  world.engines = options.string("engines");
  return world;
}

std::string engine_file(const World& world, const std::string& name, const std::string& package) {
  std::string folder = world.engines;
  if (folder.empty()) folder = platform::variable("ECHOTRAIN_ENGINES");
  if (folder.empty()) folder = platform::code_directory() + "/echotrain";
  std::string path = folder + "/" + name;
  if (std::filesystem::exists(path)) return path;
  fail(Code::not_found, "the engine '", world.engine, "' is not installed: '", path,
       "' does not exist. Install ", package,
       " before EchoTrain is built, which then builds it, or name the folder that has it in the "
       "variable ECHOTRAIN_ENGINES (or a group's option 'engines')");
}

namespace {

void check(const World& world) {
  if (world.size < 1 || world.rank < 0 || world.rank >= world.size)
    fail(Code::invalid_argument, "rank ", world.rank, " of a group of ", world.size,
         ": ranks are numbered from 0 to the size minus 1");
  const auto plain = [](char c) { return static_cast<unsigned char>(c) > ' '; };
  if (world.name.empty() || world.name.size() > 100 ||
      !std::all_of(world.name.begin(), world.name.end(), plain))
    fail(Code::invalid_argument, "the group's name '", world.name,
         "': it has 1 to 100 bytes, and no spaces");
  if (!world.host.empty() && !world.interface.empty())
    fail(Code::invalid_argument, "a group has a host ('", world.host, "') or an interface ('",
         world.interface, "') to listen on, not both");
}

std::optional<std::string> after(const std::string& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return std::nullopt;
  return text.substr(prefix.size());
}

Group open_gloo(const World& world) {
  HelperPlace place;
  place.program = engine_file(world, "echotrain-gloo", "Gloo (libgloo-dev)");
  place.name = world.name;
  place.rank = world.rank, place.size = world.size;
  place.timeout_s = world.timeout_s;
  place.is_interface = !world.interface.empty();
  place.address = place.is_interface ? world.interface : world.host;
  place.store = open_store(world, world.rank == 0);
  const auto* const server = dynamic_cast<const TcpStore*>(place.store.get());
  if (place.address.empty()) place.address = server ? server->own_address() : "127.0.0.1";
  try {
    return helper_group(place);
  } catch (const RankLost& lost) {
    if (!server || server->obstacle().empty()) throw;
    throw RankLost(cat(lost.what(), ". ", server->obstacle()), lost.missing());
  }
}

}  // namespace

std::unique_ptr<Store> open_store(const World& world, bool serve) {
  if (const auto folder = after(world.rendezvous, kFile); folder && !folder->empty())
    return file_store(*folder);
  if (const auto address = after(world.rendezvous, kTcp))
    return tcp_store(*address, serve, world.timeout_s);
  if (world.rendezvous.empty())
    fail(Code::invalid_argument, "rank ", world.rank, " of ", world.size,
         " has no rendezvous, where the ranks find each other. Set it (in a job: "
         "parallel.rendezvous) to file:FOLDER, a folder that all ranks see, or to tcp://HOST:PORT, "
         "an address of rank 0's machine; or start the ranks with a launcher that says it: "
         "'echotrain launch', torchrun or srun");
  fail(Code::invalid_argument, "the rendezvous '", world.rendezvous,
       "' is neither file:FOLDER nor tcp://HOST:PORT");
}

Group open_group(const World& world) {
  check(world);
  if (world.engine == "gloo" && world.size == 1)
    return std::move(local_groups(1, world.timeout_s).front());
  return world.engine == "gloo" ? open_gloo(world) : open_plugin(world);
}

}  // namespace etr::exchange

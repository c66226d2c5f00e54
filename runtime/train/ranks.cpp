#include "train/ranks.h"

#include <array>
#include <cstdlib>
#include <optional>
#include <span>

#include "core/error.h"
#include "core/json.h"
#include "core/parse_json.h"
#include "exchange/world.h"
#include "parallel/data_parallel.h"
#include "parallel/local_sgd.h"
#include "train/membership.h"

namespace etr::train {
namespace {

std::span<std::byte> bytes_of(std::string& text) {
  return std::as_writable_bytes(std::span(text.data(), text.size()));
}

}  // namespace

std::unique_ptr<parallel::Sharing> Ranks::sharing(const gpu::DevicePtr& device,
                                                  const Options* options) {
  if (options && options->string("algorithm") != "synchronous" &&
      options->string("algorithm") != "diloco")
    fail(Code::invalid_argument,
         "parallel: workers of a parameter server are no ranks of a group, "
         "and this one was given to the trainer with the algorithm '",
         options->string("algorithm"), "'");
  parallel::DataParallelOptions of_gradients;
  if (options && options->string("algorithm") == "diloco") {
    return std::make_unique<parallel::LocalSgd>(
        group_.duplicate(),
        parallel::LocalSgdOptions{options->integer("outer_every"), options->number("outer_rate"),
                                  options->number("outer_momentum")});
  }
  if (options) {
    of_gradients.bucket_mb = options->number("bucket_mb");
    of_gradients.sync_batch_norm = options->boolean("sync_batch_norm");
    of_gradients.compression = parallel::compression_named(options->string("compression"));
  }
  return std::make_unique<parallel::DataParallel>(group_.duplicate(), device, of_gradients);
}

void Ranks::be_patient() {
  constexpr double kForEver = 1e6;  // seconds
  group_.set_timeout(kForEver);
}

Ranks::Outlook Ranks::agree(const Outlook& mine) {
  if (size() == 1) return mine;
  std::array<int64_t, 4> any{mine.stops, mine.is_over, mine.waits, mine.yields};
  group_.all_reduce(std::span<int64_t>(any), exchange::Reduction::max);
  return {any[0] > 0, any[1] > 0, any[2] > 0, any[3] > 0};
}

Ranks::Share Ranks::agree(const Share& mine) {
  if (size() == 1) return mine;
  const auto& [samples, fresh, echoed] = mine.counts;
  std::array<int64_t, 4> sums{mine.ends_epoch, samples, fresh, echoed};
  group_.all_reduce(std::span<int64_t>(sums));
  return {sums[0] > 0, {sums[1], sums[2], sums[3]}};
}

EvalMetrics Ranks::evaluate(const std::function<EvalMetrics()>& evaluate) {
  EvalMetrics mine;
  std::optional<Error> stopped;
  try {
    mine = evaluate();
  } catch (const Error& error) {
    if (error.code() != Code::cancelled) throw;
    stopped = error;
  }
  const auto samples = static_cast<double>(mine.samples);
  std::array<double, 4> sums{stopped ? 1.0 : 0.0, samples, mine.loss * samples,
                             mine.accuracy * samples};
  group_.all_reduce(std::span<double>(sums));
  if (stopped) throw Error(*stopped);
  if (sums[0] > 0) fail(Code::cancelled, "the evaluation was stopped on another rank");
  return {static_cast<int64_t>(sums[1]), sums[2] / sums[1], sums[3] / sums[1]};
}

uint64_t Ranks::share(uint64_t number) {
  group_.broadcast(std::as_writable_bytes(std::span(&number, 1)), 0);
  return number;
}

std::string Ranks::share(std::string text) {
  text.resize(share(text.size()));
  group_.broadcast(bytes_of(text), 0);
  return text;
}

std::vector<std::string> Ranks::gather(const std::string& text) {
  std::vector<uint64_t> sizes(static_cast<size_t>(size()));
  const uint64_t own = text.size();
  group_.all_gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(sizes)));
  uint64_t total = 0;
  for (const uint64_t bytes : sizes) total += bytes;
  std::string all(total, '\0');
  group_.all_gather(std::as_bytes(std::span(text)), sizes, bytes_of(all));
  std::vector<std::string> out;
  for (uint64_t at = 0; const uint64_t bytes : sizes) {
    out.push_back(all.substr(at, bytes));
    at += bytes;
  }
  return out;
}

checkpoint::Loaded Ranks::share(const std::function<checkpoint::Loaded()>& load) {
  checkpoint::Loaded loaded;
  Json contents;
  if (leads()) {
    loaded = load();
    contents = {{"step", loaded.step}, {"path", loaded.path}, {"files", Json::object()}};
    for (const auto& [name, bytes] : loaded.files) contents["files"][name] = bytes.size();
  }
  contents = parse_json(share(contents.dump()), "the first rank's checkpoint");
  loaded.step = contents["step"];
  loaded.path = contents["path"];
  for (const auto& [name, bytes] : contents["files"].items()) {
    loaded.files[name].resize(bytes);
    group_.broadcast(loaded.files[name], 0);
  }
  return loaded;
}

namespace {

std::optional<exchange::World> launched_world() {
  return exchange::world_from([](const char* name) { return std::getenv(name); });
}

bool says_rank(const Options& own) { return own.integer("rank") >= 0 && own.integer("size") > 0; }

}  // namespace

bool has_processes(const Job& job) {
  return job.parallel() && (says_rank(*job.parallel()) || launched_world());
}

exchange::World world_of(const Options& own) {
  exchange::World world = launched_world().value_or(exchange::World{.rank = -1, .size = 0});
  if (says_rank(own)) {
    world.rank = static_cast<int>(own.integer("rank"));
    world.size = static_cast<int>(own.integer("size"));
  }
  const auto take = [&](std::string& to, const char* option) {
    if (!own.string(option).empty()) to = own.string(option);
  };
  take(world.engine, "engine");
  take(world.rendezvous, "rendezvous");
  take(world.host, "host");
  take(world.interface, "interface");
  world.timeout_s = own.number("timeout");
  return world;
}

std::unique_ptr<Ranks> join_ranks(const Job& job, int device, int devices) {
  if (!job.parallel() || uses_servers(job)) return nullptr;
  const Options& own = *job.parallel();
  const bool has = has_processes(job);
  if (!has && !own.strings("devices").empty()) return nullptr;
  if (!has)
    fail(Code::invalid_argument,
         "parallel: no launcher has started this process, and the job does not say which rank it "
         "is: "
         "run it with 'echotrain launch', mpirun, torchrun or srun, or set rank, size and "
         "rendezvous, or devices of this process");
  exchange::World world = world_of(own);
  if (devices > 1 && world.engine != "gloo")
    fail(Code::unsupported, "parallel.devices names ", devices,
         " devices, each of which is a rank, and the engine '", world.engine,
         "' has one rank a process: use gloo (parallel.engine and parallel.rendezvous), or start a "
         "process for each device");
  world.rank = world.rank * devices + device;
  world.size *= devices;
  return std::make_unique<Ranks>(exchange::open_group(world));
}

}  // namespace etr::train

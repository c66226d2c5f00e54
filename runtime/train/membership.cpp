#include "train/membership.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "core/long_wait.h"
#include "exchange/world.h"
#include "parallel/downpour.h"
#include "parallel/elastic_averaging.h"
#include "server/door.h"
#include "server/message.h"
#include "train/algorithm.h"
#include "train/ranks.h"

namespace etr::train {
namespace {

bool waits(const Options& options) { return options.string("consistency") != "eventual"; }

// Pairs come and go, which MPI worlds cannot.
exchange::World world_for_pairs(const Options& options) {
  exchange::World world = world_of(options);
  if (options.string("engine").empty()) world.engine = "gloo";
  if (world.engine == "mpi" || world.engine.starts_with("mpi-"))
    fail(Code::invalid_argument,
         "parallel: workers of a parameter server come and go, which the "
         "engine '",
         world.engine, "' does not support: use gloo, and set a rendezvous");
  if (world.rendezvous.empty())
    fail(Code::invalid_argument,
         "parallel: servers and workers have no place to meet: run the job with 'echotrain launch "
         "--servers', or set parallel.rendezvous to tcp://HOST:PORT of the first server, or to "
         "file:FOLDER");
  return world;
}

// What a worker's own update adds to gradients would be lost at the next fetch.
void check_update(const Job& job) {
  const optim::UpdateSpec update(job.optimizer());
  const Json& options = update.options().json();
  const double decay = options.value("weight_decay", 0.0),
               end = job.schedule().value("weight_decay_end", 0.0);
  if (decay > 0 || end > 0)
    fail(Code::invalid_argument,
         "parallel: with downpour the servers update the weights, and they do not apply ",
         decay > 0 ? cat("optimizer.weight_decay, which is ", decay, " here")
                   : cat("schedule.weight_decay_end, which is ", end, " here"),
         ": set ", decay > 0 ? "optimizer.weight_decay=0" : "schedule.weight_decay_end=0",
         ", and parallel.server_weight_decay in its place");
}

}  // namespace

bool uses_servers(const Job& job) {
  return job.parallel() && has_servers(algorithm_of(*job.parallel()));
}

Membership::Membership(const Job& job, std::unique_ptr<server::Client> client, int parts)
    : options_(*job.parallel()),
      client_(std::move(client)),
      number_(client_->number()),
      parts_(parts) {}

Json Membership::part(Json pipeline) const {
  pipeline["rank"] = number_ % parts_;
  set_option(pipeline, pipeline::pipeline_schema(), "world_size", parts_);
  pipeline["seed"] = pipeline["seed"].get<uint64_t>() + static_cast<uint64_t>(number_ / parts_);
  return pipeline;
}

std::unique_ptr<parallel::Sharing> Membership::sharing(const gpu::DevicePtr& device, bool begins,
                                                       const std::atomic<bool>* stop) {
  const parallel::Worker::Manner manner{waits(options_), begins, stop};
  if (algorithm_of(options_) == Algorithm::elastic_averaging)
    return std::make_unique<parallel::ElasticAveraging>(
        std::move(client_),
        parallel::ElasticAveragingOptions{options_.integer("n_push"),
                                          options_.number("elastic_rate"), manner});
  return std::make_unique<parallel::Downpour>(
      std::move(client_), device,
      parallel::DownpourOptions{options_.integer("n_push"), options_.integer("n_fetch"), manner});
}

std::unique_ptr<Membership> join_servers(const Job& job) {
  if (!uses_servers(job)) return nullptr;
  const Options& options = *job.parallel();
  if (algorithm_of(options) == Algorithm::downpour) check_update(job);
  const exchange::World world = world_for_pairs(options);
  // Works without a rank, since the servers number workers.
  const int said = static_cast<int>(options.integer("size"));
  const int parts = said > 0 ? said : std::max(world.size, 1);
  const auto meet = [&](int shard) {
    server::Door door(world, shard, /*serves=*/false);
    return door.open(door.knock(), server::kWorkerRank);
  };
  const server::Pair::Name name{.number = world.rank,
                                .workers = static_cast<uint64_t>(parts),
                                .terms = shard_options(options).terms};
  const LongWait wait(cat("waits for the parameter server at ", world.rendezvous, ", for ",
                          world.timeout_s, " s at most; 'echotrain parameter-server' starts one"));
  auto client =
      std::make_unique<server::Client>(static_cast<int>(options.integer("servers")), meet, name);
  if (world.rank == 0 && client->number() != 0)
    log_line(LogLevel::warning,
             cat("this worker asked for the number 0 and is worker ", client->number(),
                 ", which writes no checkpoints: the servers have not yet lost the earlier worker "
                 "0. If that one has ended, start this one again after parallel.timeout, ",
                 world.timeout_s, " s"));
  return std::make_unique<Membership>(job, std::move(client), parts);
}

namespace {

// Options that the algorithm or the consistency does not use need not agree.
std::string terms_of(const Options& parallel) {
  std::vector<const char*> names{"algorithm", "consistency", "warm_start"};
  if (parallel.string("consistency") == "bounded") names.push_back("delay");
  if (algorithm_of(parallel) == Algorithm::downpour) {
    const bool adagrad = parallel.string("server_optimizer") == "adagrad";
    names.insert(names.end(), {"server_optimizer", "server_weight_decay",
                               adagrad ? "server_epsilon" : "server_momentum"});
  }
  std::string out;
  for (const char* name : names)
    out += cat("parallel.", name, " ", parallel.json()[name].dump(), "\n");
  return out;
}

}  // namespace

server::ShardOptions shard_options(const Options& parallel) {
  server::ShardOptions options;
  options.adagrad = parallel.string("server_optimizer") == "adagrad";
  options.epsilon = static_cast<float>(parallel.number("server_epsilon"));
  options.momentum = static_cast<float>(parallel.number("server_momentum"));
  options.weight_decay = static_cast<float>(parallel.number("server_weight_decay"));
  options.warm_start = static_cast<uint64_t>(parallel.integer("warm_start"));
  options.terms = terms_of(parallel);
  const std::string consistency = parallel.string("consistency");
  if (consistency == "sequential") options.delay = 0;
  if (consistency == "bounded") options.delay = static_cast<uint64_t>(parallel.integer("delay"));
  return options;
}

std::unique_ptr<server::Server> open_server(const Job& job, int shard) {
  if (!uses_servers(job))
    fail(Code::invalid_argument,
         "the job has no parameter server: set parallel.algorithm to downpour or easgd");
  const Options& options = *job.parallel();
  server::Place place{world_for_pairs(options), shard,
                      static_cast<int>(options.integer("servers"))};
  if (shard < 0 || shard >= place.shards)
    fail(Code::invalid_argument, "shard ", shard, " of ", place.shards,
         ": shards count from 0 to parallel.servers less one");
  return std::make_unique<server::Server>(shard_options(options), place);
}

}  // namespace etr::train

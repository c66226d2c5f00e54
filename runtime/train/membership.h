// How a job's workers join its parameter server, and how its shards are opened.
#pragma once

#include <atomic>
#include <memory>

#include "parallel/sharing.h"
#include "server/client.h"
#include "server/server.h"
#include "train/job.h"

namespace etr::train {

// Whether the job's algorithm is one with a parameter server.
bool uses_servers(const Job& job);

// A worker: it has a number, and its part of the data.
class Membership {
 public:
  Membership(const Job& job, std::unique_ptr<server::Client> client, int parts);

  bool leads() const { return number_ == 0; }  // evaluates, and writes the run's folder

  // Worker n of N takes the n-th of N parts; further workers take the same parts again, in another order.
  Json part(Json pipeline) const;

  // Once. `begins`, `stop`: see parallel::Worker.
  std::unique_ptr<parallel::Sharing> sharing(const gpu::DevicePtr& device, bool begins = true,
                                             const std::atomic<bool>* stop = nullptr);

 private:
  const Options options_;
  std::unique_ptr<server::Client> client_;
  const int number_, parts_;
};

// Joins all shards; nullptr where the job has none. RankLost that names the shard which does not answer.
std::unique_ptr<Membership> join_servers(const Job& job);

// Error(invalid_argument) where the job has no such shard.
std::unique_ptr<server::Server> open_server(const Job& job, int shard);

// With the terms that workers have to share.
server::ShardOptions shard_options(const Options& parallel);

}  // namespace etr::train

// How a job's workers join its parameter server, and how its shards are started.
#pragma once

#include <atomic>
#include <memory>

#include "parallel/sharing.h"
#include "server/client.h"
#include "server/server.h"
#include "train/job.h"

namespace etr::train {

// Returns whether the job's algorithm uses a parameter server.
bool uses_servers(const Job& job);

// A worker, with its number and its part of the data.
class Membership {
 public:
  Membership(const Job& job, std::unique_ptr<server::Client> client, int parts);

  bool leads() const { return number_ == 0; }  // evaluates, and writes the run's folder

  int parts() const { return parts_; }  // of the data
  // Worker n of N takes the n-th of N parts. Further workers take the same parts again, in another
  // order.
  Json part(Json pipeline) const;

  // Call it once. For `begins` and `stop` see parallel::Worker.
  std::unique_ptr<parallel::Sharing> sharing(const gpu::DevicePtr& device, bool begins = true,
                                             const std::atomic<bool>* stop = nullptr);

 private:
  const Options options_;
  std::unique_ptr<server::Client> client_;
  const int number_, parts_;
};

// Joins all shards. Returns nullptr if the job has none. RankLost names a shard that does not
// answer.
std::unique_ptr<Membership> join_servers(const Job& job);

// Error(invalid_argument) if the job has no such shard.
std::unique_ptr<server::Server> open_server(const Job& job, int shard);

// Includes the terms on which workers must agree.
server::ShardOptions shard_options(const Options& parallel);

}  // namespace etr::train

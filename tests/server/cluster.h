// Shards of a parameter server in this process, and what joins them.
#pragma once

#include <memory>
#include <vector>

#include "exchange/local.h"
#include "server/client.h"
#include "server/server.h"

namespace etr::test {

using server::Client;
using server::Pair;
using server::Server;
using server::ShardOptions;

constexpr double kTimeout = 20;  // seconds

class Cluster {
 public:
  explicit Cluster(int shards, const ShardOptions& options = {}, double timeout = kTimeout)
      : timeout_(timeout) {
    server::Place place;
    place.world.timeout_s = timeout;
    place.shards = shards;
    for (; place.shard < shards; ++place.shard)
      shards_.push_back(std::make_unique<Server>(options, place));
  }

  std::unique_ptr<Client> join(int wanted = -1) {
    std::vector<exchange::Group> ends;
    for (auto& shard : shards_) {
      auto pair = exchange::local_groups(2, timeout_);
      shard->add(std::move(pair[0]));
      ends.push_back(std::move(pair[1]));
    }
    return std::make_unique<Client>(std::move(ends), wanted);
  }

  Server& operator[](size_t i) { return *shards_[i]; }
  void kill(size_t i) { shards_[i].reset(); }

 private:
  const double timeout_;
  std::vector<std::unique_ptr<Server>> shards_;
};

inline void perform(Client& client, const Client::Work& work) {
  client.start(work);
  client.wait();
}

inline ShardOptions sgd(float momentum = 0) {
  ShardOptions options;
  options.adagrad = false;
  options.momentum = momentum;
  return options;
}

}  // namespace etr::test

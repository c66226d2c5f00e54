// How workers come to shards at any time: by a store that all see, where each shard has a place at which workers leave a word.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "exchange/store.h"
#include "exchange/world.h"

namespace etr::server {

// A worker writes a word that it has just made up (SHARD.knock), again where another one's took its place. The shard takes it, and
// writes the name of the pair that the two form (SHARD.WORD). So what earlier runs left in the store does no harm, but for a
// shard's waiting in vain for a worker that is gone.
class Door {
 public:
  // `world`: where the store is, and who listens how; its time-out is that of all waiting here. A shard on a rendezvous of tcp://
  // serves the store where `serves` says so.
  Door(exchange::World world, int shard, bool serves);

  // Of the shard: the pair's name for a worker that has knocked since, if any.
  std::optional<std::string> answer();

  // Of the shard, and of the worker: forms the pair of that name. RankLost where the other does not come.
  exchange::Group open(const std::string& pair, int rank) const;

  // Of the worker: knocks and waits; the pair's name. RankLost that names the shard, `stopped` may throw.
  std::string knock(const std::function<void()>& stopped = {});

 private:
  std::string key(const std::string& what) const;

  exchange::World world_;
  const int shard_;
  std::unique_ptr<exchange::Store> store_;
  std::set<std::string> answered_;  // words
};

}  // namespace etr::server

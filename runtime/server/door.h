// How workers come to shards at any time: by a store that all see, where each shard has a place at which workers leave a word.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "exchange/store.h"
#include "exchange/world.h"

namespace etr::server {

// A worker writes a word that it has just made up (SHARD.knock), again where another one's took its place. The shard takes it, and
// writes the name of the pair that the two form (SHARD.WORD). So what earlier runs left in the store does no harm, but for a
// shard's waiting in vain for a worker that is gone.
//
// A shard has its place in the store to itself: SHARD.claim says whose it is. Who comes to a place that is taken asks
// (SHARD.claim_asked) whether its holder is alive, which answers (SHARD.claim_held).
class Door {
 public:
  // `world`: where the store is, and who listens how; its time-out is that of all waiting here. A shard on a rendezvous of tcp://
  // serves the store where `serves` says so.
  Door(exchange::World world, int shard, bool serves);
  ~Door();  // gives the place up

  // Of the shard, before it answers. Error(state) that names the other one where the place is held.
  void claim();

  // Of the shard: the pair's name for a worker that has knocked since, if any. Error(state) where another one has taken the place,
  // to which this one looked dead: is_displaced() from then on.
  std::optional<std::string> answer();
  bool is_displaced() const { return is_displaced_; }

  // Of the shard, and of the worker: forms the pair of that name. RankLost where the other does not come.
  exchange::Group open(const std::string& pair, int rank) const;

  // Of the worker: knocks and waits; the pair's name. RankLost that names the shard.
  std::string knock();

 private:
  std::string key(const std::string& what) const;
  bool is_held(const std::string& claim);
  void keep_claim();

  exchange::World world_;
  const int shard_;
  std::unique_ptr<exchange::Store> store_;
  std::set<std::string> answered_;  // words
  std::string claim_;               // empty: none
  unsigned looks_ = 0;
  std::atomic<bool> is_displaced_{false};
};

}  // namespace etr::server

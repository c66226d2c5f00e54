// How workers reach a shard at any time: through a store that all see, in which each shard has a place where workers leave a word.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "exchange/store.h"
#include "exchange/world.h"

namespace etr::server {

// A worker writes a word that it has just made up (SHARD.knock), and writes it again if another worker's has replaced it. The shard takes
// the word, and writes the name of the pair that the two form (SHARD.WORD). So what earlier runs left in the store does no harm, except
// that a shard may wait in vain for a worker that is gone.
//
// Only one process serves a shard: SHARD.claim says which. Another one that finds the claim asks (SHARD.claim_asked) whether its holder
// is alive, and the holder answers (SHARD.claim_held).
class Door {
 public:
  // `world`: where the store is, and where this process listens; its time-out limits all waits here. `serves`: this process serves the
  // store, if the rendezvous is tcp://.
  Door(exchange::World world, int shard, bool serves);
  ~Door();  // gives the place up

  // For the shard, before answer(). Error(state) that names the other process if that holds the place and is alive.
  void claim();

  // For the shard: the name of the pair for a worker that has knocked since the last call, if any. Error(state) if another process has
  // taken the place because this one looked dead; is_displaced() from then on.
  std::optional<std::string> answer();
  bool is_displaced() const { return is_displaced_; }

  // For both: forms the pair of that name. RankLost if the other one does not come.
  exchange::Group open(const std::string& pair, int rank) const;

  // For the worker: knocks, waits, and returns the pair's name. RankLost that names the shard if that does not answer.
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

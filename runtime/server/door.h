// Lets workers reach a shard at any time, through a store that all of them see: a worker leaves a
// word at the shard's place in the store.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "exchange/store.h"
#include "exchange/world.h"

namespace etr::server {

// A worker writes a random word (SHARD.knock), and writes it again if another worker's word has
// replaced it. The shard takes the word, and writes the name of the pair that the two form
// (SHARD.WORD). Because words are random, leftovers of earlier runs in the store do no harm, except
// that a shard may wait for a worker that has gone.
//
// Only one process serves a shard: SHARD.claim says which. Another process that finds the claim
// asks (SHARD.claim_asked) whether its holder is alive, and the holder answers (SHARD.claim_held).
class Door {
 public:
  // `world`: where the store is, and where this process listens; its time-out limits all waits
  // here. `serves`: this process serves the store if the rendezvous is tcp://.
  Door(exchange::World world, int shard, bool serves);
  ~Door();  // gives the claim up

  // Shard: claims its place. Call it before answer(). Error(state) if another live process holds
  // the place; the error names that process.
  void claim();

  // Shard: if a worker has knocked since the previous call, returns the name of the pair with it.
  // Error(state) if another process has taken the place because this one looked dead; from then on
  // is_displaced() is true.
  std::optional<std::string> answer();
  bool is_displaced() const { return is_displaced_; }

  // Shard and worker: forms the pair of that name. RankLost if the other one does not come.
  exchange::Group open(const std::string& pair, int rank) const;

  // Worker: knocks, waits, and returns the pair's name. RankLost names the shard if it does not
  // answer.
  std::string knock();

 private:
  std::string key(const std::string& what) const;
  bool is_held(const std::string& claim);
  void keep_claim();

  exchange::World world_;
  const int shard_;
  std::unique_ptr<exchange::Store> store_;
  std::set<std::string> answered_;  // words
  std::string claim_;               // empty: no claim
  unsigned looks_ = 0;
  std::atomic<bool> is_displaced_{false};
};

}  // namespace etr::server

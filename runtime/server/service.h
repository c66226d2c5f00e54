// Serves one worker of a shard.
#pragma once

#include <memory>

#include "exchange/group.h"
#include "server/roster.h"
#include "server/shard.h"

namespace etr::server {

// One shard of a run.
struct Post {
  Shard& shard;
  Roster& roster;
  const std::string& terms;  // of the shard
  int number = 0, shards = 1;
  bool leads() const { return number == 0; }
};

// Answers a worker's requests until it leaves. If an error ends the pair first, throws it, for
// example RankLost if the worker has gone. Either way the worker is no longer on the roster
// afterwards.
void serve_worker(const Post& post, exchange::Group& pair, Roster::Guest& guest);

}  // namespace etr::server

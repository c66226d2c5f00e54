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

// Answers a worker's requests until it leaves. Throws the error that ends the pair otherwise, such
// as RankLost if the worker has gone. Either way the worker is off the roster afterwards.
void serve_worker(const Post& post, exchange::Group& pair, Roster::Guest& guest);

}  // namespace etr::server

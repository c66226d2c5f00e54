// What a shard does for one worker.
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

// Answers a worker's requests until it leaves. Throws whatever else ends the pair, such as RankLost if the worker is gone. Either way the
// worker is off the roster afterwards.
void serve_worker(const Post& post, exchange::Group& pair, Roster::Guest& guest);

}  // namespace etr::server

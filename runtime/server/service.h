// What a shard does for one worker.
#pragma once

#include "exchange/group.h"
#include "server/shard.h"

namespace etr::server {

// Answers a worker until it leaves. Throws what ends the pair otherwise: RankLost where the worker is gone. The worker has left the
// shard in either case.
void serve_worker(Shard& shard, exchange::Group& pair, int number_of_shard, int shards);

}  // namespace etr::server

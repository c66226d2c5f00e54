// Runs one shard in this process. Workers come and go; each is served by its own thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "exchange/world.h"
#include "server/door.h"
#include "server/roster.h"
#include "server/shard.h"

namespace etr::server {

struct Place {
  exchange::World world;  // the rendezvous and the time-out; rank and size are ignored
  int shard = 0, shards = 1;
};

class Server {
 public:
  // Opens the door through which workers reach the shard, if there is a rendezvous. The first shard
  // serves the store of a tcp:// rendezvous. Error(state) if another process serves this shard.
  Server(const ShardOptions& options, const Place& place);
  ~Server();

  // Adds a worker. `pair`: the shard's end of the pair with it. The only way to add one if there is
  // no rendezvous.
  void add(exchange::Group pair);

  // Waits at most `seconds`, and returns whether the run is over: the last worker has finished, or
  // all that came have finished and none of those still expected came within the time-out. RankLost
  // if no worker came within the time-out, or none after the last one was lost; also throws the
  // door's errors. Shards other than the first use twice the time-out, because workers join the
  // first one first.
  bool wait(double seconds);

  struct Status {
    Roster::Status roster;
    uint64_t rows = 0;  // rows of sparse tables that take memory
  };
  Status status() const { return {roster_.status(), shard_.rows()}; }
  void stop();  // ends all pairs; workers see a lost shard

 private:
  struct Visitor {
    std::mutex mutex;
    std::shared_ptr<exchange::Group> pair;  // nullptr while the pair is being formed
    std::unique_ptr<Roster::Guest> guest;
    std::atomic<bool> gone{false};
    std::thread thread;
  };

  void watch_door();
  void take_in(const std::string& pair);
  void receive(Visitor& visitor, const std::string& pair);
  void log_absence(const std::exception& error) const;
  void serve(Visitor& visitor, exchange::Group pair);
  template <typename Body>
  void start(Body&& body);
  // Call these with the lock held.
  void reap();
  bool is_over();
  bool has_nobody() const;  // whether no worker was here for so long that the run ends
  double patience() const;

  const Place place_;
  const std::string terms_;
  Roster roster_;
  Shard shard_;
  std::unique_ptr<Door> door_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Visitor> visitors_;
  std::atomic<bool> stops_{false};
  std::chrono::steady_clock::time_point empty_since_;
  std::optional<std::chrono::steady_clock::time_point> ends_by_;  // set when the run is over
  std::exception_ptr failed_;
  std::thread door_thread_;
};

}  // namespace etr::server

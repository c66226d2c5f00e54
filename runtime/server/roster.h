// Keeps track of the workers that take part in a run. The first shard's roster decides for all
// shards: which workers are present, which one begins (provides the initial weights), whose turn it
// is, and when the run is over. The other shards' rosters know only what workers tell them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "server/options.h"

namespace etr::server {

// Thread-safe. A worker is known by a ticket, which is never reused. It has a number from 0 on,
// unique among the workers present.
class Roster {
 public:
  using Ticket = uint64_t;

  explicit Roster(const ShardOptions& options)
      : delay_(options.delay), warm_start_(options.warm_start) {}

  // A worker that is about to join. While there is one, a worker that finishes is not the last.
  // join() and admit() end that.
  class Guest {
   public:
    explicit Guest(Roster& roster);
    ~Guest();
    Guest(const Guest&) = delete;
    Guest& operator=(const Guest&) = delete;

   private:
    friend class Roster;
    void end();  // with the lock

    Roster& roster_;
    bool counts_ = true;
  };

  // First shard: admits a worker. It gets the `number` it asks for, or the lowest free one if that
  // is taken or negative. `workers`: the number of workers that are to come. Error(state) if the
  // run is over.
  Ticket join(Guest& guest, int number, uint64_t workers = 1);
  // Other shards: admits a worker that has joined on the first one.
  void admit(Guest& guest, Ticket ticket, int number);

  int number(Ticket ticket) const;

  // First shard: removes a worker that has finished. Returns whether the run is over, because this
  // was the last worker; then nobody can join any more.
  bool finish(Ticket ticket);
  // Other shards: removes a worker that has finished. `over`: the first shard's verdict on whether
  // the run is over.
  void finish(Ticket ticket, bool over);
  // Removes a worker that is lost. Does nothing if it has finished.
  void lose(Ticket ticket);
  bool over() const;

  void end_all();  // all workers are to finish
  bool ends() const { return ends_; }

  // Waits at most `seconds` for initial weights. The first worker that asks while there are none
  // gets `yours` and is to provide them; if it is lost, another one gets `yours`. `can_begin`
  // false: this worker waits for another one, which has a checkpoint.
  enum class Beginning { there, yours, not_yet, never };
  Beginning wait_beginning(Ticket ticket, double seconds, bool can_begin = true);
  uint64_t attempt() const;   // the number of the latest attempt to begin
  bool has_beginner() const;  // whether a worker can begin, or has not yet said that it cannot
  void begun(Ticket ticket);  // the shard has the initial weights from this worker

  // Counts a push, which all shards have received by then. Returns the number of this worker's
  // pushes.
  uint64_t count_push(Ticket ticket);
  // Waits at most `seconds` until the worker may go on, and returns whether it may. From then on
  // the worker takes part, and others may have to wait for it. Its clock starts at that of the
  // slowest worker.
  bool wait_turn(Ticket ticket, double seconds);
  bool in_order() const;  // whether a worker may have to wait for another one's push

  struct Status {
    uint64_t workers = 0;        // present now
    uint64_t joined = 0;         // since the start
    uint64_t finished = 0;       // of these, those that left because they had finished
    bool last_finished = false;  // whether the latest worker to leave had finished
    uint64_t pushes = 0;
  };
  Status status() const;

 private:
  struct Worker {
    int number = 0;
    bool can_begin = true;  // unless it has said that it cannot
    bool started = false;
    uint64_t clock = 0;  // the slowest worker's clock when it started, plus its pushes since
    uint64_t pushes = 0;
  };

  int free_number(int wanted) const;
  void remove(Ticket ticket, bool finished);
  bool starts(Ticket ticket, Worker& worker);
  bool may_go_on(Ticket ticket);
  uint64_t slowest() const;

  const std::optional<uint64_t> delay_;
  const uint64_t warm_start_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Ticket, Worker> workers_;
  Ticket next_ = 1;
  uint64_t guests_ = 0;
  uint64_t to_come_ = 1;  // the largest number of workers announced
  bool over_ = false;
  std::optional<Ticket> beginner_, warms_up_;
  uint64_t attempts_ = 0;
  bool begun_ = false;
  std::atomic<bool> ends_{false};
  Status status_;
};

}  // namespace etr::server

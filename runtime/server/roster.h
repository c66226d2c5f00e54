// Who takes part in a run. The first shard's decides for all shards: who is here, who says what to begin with, whose turn it is,
// and when all is over. Those of the others know what workers tell them of it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

#include "server/options.h"

namespace etr::server {

// Thread safe. Workers are known by a ticket, which nobody had before, and have a number, from 0 on, that no other has who is here.
class Roster {
 public:
  using Ticket = uint64_t;

  explicit Roster(const ShardOptions& options)
      : delay_(options.delay), warm_start_(options.warm_start) {}

  // Somebody who is about to join: while there is one, nobody else is the last. join() and admit() end that.
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

  // Of the first shard. `number`: the one that the worker would like to have; it gets the lowest one that is free where that is taken, or
  // negative. `workers`: so many are to come. Error(state) where all is over.
  Ticket join(Guest& guest, int number, uint64_t workers = 1);
  // Of the others: a worker that has joined there.
  void admit(Guest& guest, Ticket ticket, int number);

  int number(Ticket ticket) const;

  // It leaves in order. Of the first shard: whether all is over then, because it was the last; nobody joins any more.
  bool finish(Ticket ticket);
  // Likewise of the others, which have heard whether all is `over`.
  void finish(Ticket ticket, bool over);
  // It is lost. Who has finished is not here any more.
  void lose(Ticket ticket);
  bool over() const;

  void end_all();  // all workers are to come to their end
  bool ends() const { return ends_; }

  // What is there to train. The first who asks while there is nothing gets `yours`, and is to begin; when it is gone, another.
  // `can_begin`: otherwise it waits for another one, which has a checkpoint.
  enum class Beginning { there, yours, not_yet, never };
  Beginning wait_beginning(Ticket ticket, double seconds, bool can_begin = true);
  uint64_t attempt() const;   // to begin: the number of the latest
  bool has_beginner() const;  // a worker that may begin, or has yet to say so
  void begun(Ticket ticket);

  // A push, which all shards have when the first one counts it; gives how many of this worker's there were.
  uint64_t count_push(Ticket ticket);
  // Whether the worker may go on, after at most `seconds`. From the first time on it takes part: others may have to wait for it. Its
  // clock begins as that of the slowest.
  bool wait_turn(Ticket ticket, double seconds);
  bool in_order() const;  // whether anybody may have to wait for a push

  struct Status {
    uint64_t workers = 0;        // who are here
    uint64_t joined = 0;         // since the beginning
    uint64_t finished = 0;       // of those who left, the ones that had come to their end
    bool last_finished = false;  // so had the last of them
    uint64_t pushes = 0;
  };
  Status status() const;

 private:
  struct Worker {
    int number = 0;
    bool can_begin = true;  // where it has yet to say so, too
    bool started = false;
    uint64_t clock = 0;  // its pushes, from where it started on
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
  uint64_t to_come_ = 1;  // as workers say
  bool over_ = false;
  std::optional<Ticket> beginner_, warms_up_;
  uint64_t attempts_ = 0;
  bool begun_ = false;
  std::atomic<bool> ends_{false};
  Status status_;
};

}  // namespace etr::server

// A worker's end of the parameter server: a thread for each shard, which talks to it while the worker computes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "server/pair.h"

namespace etr::server {

// Between two exchanges its threads tell the shards from time to time that the worker is alive, however long a step takes.
// Where a shard is lost, or refuses, the other pairs end, and the next call throws that when they have: no thread uses any more what
// the work does.
class Client {
 public:
  // A group of two with each shard, in their order. `wanted`: the number that the worker would like to have, or -1.
  Client(std::vector<exchange::Group> shards, int wanted);
  ~Client();  // without leave() the shards see a lost worker

  int number() const { return number_; }

  // The shards' weights become `weights`; where they have none yet, they begin with those that are given, and their state (as long,
  // or empty). `rows`, of each table that was declared: the same of single rows; others have their first values. May wait for other
  // workers.
  // `waits`: for another worker to say what to begin with, which has a checkpoint.
  void begin(std::span<float> weights, std::span<const float> state, uint64_t decayed,
             std::span<const Rows> rows = {}, bool waits = false);

  // Before begin(): the tables of which single rows are fetched and pushed.
  void declare(std::span<const TableSpec> tables);
  // All rows of a table that are not what they were at first, by their ids. Takes them in pieces, while others may push.
  Rows take_rows(uint64_t table, uint32_t width);

  // Has each pair do something, by its thread, and returns. Nothing else may be under way. When all have, the last of the threads
  // calls `done`, which must not throw; where one fails, nobody does.
  using Work = std::function<void(Pair&)>;
  void start(Work work, std::function<void()> done = {});
  bool idle();                // throws what the last work has
  bool wait(double seconds);  // whether it is idle after at most so long; likewise
  void wait();                // until it is

  uint64_t acknowledged() const;  // pushes, by all shards
  uint64_t bytes() const;         // that have gone to all shards, or come from them
  bool told_to_end() const;       // by another worker, through the shards

  void leave(bool all_end = false);  // has come to its end; `all_end`: and so are all others to do

 private:
  struct Link {
    std::unique_ptr<Pair> pair;
    bool has_work = false;
    std::thread thread;
  };

  void end();
  void attend(Link& link);
  void give_up(Link& link);
  void run(Link& link, const Work& work);
  void finish_work();
  void fail_all(const std::exception_ptr& error);
  void perform(const Work& work);
  void check() const;  // with the lock

  int number_ = -1;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Link> links_;
  Work work_;
  std::function<void()> done_;
  size_t busy_ = 0;  // links that have not done it yet
  bool leaves_ = false, ends_ = false;
  std::exception_ptr failed_;
};

}  // namespace etr::server

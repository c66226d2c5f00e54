// A worker's end of the parameter server: a thread for each shard, which talks to it while the worker computes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
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
  // Forms a group of two with a shard, which is its rank 0.
  using Meet = std::function<exchange::Group(int shard)>;

  // Joins the first of the shards, and with what that says the others. `name`: the number that the worker would like to have, or -1,
  // and its terms.
  Client(int shards, const Meet& meet, const Pair::Name& name);
  ~Client();  // without leave() the shards see a lost worker

  int number() const { return name_.number; }

  // When this becomes true, nobody waits for other workers any more; it outlives the client.
  void heed(const std::atomic<bool>& stop) { stop_ = &stop; }

  // What a worker has to begin with. The weights and the tables' seeds become those of the servers, which begin with these where they
  // have none yet.
  struct First {
    std::span<float> weights;
    std::span<const float> state;  // as long, or empty
    uint64_t decayed = 0;
    std::span<TableSpec> tables;  // of which single rows are fetched and pushed
    std::span<const Rows> rows;   // of each of them, or empty; others have their first values
    bool waits = false;           // for another worker to begin, which has a checkpoint
  };
  // May wait for other workers: Error(cancelled) where that was stopped. False where the run has ended before it has begun.
  bool begin(const First& first);

  // All rows of a table that are not what they were at first, by their ids. Takes them in pieces, while others may push.
  Rows take_rows(uint64_t table, uint32_t width);

  // Has each pair do something, by its thread, and returns. Nothing else may be under way. When all have, the last of the threads
  // calls `done`, which must not throw; where one fails, or its wait for other workers was stopped, nobody does.
  using Work = std::function<void(Pair&)>;
  void start(Work work, std::function<void()> done = {});
  // Likewise, first giving, then taking. Where the first shard counts pushes it is given last, and the others are asked when it has
  // said that it is this worker's turn.
  void exchange(const Work& give, const Work& take, std::function<void()> done = {});
  bool idle();                // throws what the last work has
  bool wait(double seconds);  // whether it is idle after at most so long; likewise
  void wait();                // until it is

  uint64_t bytes() const;    // that have gone to all shards, or come from them
  bool told_to_end() const;  // by another worker, through the first shard

  void leave(bool all_end = false);  // has come to its end; `all_end`: and so are all others to do

 private:
  struct Link {
    std::unique_ptr<Pair> pair;
    bool has_work = false;
    std::thread thread;
  };
  enum class Which { all, first, others };
  struct Step {
    Which which;
    Work work;
  };

  void join(const Meet& meet);
  void end();
  void attend(Link& link);
  void give_up(Link& link);
  void run(Link& link, const Work& work);
  void start(std::deque<Step> steps, std::function<void()> done);
  bool begin_step();
  void finish_work();
  void fail_all(const std::exception_ptr& error);
  void perform(Which which, const Work& work);
  void give(Pair& pair, const First& first, uint64_t attempt) const;
  void check() const;  // with the lock
  bool stopped() const;

  Pair::Name name_;
  std::atomic<const std::atomic<bool>*> stop_{nullptr};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Link> links_;
  std::deque<Step> steps_;  // those after the one under way
  Work work_;
  std::function<void()> done_;
  bool at_work_ = false;
  size_t busy_ = 0;         // links that have not done the step yet
  bool cancelled_ = false;  // the work
  bool leaves_ = false, ends_ = false;
  std::exception_ptr failed_;
};

}  // namespace etr::server

// A worker's end of the parameter server: one thread per shard talks to it while the worker
// computes.
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

// Between exchanges, its threads tell the shards now and then that the worker is alive, however
// long a step takes. If a shard is lost or refuses a request, the other pairs end, too; after that,
// the next call throws the error, and no thread uses the memory of the work any more.
class Client {
 public:
  // Forms a group of two with a shard, which is rank 0.
  using Meet = std::function<exchange::Group(int shard)>;

  // Joins the first shard, then the others with the number and the ticket that the first has given.
  // `name`: the number that the worker would like, or -1, and its terms.
  Client(int shards, const Meet& meet, const Pair::Name& name);
  ~Client();  // without leave() the shards see a lost worker

  int number() const { return name_.number; }

  // When `stop` becomes true, the client stops waiting for other workers. `stop` must outlive the
  // client.
  void heed(const std::atomic<bool>& stop) { stop_ = &stop; }

  // A worker's initial weights. begin() replaces them and the tables' seeds by the servers', or
  // makes them the servers' if these have none yet.
  struct First {
    std::span<float> weights;
    std::span<const float> state;  // as long, or empty
    uint64_t decayed = 0;
    std::span<TableSpec> tables;  // the sparse ones
    std::span<const Rows> rows;   // of each table, or empty; other rows have their initial values
    bool waits = false;           // for another worker, which has a checkpoint, to begin
  };
  // May wait for other workers: Error(cancelled) if the wait was stopped. Returns false if the run
  // ended first.
  bool begin(const First& first);

  // Returns all trained rows of a table, sorted by id. Takes them in pieces, between which others
  // may push.
  Rows take_rows(uint64_t table, uint32_t width);

  // Lets each pair do the work on its thread, and returns at once. No other work may be under way.
  // When all are done, the last thread calls `done`, which must not throw. If one fails, or its
  // wait for other workers was stopped, `done` is not called.
  using Work = std::function<void(Pair&)>;
  void start(Work work, std::function<void()> done = {});
  // The same with two kinds of work, `give` before `take`. If the first shard counts pushes, it
  // gets `give` last, and the others get `take` only after it has said that it is this worker's
  // turn.
  void exchange(const Work& give, const Work& take, std::function<void()> done = {});
  bool idle();                // throws the error of the last work
  bool wait(double seconds);  // whether it is idle after at most that time; throws as idle()
  void wait();                // until it is idle; throws as idle()

  uint64_t bytes() const;    // sent to and received from all shards
  bool told_to_end() const;  // by another worker, through the first shard

  void leave(bool all_end = false);  // the worker has finished; `all_end`: the others are to
                                     // finish, too

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
  std::deque<Step> steps_;  // steps after the one under way
  Work work_;
  std::function<void()> done_;
  bool at_work_ = false;
  size_t busy_ = 0;         // links that have yet to do the step
  bool cancelled_ = false;  // whether the work was stopped
  bool leaves_ = false, ends_ = false;
  std::exception_ptr failed_;
};

}  // namespace etr::server

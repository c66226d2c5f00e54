// A worker's end of the parameter server. One thread for each shard exchanges messages with it
// while the worker computes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "server/pair.h"

namespace etr::server {

// Between exchanges, its threads report to the shards now and then that the worker is alive,
// however long a step takes. If a shard is lost or refuses a request, the pairs with the other
// shards end, too. The next call then throws the error; by then no thread uses memory that the work
// refers to.
class Client {
 public:
  // Forms a group of two with a shard, which is rank 0.
  using Meet = std::function<exchange::Group(int shard)>;

  // Joins the first shard, then the others with the number and the ticket that the first one has
  // given. `name`: the number that the worker asks for, or -1, and its terms.
  Client(int shards, const Meet& meet, const Pair::Name& name);
  ~Client();  // without leave(), the shards take the worker for lost

  int number() const { return name_.number; }

  // When `stop` becomes true, the client stops waiting for other workers. `stop` must outlive the
  // client.
  void heed(const std::atomic<bool>& stop) { stop_ = &stop; }

  // A worker's initial weights. If the servers have weights, begin() replaces these weights and the
  // tables' seeds by theirs; otherwise the servers take these.
  struct First {
    std::span<float> weights;
    std::span<const float> state;  // optimizer state, one for each weight; may be empty
    uint64_t decayed = 0;          // leading parameters under weight decay
    std::span<TableSpec> tables;   // sparse tables
    std::span<const Rows> rows;    // of each table, or empty; other rows have their initial values
    bool waits = false;            // waits for another worker, which has a checkpoint, to begin
  };
  // Returns when the worker has the run's weights and it is its turn, or returns false if the run
  // ended first. May wait for other workers: Error(cancelled) if the wait was stopped.
  bool begin(const First& first);

  // Returns all trained rows of a table, sorted by id. Fetches them in pieces, between which other
  // workers may push.
  Rows take_rows(uint64_t table, uint32_t width);

  // Starts the work of each pair on its thread, and returns at once. No other work may be under
  // way. The last thread to finish calls `done`, which must not throw. `done` is not called if the
  // work of a pair failed, or if its wait for other workers was stopped.
  using Work = std::function<void(Pair&)>;
  void start(Work work, std::function<void()> done = {});
  // The same with two kinds of work: `give` sends, then `take` fetches. If the first shard counts
  // pushes, `give` goes to it last, and `take` goes to the others only after the first shard has
  // said that it is this worker's turn.
  void exchange(const Work& give, const Work& take, std::function<void()> done = {});
  bool idle();                // whether no work is under way; throws the error of the last work
  bool wait(double seconds);  // waits at most that long; returns and throws like idle()
  void wait();                // waits until no work is under way; throws like idle()

  uint64_t bytes() const;    // sent to and received from all shards
  bool told_to_end() const;  // whether another worker has said that all are to finish

  // Tells the shards that the worker has finished. `all_end`: all others are to finish, too.
  void leave(bool all_end = false);

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
  void fail_all(const std::exception_ptr& error, const std::string& reason);
  void perform(Which which, const Work& work);
  void give(Pair& pair, const First& first, uint64_t attempt) const;
  void check() const;  // with the lock
  bool stopped() const;

  Pair::Name name_;
  std::atomic<const std::atomic<bool>*> stop_{nullptr};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Link> links_;
  std::deque<Step> steps_;  // those after the current one
  Work work_;
  std::function<void()> done_;
  bool at_work_ = false;
  size_t busy_ = 0;         // links that have not finished the current step
  bool cancelled_ = false;  // whether the work was stopped
  bool leaves_ = false, ends_ = false;
  std::exception_ptr failed_;
};

}  // namespace etr::server

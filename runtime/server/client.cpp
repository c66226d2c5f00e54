#include "server/client.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/start_thread.h"

namespace etr::server {

// The first shard says which number the worker has.
Client::Client(std::vector<exchange::Group> shards, int wanted) {
  const int count = static_cast<int>(shards.size());
  links_.resize(shards.size());
  for (int i = 0; i < count; ++i) {
    Link& link = links_[static_cast<size_t>(i)];
    link.pair = std::make_unique<Pair>(std::move(shards[static_cast<size_t>(i)]), i, count);
    const int number = link.pair->hello(i == 0 ? wanted : number_);
    if (i == 0) number_ = number;
  }
  try {
    for (Link& link : links_)
      link.thread = start_thread("a thread that talks to a parameter server's shard",
                                 "the number of shards", [this, &link] { attend(link); });
  } catch (...) {
    end();
    throw;
  }
}

Client::~Client() { end(); }

void Client::end() {
  bool busy = false;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    busy = busy_ > 0;
    changed_.notify_all();
  }
  for (Link& link : links_)
    if (busy) link.pair->abort("the worker has ended");
  for (Link& link : links_)
    if (link.thread.joinable()) link.thread.join();
}

void Client::attend(Link& link) {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto next = deadline_after(link.pair->timeout() / 4);
    changed_.wait_until(lock, next, [&] { return link.has_work || ends_ || failed_; });
    if (ends_ || failed_) return give_up(link);
    if (!link.has_work && leaves_) continue;  // it may have left already
    const bool works = std::exchange(link.has_work, false);
    const Work work = works ? work_ : Work([](Pair& pair) { pair.here(); });
    lock.unlock();
    run(link, work);
    if (works) finish_work();
    lock.lock();
  }
}

// With the lock.
void Client::give_up(Link& link) {
  if (std::exchange(link.has_work, false)) --busy_;
  changed_.notify_all();
}

void Client::run(Link& link, const Work& work) {
  try {
    work(*link.pair);
  } catch (...) {
    fail_all(std::current_exception());
  }
}

void Client::finish_work() {
  std::unique_lock lock(mutex_);
  if (busy_ == 1 && done_ && !failed_) {
    const auto done = std::exchange(done_, {});
    lock.unlock();
    done();
    lock.lock();
  }
  --busy_;
  changed_.notify_all();
}

void Client::fail_all(const std::exception_ptr& error) {
  {
    const std::lock_guard lock(mutex_);
    if (failed_) return;
    failed_ = error;
    changed_.notify_all();
  }
  for (Link& link : links_) link.pair->abort("the worker has lost another shard");
}

void Client::check() const {
  if (failed_) std::rethrow_exception(failed_);
}

void Client::start(Work work, std::function<void()> done) {
  const std::lock_guard lock(mutex_);
  check();
  if (ends_)
    fail(Code::state, "this worker has left its parameter server: go on from the checkpoint");
  if (busy_ > 0) fail(Code::internal, "a parameter server's client has work under way");
  work_ = std::move(work);
  done_ = std::move(done);
  busy_ = links_.size();
  for (Link& link : links_) link.has_work = true;
  changed_.notify_all();
}

bool Client::idle() {
  const std::lock_guard lock(mutex_);
  if (busy_ > 0) return false;
  check();
  return true;
}

bool Client::wait(double seconds) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, deadline_after(seconds), [&] { return busy_ == 0; })) return false;
  check();
  return true;
}

// Pairs have deadlines of their own.
void Client::wait() {
  while (!wait(1)) {
  }
}

void Client::perform(const Work& work) {
  start(work);
  wait();
}

void Client::begin(std::span<float> weights, std::span<const float> state, uint64_t decayed,
                   std::span<const Rows> rows, bool waits) {
  const uint64_t count = weights.size();
  bool there = true;
  const auto give = [&](Pair& pair) {
    const Slice slice = pair.slice(count);
    for (size_t table = 0; table < rows.size(); ++table)
      for_pieces(rows[table], [&](const Rows& piece) { pair.put_rows(table, piece); });
    pair.begin(count, decayed, weights.subspan(slice.begin, slice.count),
               state.empty() ? state : state.subspan(slice.begin, slice.count));
  };
  // The first shard says who begins, and has weights last: others ask it first.
  perform([&](Pair& pair) {
    if (pair.shard() == 0) there = pair.ready(count, waits);
  });
  perform([&](Pair& pair) {
    if (pair.shard() == 0) return;
    if (there)
      pair.ready(count);
    else
      give(pair);
  });
  if (!there)
    perform([&](Pair& pair) {
      if (pair.shard() == 0) give(pair);
    });
  perform([&](Pair& pair) {
    const Slice slice = pair.slice(count);
    pair.fetch(weights.subspan(slice.begin, slice.count));
  });
}

void Client::declare(std::span<const TableSpec> tables) {
  perform([&](Pair& pair) { pair.declare(tables); });
}

Rows Client::take_rows(uint64_t table, uint32_t width) {
  std::vector<Rows> parts(links_.size());
  perform([&](Pair& pair) {
    Rows& part = parts[static_cast<size_t>(pair.shard())];
    while (append(part, pair.take_rows(table, part.ids.size(), width))) {
    }
  });
  Rows all;
  for (const Rows& part : parts) append(all, part);
  sort(all);
  return all;
}

uint64_t Client::bytes() const {
  uint64_t all = 0;
  for (const Link& link : links_) all += link.pair->bytes();
  return all;
}

bool Client::told_to_end() const {
  return std::any_of(links_.begin(), links_.end(),
                     [](const Link& link) { return link.pair->told_to_end(); });
}

uint64_t Client::acknowledged() const {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (const Link& link : links_) least = std::min(least, link.pair->acknowledged());
  return least;
}

void Client::leave(bool all_end) {
  wait();
  {
    const std::lock_guard lock(mutex_);
    leaves_ = true;
  }
  perform([&](Pair& pair) { pair.leave(all_end); });
  const std::lock_guard lock(mutex_);
  ends_ = true;
  changed_.notify_all();
}

}  // namespace etr::server

#include "server/client.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/start_thread.h"

namespace etr::server {

Client::Client(int shards, const Meet& meet, const Pair::Name& name) : name_(name) {
  links_.resize(static_cast<size_t>(shards));
  try {
    join(meet);
  } catch (const std::exception& error) {
    for (Link& link : links_)
      if (link.pair) link.pair->abort(error.what());
    end();
    throw;
  }
}

// Starts each pair's thread at once, so that it keeps the pair alive while the next one is formed.
void Client::join(const Meet& meet) {
  const int shards = static_cast<int>(links_.size());
  for (int i = 0; i < shards; ++i) {
    Link& link = links_[static_cast<size_t>(i)];
    auto pair = std::make_unique<Pair>(meet(i), i, shards, [this] { return stopped(); });
    name_ = pair->hello(name_);
    {
      const std::lock_guard lock(mutex_);
      check();
      link.pair = std::move(pair);
    }
    link.thread = start_thread("a thread that talks to a parameter server's shard",
                               "the number of shards", [this, &link] { attend(link); });
  }
}

bool Client::stopped() const {
  const std::atomic<bool>* stop = stop_;
  return stop && *stop;
}

Client::~Client() { end(); }

void Client::end() {
  bool busy = false;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    busy = at_work_;
    changed_.notify_all();
  }
  for (Link& link : links_)
    if (busy && link.pair) link.pair->abort("the worker has ended");
  for (Link& link : links_)
    if (link.thread.joinable()) link.thread.join();
}

void Client::attend(Link& link) {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto next = deadline_after(link.pair->timeout() / 4);
    changed_.wait_until(lock, next, [&] { return link.has_work || ends_ || failed_; });
    if (ends_ || failed_) return give_up(link);
    if (!link.has_work && leaves_) continue;  // no report: the pair may have left already
    const bool works = std::exchange(link.has_work, false);
    const Work work = works ? work_ : Work([](Pair& pair) { pair.here(); });
    lock.unlock();
    run(link, work);
    if (works) finish_work();
    lock.lock();
  }
}

// Call with the lock held.
void Client::give_up(Link& link) {
  if (std::exchange(link.has_work, false) && --busy_ == 0) at_work_ = false;
  changed_.notify_all();
}

void Client::run(Link& link, const Work& work) {
  try {
    work(*link.pair);
  } catch (const Error& error) {
    if (error.code() != Code::cancelled) return fail_all(std::current_exception(), error.what());
    const std::lock_guard lock(mutex_);
    cancelled_ = true;  // the pair is still usable
  } catch (const std::exception& error) {
    fail_all(std::current_exception(), error.what());
  }
}

// Call with the lock held. Starts the next step that has work for any pair. Returns false if there
// is none.
bool Client::begin_step() {
  while (busy_ == 0 && !steps_.empty()) {
    const auto [which, work] = std::move(steps_.front());
    steps_.pop_front();
    work_ = work;
    for (Link& link : links_) {
      const bool first = &link == &links_.front();
      link.has_work = which == Which::all || (which == Which::first) == first;
      busy_ += link.has_work;
    }
  }
  changed_.notify_all();
  return busy_ > 0;
}

void Client::finish_work() {
  std::unique_lock lock(mutex_);
  if (--busy_ > 0) return;
  const bool goes_on = !failed_ && !cancelled_;
  if (goes_on && begin_step()) return;
  steps_.clear();
  if (goes_on && done_) {
    const auto done = std::exchange(done_, {});
    lock.unlock();
    done();
    lock.lock();
  }
  at_work_ = false;
  changed_.notify_all();
}

void Client::fail_all(const std::exception_ptr& error, const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (failed_) return;
    failed_ = error;
    changed_.notify_all();
  }
  for (Link& link : links_)
    if (link.pair) link.pair->abort(reason);
}

void Client::check() const {
  if (failed_) std::rethrow_exception(failed_);
}

void Client::start(std::deque<Step> steps, std::function<void()> done) {
  const std::lock_guard lock(mutex_);
  check();
  if (ends_)
    fail(Code::state, "this worker has left its parameter server: continue from the checkpoint");
  if (at_work_) fail(Code::internal, "a parameter server's client has work under way");
  steps_ = std::move(steps);
  done_ = std::move(done);
  cancelled_ = false;
  at_work_ = begin_step();
}

void Client::start(Work work, std::function<void()> done) {
  start({{Which::all, std::move(work)}}, std::move(done));
}

void Client::exchange(const Work& give, const Work& take, std::function<void()> done) {
  const Work both = [give, take](Pair& pair) {
    if (give) give(pair);
    if (take) take(pair);
  };
  if (!links_.front().pair->in_order()) return start(both, std::move(done));
  std::deque<Step> steps{{Which::first, both}};
  if (give) steps.push_front({Which::others, give});
  if (take) steps.push_back({Which::others, take});
  start(std::move(steps), std::move(done));
}

bool Client::idle() {
  const std::lock_guard lock(mutex_);
  if (at_work_) return false;
  check();
  return true;
}

bool Client::wait(double seconds) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, deadline_after(seconds), [&] { return !at_work_; })) return false;
  check();
  return true;
}

// Needs no deadline: pairs enforce their own.
void Client::wait() {
  while (!wait(1)) {
  }
}

void Client::perform(Which which, const Work& work) {
  start({{which, work}}, {});
  wait();
  const std::lock_guard lock(mutex_);
  if (cancelled_) fail(Code::cancelled, "the wait for a parameter server's workers was stopped");
}

void Client::give(Pair& pair, const First& first, uint64_t attempt) const {
  const Slice slice = pair.slice(first.weights.size());
  pair.declare(attempt, first.tables);
  for (size_t table = 0; table < first.rows.size(); ++table)
    for_pieces(first.rows[table], [&](const Rows& piece) { pair.put_rows(attempt, table, piece); });
  const auto own = [&](auto numbers) { return numbers.subspan(slice.begin, slice.count); };
  pair.begin(attempt, first.weights.size(), first.decayed, own(first.weights),
             first.state.empty() ? first.state : own(first.state));
}

// The first shard decides who begins, and gets the initial weights last. So a worker that finds
// weights there finds them on the other shards, too.
bool Client::begin(const First& first) {
  Pair::Ready ready;
  perform(Which::first, [&](Pair& pair) { ready = pair.ready(first.waits); });
  if (ready.is == Pair::Ready::Is::over) return false;
  if (ready.is == Pair::Ready::Is::yours) {
    const Work giving = [&](Pair& pair) { give(pair, first, ready.attempt); };
    perform(Which::others, giving);
    perform(Which::first, giving);
  }
  const uint64_t count = first.weights.size();
  std::vector<TableSpec> tables;
  perform(Which::all, [&](Pair& pair) {
    auto found = pair.check(count, first.tables);
    if (pair.leads()) tables = std::move(found);
  });
  std::ranges::copy(tables, first.tables.begin());
  const Work fetch = [&](Pair& pair) {
    const Slice slice = pair.slice(count);
    pair.fetch(first.weights.subspan(slice.begin, slice.count));
  };
  perform(Which::first, fetch);  // returns when it is this worker's turn
  perform(Which::others, fetch);
  return true;
}

Rows Client::take_rows(uint64_t table, uint32_t width) {
  std::vector<Rows> parts(links_.size());
  perform(Which::all, [&](Pair& pair) {
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

bool Client::told_to_end() const { return links_.front().pair->told_to_end(); }

// The first shard says whether this was the last worker; the client passes that on to the others.
void Client::leave(bool all_end) {
  wait();
  {
    const std::lock_guard lock(mutex_);
    leaves_ = true;
  }
  bool over = false;
  perform(Which::first, [&](Pair& pair) { over = pair.leave(all_end); });
  perform(Which::others, [&](Pair& pair) { pair.leave(all_end, over); });
  const std::lock_guard lock(mutex_);
  ends_ = true;
  changed_.notify_all();
}

}  // namespace etr::server

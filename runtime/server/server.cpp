#include "server/server.h"

#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/log.h"
#include "core/start_thread.h"
#include "server/message.h"
#include "server/service.h"

namespace etr::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kDoorPoll = std::chrono::milliseconds(10);
constexpr double kLeaving = 10;  // seconds for the last pairs to end once the run is over
constexpr const char* kFewer = "the number of workers";

}  // namespace

Server::Server(const ShardOptions& options, const Place& place)
    : place_(place),
      terms_(options.terms),
      roster_(options),
      shard_(options, place.shard, place.shards),
      empty_since_(Clock::now()) {
  if (place_.world.rendezvous.empty()) return;
  door_ = std::make_unique<Door>(place_.world, place_.shard, place_.shard == 0);
  door_->claim();
  door_thread_ = start_thread("a thread that waits for workers", kFewer, [this] { watch_door(); });
}

Server::~Server() {
  stop();
  if (door_thread_.joinable()) door_thread_.join();
  for (Visitor& visitor : visitors_) visitor.thread.join();
}

void Server::watch_door() {
  try {
    while (!stops_) {
      if (const auto pair = door_->answer())
        take_in(*pair);
      else
        std::this_thread::sleep_for(kDoorPoll);
    }
  } catch (const std::exception& error) {
    try_log_line(LogLevel::error, {"parameter server: no more workers can join: ", error.what()});
    const std::lock_guard lock(mutex_);
    failed_ = std::current_exception();
    changed_.notify_all();
  }
}

template <typename Body>
void Server::start(Body&& body) {
  const std::lock_guard lock(mutex_);
  reap();
  Visitor& visitor = visitors_.emplace_back();
  visitor.guest = std::make_unique<Roster::Guest>(roster_);
  try {
    visitor.thread = start_thread("a thread that serves a worker", kFewer,
                                  [this, &visitor, body = std::move(body)]() mutable {
                                    body(visitor);
                                    visitor.guest.reset();
                                    const std::lock_guard guard(mutex_);
                                    visitor.gone = true;
                                    empty_since_ = Clock::now();
                                    changed_.notify_all();
                                  });
  } catch (...) {
    visitors_.pop_back();
    throw;
  }
}

void Server::reap() {
  std::erase_if(visitors_, [](Visitor& visitor) {
    if (!visitor.gone) return false;
    visitor.thread.join();
    return true;
  });
}

void Server::add(exchange::Group pair) {
  auto shared = std::make_shared<exchange::Group>(std::move(pair));
  start([this, shared](Visitor& visitor) { serve(visitor, std::move(*shared)); });
}

// Only logs an error: there may be a thread for the next worker.
void Server::take_in(const std::string& pair) {
  try {
    start([this, pair](Visitor& visitor) { receive(visitor, pair); });
  } catch (const std::exception& error) {
    log_absence(error);
  }
}

// Only logs an error: a worker that has knocked may have gone.
void Server::receive(Visitor& visitor, const std::string& pair) {
  try {
    serve(visitor, door_->open(pair, kShardRank));
  } catch (const std::exception& error) {
    log_absence(error);
  }
}

void Server::log_absence(const std::exception& error) const {
  log_line(LogLevel::warning, cat("parameter server: shard ", place_.shard,
                                  ": a worker that was about to join did not: ", error.what()));
}

void Server::serve(Visitor& visitor, exchange::Group pair) {
  const auto shared = std::make_shared<exchange::Group>(std::move(pair));
  {
    const std::lock_guard lock(visitor.mutex);
    visitor.pair = shared;
  }
  try {
    if (stops_) return;
    serve_worker({shard_, roster_, terms_, place_.shard, place_.shards}, *shared, *visitor.guest);
  } catch (const std::exception& error) {
    if (!stops_)
      log_line(LogLevel::warning, cat("parameter server: shard ", place_.shard,
                                      " continues without a worker that was lost: ", error.what()));
  }
  const std::lock_guard lock(visitor.mutex);
  visitor.pair.reset();
}

// Does not wait longer than kLeaving for a lost worker whose loss this shard has not noticed yet.
bool Server::is_over() {
  if (!roster_.over()) return false;
  if (!ends_by_) ends_by_ = Clock::now() + clock_duration(kLeaving);
  return visitors_.empty() || Clock::now() >= *ends_by_;
}

double Server::patience() const {
  return place_.shard == 0 ? place_.world.timeout_s : 2 * place_.world.timeout_s;
}

bool Server::has_nobody() const {
  if (!visitors_.empty()) return false;
  const Roster::Status status = roster_.status();
  if (status.last_finished)  // but more workers were expected
    return failed_ || Clock::now() - empty_since_ >= clock_duration(patience());
  if (failed_) std::rethrow_exception(failed_);  // nobody else can come
  if (Clock::now() - empty_since_ >= clock_duration(patience()))
    throw exchange::RankLost(
        cat("parameter server: shard ", place_.shard,
            status.joined == 0 ? ": no worker came within "
                               : ": the last worker was lost, and no other came within ",
            patience(), " s"),
        {});
  return false;
}

bool Server::wait(double seconds) {
  std::unique_lock lock(mutex_);
  const auto deadline = deadline_after(seconds);
  while (true) {
    reap();
    if (failed_ && door_->is_displaced()) std::rethrow_exception(failed_);
    if (stops_ || is_over() || has_nobody()) return true;
    if (Clock::now() >= deadline) return false;
    auto next = deadline;
    if (visitors_.empty()) next = std::min(next, empty_since_ + clock_duration(patience()));
    if (ends_by_) next = std::min(next, *ends_by_);
    changed_.wait_until(lock, next);
  }
}

void Server::stop() {
  stops_ = true;
  const std::lock_guard lock(mutex_);
  for (Visitor& visitor : visitors_) {
    const std::lock_guard guard(visitor.mutex);
    if (visitor.pair) visitor.pair->abort("the parameter server's shard was stopped");
  }
  changed_.notify_all();
}

}  // namespace etr::server

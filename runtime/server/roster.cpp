#include "server/roster.h"

#include <algorithm>

#include "core/clock.h"
#include "core/error.h"

namespace etr::server {

Roster::Guest::Guest(Roster& roster) : roster_(roster) {
  const std::lock_guard lock(roster_.mutex_);
  ++roster_.guests_;
}

Roster::Guest::~Guest() {
  const std::lock_guard lock(roster_.mutex_);
  end();
}

void Roster::Guest::end() {
  if (counts_) --roster_.guests_;
  counts_ = false;
}

int Roster::free_number(int wanted) const {
  const auto taken = [&](int number) {
    return std::any_of(workers_.begin(), workers_.end(),
                       [&](const auto& entry) { return entry.second.number == number; });
  };
  if (wanted >= 0 && !taken(wanted)) return wanted;
  int number = 0;
  while (taken(number)) ++number;
  return number;
}

Roster::Ticket Roster::join(Guest& guest, int number, uint64_t workers) {
  const std::lock_guard lock(mutex_);
  if (over_)
    fail(Code::state,
         "the run is over, because its last worker has finished: start the servers again, and the "
         "workers with --resume");
  workers_[next_].number = free_number(number);
  to_come_ = std::max(to_come_, workers);
  ++status_.joined;
  guest.end();
  return next_++;
}

void Roster::admit(Guest& guest, Ticket ticket, int number) {
  const std::lock_guard lock(mutex_);
  if (ticket == 0 || workers_.contains(ticket))
    fail(Code::invalid_argument, "a worker comes with the ticket ", ticket,
         ", which the first shard has not given to it");
  workers_[ticket].number = number;
  ++status_.joined;
  guest.end();
}

int Roster::number(Ticket ticket) const {
  const std::lock_guard lock(mutex_);
  return workers_.at(ticket).number;
}

// Decides and removes under one lock, so that of two workers that leave at the same time exactly
// one is the last.
bool Roster::finish(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  const bool alone = workers_.size() == 1 && workers_.contains(ticket) && guests_ == 0;
  if (alone && status_.joined >= to_come_) over_ = true;
  remove(ticket, true);
  return over_;
}

void Roster::finish(Ticket ticket, bool over) {
  const std::lock_guard lock(mutex_);
  over_ = over_ || over;
  remove(ticket, true);
}

void Roster::lose(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  remove(ticket, false);
}

// Call with the lock held.
void Roster::remove(Ticket ticket, bool finished) {
  if (workers_.erase(ticket) == 0) return;
  if (finished) ++status_.finished;
  status_.last_finished = finished;
  if (beginner_ == ticket) beginner_.reset();
  if (warms_up_ == ticket) warms_up_.reset();
  changed_.notify_all();
}

bool Roster::over() const {
  const std::lock_guard lock(mutex_);
  return over_;
}

void Roster::end_all() {
  const std::lock_guard lock(mutex_);
  ends_ = true;
  changed_.notify_all();
}

Roster::Beginning Roster::wait_beginning(Ticket ticket, double seconds, bool can_begin) {
  std::unique_lock lock(mutex_);
  workers_.at(ticket).can_begin = can_begin;
  const auto may_begin = [&] { return can_begin && (!beginner_ || beginner_ == ticket); };
  changed_.wait_until(lock, deadline_after(seconds),
                      [&] { return begun_ || ends_ || may_begin(); });
  if (begun_) return Beginning::there;
  if (ends_) return Beginning::never;
  if (!may_begin()) return Beginning::not_yet;
  if (!beginner_) ++attempts_;
  beginner_ = ticket;
  return Beginning::yours;
}

uint64_t Roster::attempt() const {
  const std::lock_guard lock(mutex_);
  return attempts_;
}

bool Roster::has_beginner() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const auto& entry) { return entry.second.can_begin; });
}

void Roster::begun(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  if (beginner_ != ticket) return;
  begun_ = true;
  beginner_.reset();
  changed_.notify_all();
}

// Returns the least clock of the workers that have started; 0 if there are none.
uint64_t Roster::slowest() const {
  std::optional<uint64_t> least;
  for (const auto& [ticket, worker] : workers_)
    if (worker.started) least = std::min(least.value_or(worker.clock), worker.clock);
  return least.value_or(0);
}

// Returns whether the worker takes part. A worker that waits for the end of the warm start does
// not, so nobody waits for it.
bool Roster::starts(Ticket ticket, Worker& worker) {
  if (worker.started) return true;
  if (status_.pushes < warm_start_) {
    if (warms_up_) return false;
    warms_up_ = ticket;
  }
  worker.clock = slowest();
  worker.started = true;
  return true;
}

bool Roster::may_go_on(Ticket ticket) {
  if (ends_) return true;
  Worker& worker = workers_.at(ticket);
  return starts(ticket, worker) && (!delay_ || worker.clock <= slowest() + *delay_);
}

bool Roster::wait_turn(Ticket ticket, double seconds) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline_after(seconds), [&] { return may_go_on(ticket); });
}

bool Roster::in_order() const {
  const std::lock_guard lock(mutex_);
  return delay_ || status_.pushes < warm_start_;
}

uint64_t Roster::count_push(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  Worker& worker = workers_.at(ticket);
  ++worker.clock;
  ++status_.pushes;
  changed_.notify_all();
  return ++worker.pushes;
}

Roster::Status Roster::status() const {
  const std::lock_guard lock(mutex_);
  Status status = status_;
  status.workers = workers_.size();
  return status;
}

}  // namespace etr::server

#include "server/shard.h"

#include <algorithm>
#include <cmath>

#include "core/clock.h"
#include "core/error.h"

namespace etr::server {

int Shard::free_number(int wanted) const {
  const auto taken = [&](int number) {
    return std::any_of(workers_.begin(), workers_.end(),
                       [&](const auto& entry) { return entry.second.number == number; });
  };
  if (wanted >= 0 && !taken(wanted)) return wanted;
  int number = 0;
  while (taken(number)) ++number;
  return number;
}

Shard::Ticket Shard::join(int number) {
  const std::lock_guard lock(mutex_);
  Worker worker;
  worker.number = free_number(number);
  workers_[next_] = worker;
  ++status_.joined;
  return next_++;
}

int Shard::number(Ticket ticket) const {
  const std::lock_guard lock(mutex_);
  return workers_.at(ticket).number;
}

void Shard::leave(Ticket ticket, bool finished) {
  const std::lock_guard lock(mutex_);
  if (workers_.erase(ticket) == 0) return;
  if (finished) ++status_.finished;
  status_.last_finished = finished;
  if (beginner_ == ticket) beginner_.reset();
  changed_.notify_all();
}

void Shard::end_all() {
  const std::lock_guard lock(mutex_);
  ends_ = true;
  changed_.notify_all();
}

Shard::Beginning Shard::wait_beginning(Ticket ticket, double seconds, bool can_begin) {
  std::unique_lock lock(mutex_);
  workers_.at(ticket).can_begin = can_begin;
  const auto may_begin = [&] { return can_begin && (!beginner_ || beginner_ == ticket); };
  changed_.wait_until(lock, deadline_after(seconds), [&] { return begun_ || may_begin(); });
  if (begun_) return Beginning::there;
  if (!may_begin()) return Beginning::not_yet;
  if (!beginner_) {
    beginner_ = ticket;
    tables_.clear();
  }
  return Beginning::yours;
}

bool Shard::has_beginner() const {
  const std::lock_guard lock(mutex_);
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const auto& entry) { return entry.second.can_begin; });
}

void Shard::begin(std::span<const float> weights, std::span<const float> state, uint64_t decayed) {
  if (!state.empty() && state.size() != weights.size())
    fail(Code::invalid_argument, "a state of ", state.size(), " numbers for ", weights.size(),
         " parameters");
  const std::lock_guard lock(mutex_);
  weights_.assign(weights.begin(), weights.end());
  state_.assign(state.begin(), state.end());
  state_.resize(weights_.size());
  decayed_ = decayed;
  begun_ = true;
  beginner_.reset();
  changed_.notify_all();
}

void Shard::declare_tables(std::span<const TableSpec> specs, int shard, int shards) {
  const std::lock_guard lock(mutex_);
  if (begun_ && tables_.count() == 0 && !specs.empty())
    fail(Code::invalid_argument, "this worker's model has ", specs.size(),
         " sparse tables, and the one that is trained here has none: run the same job on all "
         "workers");
  tables_.declare(specs, shard, shards);
}

size_t Shard::table_count() const {
  const std::lock_guard lock(mutex_);
  return tables_.count();
}

void Shard::put_rows(uint64_t table, const Rows& rows) {
  const std::lock_guard lock(mutex_);
  if (begun_) fail(Code::state, "the shard has its rows already");
  tables_.put(table, rows);
}

void Shard::read_rows(std::span<const uint32_t> words, std::vector<float>& to) const {
  const std::lock_guard lock(mutex_);
  tables_.read(words, to);
}

Rows Shard::piece_of_rows(uint64_t table, uint64_t begin) const {
  const std::lock_guard lock(mutex_);
  return tables_.piece(table, begin);
}

uint64_t Shard::size() const {
  const std::lock_guard lock(mutex_);
  return weights_.size();
}

// Of those who have started; without any, 0.
uint64_t Shard::slowest() const {
  std::optional<uint64_t> least;
  for (const auto& [ticket, worker] : workers_)
    if (worker.started) least = std::min(least.value_or(worker.clock), worker.clock);
  return least.value_or(0);
}

void Shard::start(Ticket ticket) {
  const std::lock_guard lock(mutex_);
  Worker& worker = workers_.at(ticket);
  if (worker.started) return;
  worker.clock = slowest();
  worker.started = true;
}

bool Shard::may_go_on(Ticket ticket) const {
  if (ends_) return true;
  if (status_.applied < options_.warm_start && first_started() != ticket) return false;
  return !options_.delay || workers_.at(ticket).clock <= slowest() + *options_.delay;
}

Shard::Ticket Shard::first_started() const {
  const auto first = std::find_if(workers_.begin(), workers_.end(),
                                  [](const auto& entry) { return entry.second.started; });
  return first == workers_.end() ? 0 : first->first;
}

bool Shard::wait_turn(Ticket ticket, double seconds) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline_after(seconds), [&] { return may_go_on(ticket); });
}

uint64_t Shard::count_push(Ticket ticket) {
  Worker& worker = workers_.at(ticket);
  ++worker.clock;
  ++status_.applied;
  changed_.notify_all();
  return ++worker.applied;
}

void Shard::apply_adagrad(std::span<const float> gradient, float rate) {
  const float epsilon = options_.epsilon;
  for (size_t i = 0; i < gradient.size(); ++i) {
    const float g = gradient[i] + decay_at(i) * weights_[i];
    state_[i] += g * g;
    weights_[i] -= rate * g / (std::sqrt(state_[i]) + epsilon);
  }
}

void Shard::apply_sgd(std::span<const float> gradient, float rate) {
  const float momentum = options_.momentum;
  for (size_t i = 0; i < gradient.size(); ++i) {
    const float g = gradient[i] + decay_at(i) * weights_[i];
    state_[i] = momentum * state_[i] + g;
    weights_[i] -= rate * state_[i];
  }
}

uint64_t Shard::push(Ticket ticket, std::span<const float> gradient, float rate,
                     const RowParts& rows) {
  const std::lock_guard lock(mutex_);
  if (gradient.size() != weights_.size())
    fail(Code::invalid_argument, "a gradient of ", gradient.size(), " numbers for a slice of ",
         weights_.size());
  tables_.push(rows, rate);
  if (options_.adagrad)
    apply_adagrad(gradient, rate);
  else
    apply_sgd(gradient, rate);
  return count_push(ticket);
}

uint64_t Shard::average(Ticket ticket, std::span<float> weights, float rate) {
  const std::lock_guard lock(mutex_);
  if (weights.size() != weights_.size())
    fail(Code::invalid_argument, "weights of ", weights.size(), " numbers for a slice of ",
         weights_.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    const float centre = weights_[i];
    weights_[i] += rate * (weights[i] - centre);
    weights[i] = centre;
  }
  return count_push(ticket);
}

void Shard::copy_weights(std::vector<float>& to) const {
  const std::lock_guard lock(mutex_);
  to = weights_;
}

void Shard::copy_state(std::vector<float>& to) const {
  const std::lock_guard lock(mutex_);
  to = weights_;
  to.insert(to.end(), state_.begin(), state_.end());
}

Shard::Status Shard::status() const {
  const std::lock_guard lock(mutex_);
  Status status = status_;
  status.workers = workers_.size();
  status.rows = tables_.rows();
  return status;
}

}  // namespace etr::server

#include "server/shard.h"

#include "core/error.h"
#include "server/update_rule.h"

namespace etr::server {

// Call with the lock held. Discards what an earlier attempt has set.
void Shard::go_on_with(uint64_t attempt) {
  if (attempt < attempt_)
    fail(Code::state,
         "another worker provides the initial weights, because this one counted as lost");
  if (attempt == attempt_) return;
  attempt_ = attempt;
  tables_.declare({});
  weights_.clear();
  state_.clear();
}

void Shard::begin(uint64_t attempt, uint64_t count, std::span<const float> weights,
                  std::span<const float> state, uint64_t decayed) {
  if (!state.empty() && state.size() != weights.size())
    fail(Code::invalid_argument, "a state of ", state.size(), " numbers for ", weights.size(),
         " parameters");
  const std::lock_guard lock(mutex_);
  go_on_with(attempt);
  count_ = count;
  weights_.assign(weights.begin(), weights.end());
  state_.assign(state.begin(), state.end());
  state_.resize(weights_.size());
  decayed_ = decayed;
}

void Shard::declare_tables(uint64_t attempt, std::span<const TableSpec> specs) {
  const std::lock_guard lock(mutex_);
  go_on_with(attempt);
  tables_.declare(specs);
}

void Shard::put_rows(uint64_t attempt, uint64_t table, const Rows& rows) {
  const std::lock_guard lock(mutex_);
  go_on_with(attempt);
  tables_.put(table, rows);
}

std::vector<TableSpec> Shard::check_model(uint64_t count, std::span<const TableSpec> tables) const {
  const std::lock_guard lock(mutex_);
  if (count != count_)
    fail(Code::invalid_argument, "this worker's model has ", count,
         " parameters, and the one that is trained here ", count_,
         ": run the same job on all workers");
  return tables_.check_like(tables);
}

uint64_t Shard::most_words() const {
  const std::lock_guard lock(mutex_);
  return tables_.most_words();
}

uint64_t Shard::widest_row() const {
  const std::lock_guard lock(mutex_);
  return tables_.widest();
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

void Shard::check_length(size_t numbers) const {
  if (numbers != weights_.size())
    fail(Code::invalid_argument, "an exchange of ", numbers, " numbers with a slice of ",
         weights_.size());
}

void Shard::push(std::span<const float> gradient, float rate, const RowParts& rows) {
  const std::lock_guard lock(mutex_);
  check_length(gradient.size());
  tables_.push(rows, rate);
  const auto with_decay = [&](size_t i) { return gradient[i] + decay_at(i) * weights_[i]; };
  if (options_.adagrad)
    for (size_t i = 0; i < gradient.size(); ++i)
      adagrad(weights_[i], state_[i], with_decay(i), rate, options_.epsilon);
  else
    for (size_t i = 0; i < gradient.size(); ++i)
      sgd(weights_[i], state_[i], with_decay(i), rate, options_.momentum);
}

void Shard::average(std::span<float> weights, float rate) {
  const std::lock_guard lock(mutex_);
  check_length(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    const float centre = weights_[i];
    weights_[i] += rate * (weights[i] - centre);
    weights[i] = centre;
  }
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

uint64_t Shard::rows() const {
  const std::lock_guard lock(mutex_);
  return tables_.rows();
}

}  // namespace etr::server

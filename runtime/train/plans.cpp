#include "train/plans.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "train/batch_fields.h"

namespace etr::train {
namespace {

// Evaluation plans of a shape; after these, a plan is made for twice the rows.
constexpr size_t kMostOfAShape = 3;

}  // namespace

Planned* Plans::find(int64_t rows, const nn::Fields& fields) {
  for (auto it = kept_.begin(); it != kept_.end(); ++it)
    if ((*it)->rows == rows && (*it)->fields == fields) return &used(it);
  return nullptr;
}

Planned& Plans::used(Kept::iterator it) {
  kept_.splice(kept_.begin(), kept_, it);
  return *kept_.front();
}

Planned& Plans::add(int64_t rows, const nn::Fields& fields) {
  std::shared_ptr<Planned> made;
  with_room(nullptr,
            [&] { made = std::make_shared<Planned>(kernels_, model_, weights_, rows, fields); });
  kept_.push_front(std::move(made));
  if (kept_.size() > kMost) {
    if (!std::exchange(warned_, true))
      log_line(
          LogLevel::info,
          cat("batches come in more than ", kMost,
              " shapes, and each new shape needs a new plan, for which steps wait: pad them to "
              "a few shapes"));
    drop_oldest(kept_.front().get());
  }
  return *kept_.front();
}

void Plans::with_room(const Planned* planned, const std::function<void()>& make) {
  for (bool made = false; !made;) try {
      make();
      made = true;
    } catch (const Error& error) {
      if (error.code() != Code::out_of_memory || !drop_oldest(planned)) throw;
    }
  // The other half of the memory is for the other plans, and for other users of the device.
  const auto needed = [&](const Planned* of) { return of == planned || of == last_trained_; };
  for (auto it = kept_.end();
       it != kept_.begin() && reserved_bytes() > memory_of(*kernels_.device()) / 2;)
    if (--it; !needed(it->get())) it = drop(it);
}

// The latest training plan is used by every step, so it is dropped last.
bool Plans::drop_oldest(const Planned* but) {
  auto oldest = kept_.end();
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    const bool is_last_resort = it->get() == last_trained_ && oldest != kept_.end();
    if (it->get() != but && !is_last_resort) oldest = it;
  }
  if (oldest == kept_.end()) return false;
  drop(oldest);
  return true;
}

// Keeps the results of the plan's steps.
Plans::Kept::iterator Plans::drop(Kept::iterator it) {
  if (Planned::Training* training = (*it)->training())
    for (graph::StepResult& result : training->fed.runner->take_results(true))
      results_[result.tag] = std::move(result);
  if (it->get() == last_trained_) last_trained_ = nullptr;
  return kept_.erase(it);
}

uint64_t memory_of(const gpu::Device& device) {
  const uint64_t limit = device.options().memory_limit_bytes, all = device.info().memory_bytes;
  return limit ? std::min(limit, all) : all;
}

Planned& Plans::exactly(int64_t rows, const nn::Fields& fields) {
  if (Planned* found = find(rows, fields)) return *found;
  return add(rows, fields);
}

Seen Plans::look_at(const pipeline::Item& batch) const {
  Seen seen = train::look_at(batch, model_);
  for (const graph::ValueId id : weights_.net.inputs) {
    const graph::Value& value = weights_.net.graph.value(id);
    if (seen.fields.at(value.name).dtype != value.dtype)
      check_fields(batch, weights_.net, {id}, model_, *kernels_.device());
  }
  return seen;
}

bool Plans::changes(const pipeline::Item& batch) const {
  const Seen seen = look_at(batch);
  return !last_trained_ || last_trained_->fields != seen.fields || last_trained_->rows < seen.rows;
}

Planned& Plans::training(const pipeline::Item& batch, bool changes) {
  const Seen seen = look_at(batch);
  Planned* last = last_trained_;
  const Reservoir* reservoir = last ? last->training()->fed.feeds->reservoir() : nullptr;
  if (reservoir && batch.views) reservoir->check_like(batch.views->front());
  const bool again = !changes && last && last->fields == seen.fields && last->rows >= seen.rows;
  Planned& planned = again ? *last : exactly(rows_to_train(seen), seen.fields);
  planned.check(batch);
  if (!again) {
    train_on(planned, batch);
    trained_rows_[fields_text(seen.fields)] = planned.rows;
    if (weights_.ranks)
      weights_.ranks->agree_on_unit(
          graph::elements_of_mean(planned.net().graph, planned.net().loss));
  }
  if (static_cast<bool>(batch.views) !=
      static_cast<bool>(planned.training()->fed.feeds->reservoir()))
    fail(Code::state,
         "a run works on batches of images or on batches of views, not on both in turn");
  return planned;
}

int64_t Plans::rows_to_train(const Seen& seen) {
  const int64_t rows = std::max(most_trained(seen.fields), seen.rows);
  if (!weights_.ranks && !weights_.stage) return rows;
  results(/*wait_all=*/true);  // their exchanges use the ranks' group
  return weights_.ranks ? weights_.ranks->most(rows) : in_micro_batches(weights_.stage->most(rows));
}

// Rounds up to whole micro-batches.
int64_t Plans::in_micro_batches(int64_t rows) const {
  const int64_t parts = weights_.stage ? weights_.stage->micro_batches() : 1;
  return (rows + parts - 1) / parts * parts;
}

int64_t Plans::most_trained(const nn::Fields& fields) const {
  const auto trained = trained_rows_.find(fields_text(fields));
  return trained == trained_rows_.end() ? 0 : trained->second;
}

// Drops training plans for the same shape that have become too small.
void Plans::train_on(Planned& planned, const pipeline::Item& first) {
  if (!planned.training()) {
    for (auto it = kept_.begin(); it != kept_.end();) {
      const bool outgrown =
          it->get() != &planned && (*it)->fields == planned.fields && (*it)->training();
      it = outgrown ? drop(it) : std::next(it);
    }
    with_room(&planned, [&] { planned.make_training(first, view_samples_); });
  }
  last_trained_ = &planned;
}

void Plans::go_on_with(std::map<std::string, int64_t> trained_rows) {
  trained_rows_ = std::move(trained_rows);
  last_trained_ = nullptr;  // it may have other numbers of rows
}

bool Plans::ready_within(double seconds) {
  return !last_trained_ || last_trained_->training()->fed.runner->ready_within(seconds);
}

// Uses as many rows as training steps have (perhaps before an interruption), so that a resumed
// run's evaluations have the same bits.
Planned& Plans::scoring(const Seen& seen) {
  const int64_t trained = most_trained(seen.fields);
  // All stages plan for the same rows, whatever memory each has.
  if (weights_.stage) return exactly(in_micro_batches(std::max(trained, seen.rows)), seen.fields);
  return trained >= seen.rows ? exactly(trained, seen.fields) : predicting(seen);
}

// Estimates from what all values would take without sharing memory, which is far more than a plan
// takes.
int64_t Plans::most_rows(int64_t rows, const nn::Fields& fields) const {
  const nn::ModelGraph net = model_.build(rows, fields);
  uint64_t all = 0, largest = 0;
  for (const graph::Value& value : net.graph.values()) {
    if (value.kind != graph::ValueKind::input && value.kind != graph::ValueKind::result) continue;
    const uint64_t bytes = static_cast<uint64_t>(element_count(value.shape)) * 4;
    all += bytes;
    largest = std::max(largest, bytes);
  }
  const auto of = [](uint64_t bytes, uint64_t limit) {
    return static_cast<double>(bytes) / static_cast<double>(limit);
  };
  const double share = std::max(of(all, memory_of(*kernels_.device()) / 4),
                                of(largest, kernels_.device()->max_tensor_bytes()));
  if (share <= 1) return rows;
  return std::max<int64_t>(static_cast<int64_t>(static_cast<double>(rows) / share), 1);
}

Planned& Plans::predicting(const Seen& seen) {
  const auto& [fields, rows] = seen;
  auto best = kept_.end();
  size_t of_shape = 0;
  for (auto it = kept_.begin(); it != kept_.end(); ++it) {
    if ((*it)->fields != fields) continue;
    ++of_shape;
    if ((*it)->rows >= rows && (best == kept_.end() || (*it)->rows < (*best)->rows)) best = it;
  }
  if (best != kept_.end()) return used(best);
  const int64_t wanted = of_shape < kMostOfAShape ? rows : 2 * rows;
  return exactly(most_rows(wanted, fields), fields);
}

FedRunner& Plans::scorer(Planned& planned, const pipeline::Item& batch) {
  FedRunner* out = nullptr;
  with_room(&planned, [&] { out = &planned.scorer(batch); });
  return *out;
}

FedRunner& Plans::predictor(Planned& planned, const pipeline::Item& batch) {
  FedRunner* out = nullptr;
  with_room(&planned, [&] { out = &planned.predictor(batch); });
  return *out;
}

std::map<uint64_t, graph::StepResult>& Plans::results(bool wait_all) {
  for (const auto& planned : kept_)
    if (Planned::Training* training = planned->training())
      for (graph::StepResult& result : training->fed.runner->take_results(wait_all))
        results_[result.tag] = std::move(result);
  return results_;
}

int Plans::in_flight() const {
  int count = 0;
  for (const auto& planned : kept_)
    if (Planned::Training* training = planned->training())
      count += training->fed.runner->in_flight();
  return count;
}

uint64_t Plans::reserved_bytes() const {
  uint64_t bytes = 0;
  for (const auto& planned : kept_) bytes += planned->reserved_bytes();
  return bytes;
}

ReservoirStats Plans::reservoir() const {
  for (const auto& planned : kept_)
    if (Planned::Training* training = planned->training())
      if (const Reservoir* reservoir = training->fed.feeds->reservoir()) return reservoir->stats();
  return {};
}

}  // namespace etr::train

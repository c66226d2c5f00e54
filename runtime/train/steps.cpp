#include "train/steps.h"

#include <cmath>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "core/text.h"
#include "gpu/run_once.h"
#include "train/batch_fields.h"
#include "train/finite.h"

namespace etr::train {
namespace {

// Describes the first label in host memory that is not a class: "label 5, but the model has 3
// classes (...): "; "" if there is none.
std::string wrong_label(const pipeline::Item& batch, const nn::Loss& loss,
                        const nn::ModelGraph& net) {
  const Tensor* labels = loss.classifies() ? batch.find(loss.target()) : nullptr;
  if (!labels || labels->dtype() != DType::i32) return "";
  const int64_t classes = net.graph.shape(net.output).back();
  for (const int32_t label : labels->view<int32_t>())
    if (label != loss.ignore_index() && (label < 0 || label >= classes))
      return cat("label ", label, ", but the model has ", counted(classes, "class", "classes"),
                 " (field '", loss.target(), "': 0 to ", classes - 1, "; ignore_index is ",
                 loss.ignore_index(), "): ");
  return "";
}

// Repeats a step and checks the results of each command.
std::string repeated(Plans& plans, Planned& planned, const pipeline::Item& batch,
                     const ops::StepValues& values) {
  Planned::Training& training = *planned.training();
  graph::Runner& runner = training.fed.filled(batch);
  std::vector<Named> given;
  for (const graph::ValueId id : planned.fed())
    if (planned.net().graph.value(id).dtype == DType::f32)
      given.push_back({cat("the batch's field '", planned.net().graph.value(id).name, "'"),
                       training.plan.tensor(id).buffer});
  const graph::ParameterStore& store = plans.weights().store;
  for (const auto& parameter : store.parameters())
    given.push_back(
        {cat("the parameter '", parameter.name, "'"), store.tensor(parameter.name).buffer});
  std::vector<gpu::Buffer> kept;
  for (const std::string& name : store.names()) kept.push_back(store.stored(name).buffer);
  const auto states = plans.weights().states();
  std::string found = first_not_finite(plans.kernels(), runner.input_commands(values), given, kept,
                                       training.plan.commands());
  plans.weights().set_states(states);
  return found;
}

// Says where a number was not finite. `repeated`: what this rank found when it repeated the step;
// none if it could not.
std::string whence(const std::optional<std::string>& repeated, const Weights& weights) {
  const parallel::Sharing* ranks = weights.ranks;
  if (weights.stage)
    return "a model that is cut into stages does not repeat the step: continue from the "
           "last checkpoint on one device to see which layer produces it first";
  if (!repeated)
    return "the step was not repeated: batches of other shapes have taken its plan's memory";
  const std::string& first = *repeated;
  if (!first.empty()) return cat("the first to be NaN or infinite: ", first);
  if (ranks && ranks->size() > 1)
    return cat("not in the part of the batch that rank ", ranks->rank(), " had, but in another's");
  return "it did not come again when the step was repeated";
}

std::string left_out(uint64_t step, size_t behind) {
  if (behind == 0) return "";
  if (behind == 1) return cat("; step ", step + 1, " after it was left out");
  return cat("; steps ", step + 1, " to ", step + behind, " after it were left out");
}

}  // namespace

// Returns the values of a step, without those of its batch.
ops::StepValues Steps::values_of(const SampleCounts& counts) const {
  const uint64_t k = accumulate_, count = passed_.steps;
  ops::StepValues values;
  values.step = static_cast<uint32_t>(count);
  values.seed_lo = static_cast<uint32_t>(seed_);
  values.seed_hi = static_cast<uint32_t>(seed_ >> 32);
  const optim::Passed after{count + 1, passed_.fresh + static_cast<uint64_t>(counts.fresh),
                            passed_.examples + static_cast<uint64_t>(counts.samples)};
  const float rate =
      schedule_.rate(schedule_.clock(passed_, k), schedule_.counts_fresh() ? counts.fresh : 1);
  values.learning_rate = static_cast<float>(rate * schedule_.echo_correction(after));
  put_hyperparameters(values);
  values.update = (count + 1) % k == 0 ? static_cast<uint32_t>((count + 1) / k) : 0;
  values.flags =
      (count % k == 0 ? ops::StepValues::kFirstOfUpdate : 0) | ops::StepValues::kFreshBatch;
  return values;
}

ops::StepValues Steps::values_for(const pipeline::Item& batch, const Plans& plans,
                                  const SampleCounts& counts, const Planned& planned) const {
  ops::StepValues values = values_of(counts);
  values.valid_rows = static_cast<uint32_t>(rows_of(batch, plans.model().inputs()[0]));
  values.rows = static_cast<uint32_t>(planned.rows);
  if (const parallel::Sharing* ranks = plans.weights().ranks)
    values.first_row = values.rows * static_cast<uint32_t>(ranks->rank());
  if (const parallel::ModelStage* stage = plans.weights().stage)
    values.first_row =
        values.rows * static_cast<uint32_t>(stage->mesh().place(parallel::Axis::data));
  if (batch.replica != 0) values.flags &= ~ops::StepValues::kFreshBatch;
  return values;
}

ops::StepValues Steps::values_of_pass(uint32_t pass) const {
  constexpr uint32_t kApart = 0x9e3779b9;  // so that passes draw different numbers
  ops::StepValues values = values_of({});
  values.seed_hi += pass * kApart;
  return values;
}

void Steps::count_step(const SampleCounts& counts) {
  ++passed_.steps;
  latest_fresh_ = static_cast<uint64_t>(counts.fresh);
  passed_.fresh += latest_fresh_;
  passed_.examples += static_cast<uint64_t>(counts.samples);
}

void Steps::put_hyperparameters(ops::StepValues& values) const {
  hyperparameters_.put(values, passed_);
}

void Steps::start(Plans& plans, const pipeline::Item& batch,
                  const std::optional<SampleCounts>& all_ranks, bool plan_changes) {
  // A program may take results late or never. It should not need the memory of all its batches.
  if (started_.size() > size_t{graph::Runner::kSlots}) collect(plans, /*wait_all=*/false);
  Planned& planned = plans.training(batch, plan_changes);
  const SampleCounts counts = all_ranks ? *all_ranks : counts_of(batch, plans.model().inputs()[0]);
  const ops::StepValues values = values_for(batch, plans, counts, planned);
  planned.training()->fed.filled_for(batch, values.step).submit(values, ++tickets_);
  count_step(counts);
  ++plans.weights().age;
  StepMetrics metrics;
  metrics.step = passed_.steps;
  metrics.learning_rate = values.learning_rate;
  metrics.counts = counts;
  started_.push_back(
      {tickets_, metrics, values, failed_ ? pipeline::Item() : batch, planned.weak_from_this()});
}

gpu::CommandList Steps::input_commands(const Plans& plans, Planned& planned,
                                       const pipeline::Item& batch) const {
  const ops::StepValues values =
      values_for(batch, plans, counts_of(batch, plans.model().inputs()[0]), planned);
  return planned.training()->fed.filled(batch).input_commands(values);
}

void Steps::compute_gradients(Plans& plans, const pipeline::Item& batch) const {
  Planned& planned = plans.training(batch);
  gpu::CommandList commands = input_commands(plans, planned, batch);
  const gpu::CommandList& passes = planned.training()->plan.commands();
  commands.insert(commands.end(), passes.begin(), passes.end());
  gpu::run_once(plans.kernels().device(), commands);
}

void Steps::wait_oldest() {
  if (started_.empty() || !finished_.empty() || failed_) return;
  // Without its plan, which waits for its steps before it goes, the step has ended.
  const auto planned = started_.front().planned.lock();
  if (planned && planned->training()) planned->training()->fed.runner->wait_oldest();
}

std::vector<StepMetrics> Steps::take_metrics(Plans& plans, bool wait_all) {
  collect(plans, wait_all);
  if (failed_ && finished_.empty()) fail_not_finite(plans);
  return std::exchange(finished_, {});
}

// Makes metrics of the results that are there. The batch of a step is let go with it, unless the
// step was not finite.
void Steps::collect(Plans& plans, bool wait_all) {
  if (failed_) return;  // the steps after it changed nothing
  auto& results = plans.results(wait_all);
  while (!started_.empty() && results.contains(started_.front().ticket)) {
    const Started step = std::move(started_.front());
    started_.pop_front();
    const graph::StepResult result = std::move(results.extract(step.ticket).mapped());
    StepMetrics metrics = step.metrics;
    metrics.loss = result.outputs[0][0];
    // A loss scale that was too large has already been halved. At its minimum, the numbers
    // themselves are at fault.
    const bool gradients_failed = plans.weights().loss_scale
                                      ? result.not_finite == ops::StepValues::kHopeless
                                      : result.not_finite;
    if (!std::isfinite(metrics.loss) || gradients_failed) {
      // Thrown after the results before it have been taken.
      failed_ = {step, metrics.loss};
      return;
    }
    metrics.skipped = result.not_finite != 0;
    if (metrics.skipped)
      log_line(LogLevel::info,
               cat("step ", metrics.step, ": a gradient was too large for fp16; ",
                   accumulate_ > 1 ? "the update to which it contributes is left out"
                                   : "there was no update",
                   ", and the loss scale is halved"));
    if (result.outputs.size() > 1) metrics.accuracy = result.outputs[1][0];
    metrics.busy_seconds = result.busy_seconds;
    finished_.push_back(metrics);
  }
}

// The parameters are unchanged. Running statistics were moved by the forward pass.
void Steps::fail_not_finite(Plans& plans) {
  const auto [step, loss] = *std::exchange(failed_, std::nullopt);
  const size_t behind = started_.size();
  forget_started(plans);
  // Uses only the plan of the step itself: ranks agree on new plans, and others may still have the
  // old one.
  const auto planned = step.planned.lock();
  std::optional<std::string> first;
  if (planned && planned->training() && !plans.weights().stage)
    first = repeated(plans, *planned, step.batch, step.values);
  const bool of_loss = !std::isfinite(loss);
  // the sign of a NaN depends on the driver
  const float shown = std::isnan(loss) ? std::abs(loss) : loss;
  fail(Code::not_finite, wrong_label(step.batch, plans.model().loss(), plans.weights().net),
       "step ", step.metrics.step, ": ",
       of_loss ? cat("the loss is ", shown) : "a gradient is not finite", "; ",
       whence(first, plans.weights()), ". The parameters are as they were",
       left_out(step.metrics.step, behind),
       ". Lower the learning rate or clip gradients (clip_norm) if the training diverged; check "
       "the data, and that labels lie within the model's classes");
}

// These steps changed nothing.
void Steps::forget_started(Plans& plans) {
  plans.results(true).clear();
  plans.weights().update->resume();
  started_.clear();
}

void Steps::go_on_after(const optim::Passed& passed, uint64_t latest_fresh, Plans* plans) {
  passed_ = passed;
  latest_fresh_ = latest_fresh;
  if (!failed_) return;
  forget_started(*plans);
  failed_.reset();
}

}  // namespace etr::train

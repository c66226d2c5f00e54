#include "train/learner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "core/options.h"
#include "core/platform.h"
#include "core/text.h"
#include "train/batch_fields.h"
#include "train/profile.h"
#include "train/summary.h"

namespace etr::train {
namespace {

constexpr const char* kNoWeights =
    "there are no weights before the first batch: make a step or a prediction first";

std::optional<double> smoothing_of(const nn::Loss& loss) {
  return loss.classifies() ? std::optional(loss.label_smoothing()) : std::nullopt;
}

optim::Schedule schedule_of(const LearnerSpec& spec, int64_t accumulate) {
  const Options options(optim::schedule_schema(), "schedule", spec.schedule);
  if (optim::counts_fresh(options)) return {options, spec.total_fresh};
  const int64_t updates = spec.total_steps / accumulate;
  try {
    return {options, updates};
  } catch (const Error& error) {  // which would ask for a length that was given
    if (updates > 0 || spec.total_steps == 0) throw;
    fail(error.code(), "the run has ", counted(spec.total_steps, "step"), ", and 'accumulate' is ",
         accumulate, ", so that it makes no update: lower 'accumulate', or train for more steps (",
         error.what(), ")");
  }
}

}  // namespace

Learner::Learner(std::shared_ptr<gpu::Kernels> kernels, const LearnerSpec& spec,
                 std::unique_ptr<parallel::Sharing> ranks,
                 std::unique_ptr<parallel::ModelStage> stage)
    : kernels_(std::move(kernels)),
      ranks_(std::move(ranks)),
      stage_(std::move(stage)),
      model_(spec.model, /*serves=*/ranks_ && ranks_->rows()),
      initial_(spec.weights ? spec.weights : model_.weights()),
      update_(spec.optimizer),
      seed_(spec.seed),
      steps_(schedule_of(spec, update_.accumulate()), update_, smoothing_of(model_.loss()), seed_) {
}

Learner::~Learner() = default;

int64_t Learner::trainable() const { return weights_ ? weights_->trainable() : 0; }
int Learner::in_flight() const { return plans_ ? plans_->in_flight() : 0; }
uint64_t Learner::plan_bytes() const { return plans_ ? plans_->reserved_bytes() : 0; }
uint64_t Learner::device_bytes() const {
  return plan_bytes() +
         (weights_ ? weights_->store.reserved_bytes() + weights_->update->reserved_bytes() : 0);
}

bool Learner::ready_within(double seconds) {
  if (!plans_) return true;
  if (ranks_ && !ranks_->ready_within(seconds)) {
    plans_->results(/*wait_all=*/false);  // throws if a step has failed, which would end the wait
    return false;
  }
  return plans_->ready_within(seconds);
}

ReservoirStats Learner::reservoir() const {
  return plans_ ? plans_->reservoir() : ReservoirStats{};
}

// A step with host turns reaches the device's queue piece by piece, and commands without turns
// would overtake its later pieces, and so its update.
void Learner::wait() const {
  if (plans_) plans_->results(/*wait_all=*/true);
}

Weights& Learner::begun(const char* otherwise) const {
  if (!weights_) fail(Code::state, otherwise);
  return *weights_;
}

void Learner::replace_weights(const std::function<void()>& set) {
  if (ranks_)
    ranks_->replace_weights(weights_->store, set);
  else
    set();
}

Plans& Learner::plans_for(const pipeline::Item& batch, bool with_target) {
  if (!plans_) begin(batch, with_target);
  return *plans_;
}

// Makes the model's parameters from the first batch, once that is known to fit.
void Learner::begin(const pipeline::Item& batch, bool with_target) {
  const Seen seen = look_at(batch, model_);
  nn::ModelGraph net = model_.build(seen.rows, seen.fields);
  check_fields(batch, net, with_target ? fed_values(net) : net.inputs, model_, *device());
  parallel::TensorParallel* tensor = ranks_   ? ranks_->tensor()
                                     : stage_ ? stage_->tensor()
                                              : nullptr;
  if (tensor || stage_)
    for (const graph::Value& value : net.graph.values())
      if (value.kind == graph::ValueKind::frozen)
        fail(Code::unsupported, "the model's parameter '", value.name,
             "' is frozen, and parallel.mesh divides the model among ranks: freeze nothing, or let "
             "the ranks share batches only (parallel.mesh.data)");
  if (stage_) {
    const int64_t parts = stage_->micro_batches();
    net = model_.build((stage_->most(seen.rows) + parts - 1) / parts, seen.fields);
    const nn::ModelGraph own = tensor ? nn::split(net, tensor->rank(), tensor->size()).net : net;
    graph::PlanOptions options = training_options(own);
    options.outputs = {own.loss};
    stage_->cut(*kernels_, own.graph, options, memory_of(*device()));
  }
  parallel::ShardedUpdate* sharded = ranks_ ? ranks_->sharded() : nullptr;
  auto weights =
      std::make_unique<Weights>(*kernels_, std::move(net), seed_, tensor, stage_.get(), sharded);
  if (tensor && tensor->rank() == 0 && (stage_ ? stage_->mesh().rank() : ranks_->rank()) == 0)
    log_line(LogLevel::info,
             cat(tensor->size(),
                 " ranks share the model's tensors:", nn::to_text(weights->split.layers)),
             LogSubject::partition);
  if (initial_) weights->start_from(*initial_);
  if (imported_) weights->import(*imported_);
  weights->make_update(update_);
  if (sharded && ranks_->rank() == 0)
    log_line(LogLevel::info, parallel::to_text(*sharded, *weights->update), LogSubject::partition);
  auto plans = std::make_unique<Plans>(*kernels_, model_, *weights, view_samples_);
  if (loaded_) {
    weights->load(weights->own_of(*loaded_));
    plans->go_on_with(loaded_->rows);
  }
  weights->served =
      served_tables(ranks_ ? ranks_->rows() : nullptr, weights->whole, update_, seed_);
  if (ranks_) ranks_->share(weights->store);
  if (stage_) stage_->share(weights->store);
  if (!loaded_) weights->update->begin_averages();
  weights->ranks = ranks_.get();
  weights_ = std::move(weights);
  plans_ = std::move(plans);
  imported_.reset();  // only now: after an error, the next batch begins anew
  loaded_.reset();
}

void Learner::prepare(const pipeline::Item& batch) {
  plans_for(batch, /*with_target=*/true).training(batch);
}

void Learner::shape(const pipeline::Item& batch) {
  plans_for(batch, /*with_target=*/true).look_at(batch);
}

void Learner::step(const pipeline::Item& batch, const std::optional<SampleCounts>& counts,
                   bool plan_changes) {
  if (ranks_ && plans_ && ranks_->exchange_due()) {
    wait();
    ranks_->exchange(weights_->store);
    ++weights_->age;
  }
  steps_.start(plans_for(batch, /*with_target=*/true), batch, counts, plan_changes);
  forget_passes();  // the step has gradients of its own
  if (ranks_) ranks_->started(steps_.count());
}

std::vector<StepMetrics> Learner::take_metrics(bool wait_all) {
  if (!plans_) return {};
  try {
    return steps_.take_metrics(*plans_, wait_all);
  } catch (const Error&) {
    forget_passes();  // the step that failed has been repeated
    throw;
  }
}

void Learner::wait_for_steps(double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (in_flight() > 0 && std::chrono::steady_clock::now() < until) {
    const int before = in_flight();
    try {
      plans_->results(/*wait_all=*/false);
    } catch (const Error& error) {
      log_line(LogLevel::debug, error.what());
      if (in_flight() == before) return;  // the device is lost
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Learner::settle() {
  if (!ranks_ || !weights_) return;
  wait();
  ranks_->settle(weights_->store);
  ++weights_->age;
}

void Learner::finish(bool all_end) {
  if (!ranks_) return;
  if (!weights_) return ranks_->leave(all_end);
  wait();
  ranks_->finish(weights_->store, all_end);
  ++weights_->age;
}

void Learner::average_states() {
  if (!weights_ || (!ranks_ && !stage_)) return;
  wait();  // their exchanges use the ranks' group
  if (ranks_) ranks_->average_states(weights_->store);
  if (stage_) stage_->average_states(weights_->store);
  ++weights_->age;
}

void Learner::forget_residuals() {
  if (!ranks_ || !weights_) return;
  wait();
  ranks_->forget_residuals();
}

Passes& Learner::passes_for(const pipeline::Item& batch) {
  if (ranks_ || stage_)
    fail(Code::unsupported,
         "separate forward and backward passes work on one device only; here several take "
         "part in a step");
  if (update_.accumulate() > 1)
    fail(Code::unsupported, "the optimizer's 'accumulate' is ", update_.accumulate(),
         ", which counts steps: leave it out, and call backward() several times before update()");
  if (update_.common().number("proximal") > 0)
    fail(Code::unsupported,
         "the optimizer's 'proximal' needs step(), which knows which batches are repeats: "
         "leave it out");
  if (model_.precision() == ops::Precision::fp16)
    fail(Code::unsupported,
         "precision fp16 must scale the loss, but here the program computes it: use bf16 "
         "or fp32");
  if (batch.views)
    fail(Code::unsupported,
         "batches of an echo node with 'device' are only for step(): leave 'device' out "
         "of the node");
  plans_for(batch, /*with_target=*/false);
  if (!passes_) passes_ = std::make_unique<Passes>(*kernels_, model_, *weights_);
  return *passes_;
}

Tensor Learner::forward(const pipeline::Item& batch, bool input_gradients) {
  if (passes_) passes_->forget_output();
  Passes& passes = passes_for(batch);
  Tensor output = passes.forward(batch, input_gradients, steps_.values_of_pass(forward_passes_));
  const SampleCounts counts = counts_of(batch, model_.inputs()[0]);
  passed_samples_.samples += counts.samples;
  passed_samples_.fresh += counts.fresh;
  passed_samples_.echoed += counts.echoed;
  ++forward_passes_;
  return output;
}

std::vector<pipeline::Field> Learner::backward(const Tensor& output_gradient, bool accumulate) {
  if (!passes_ || !passes_->has_output())
    fail(Code::state,
         "there is no forward pass to go back from: call forward() before each "
         "backward(), and change no weights in between");
  if (output_gradient.dtype() != DType::f32 || output_gradient.shape() != passes_->output_shape())
    fail(Code::invalid_argument, "the gradient of the output is f32 ",
         shape_text(passes_->output_shape()), ", as the output is, not ",
         dtype_name(output_gradient.dtype()), " ", shape_text(output_gradient.shape()));
  auto out = passes_->backward(output_gradient, accumulate && has_gradients_);
  has_gradients_ = true;
  return out;
}

Weights& Learner::with_gradients() const {
  if (!passes_ || !has_gradients_)
    fail(Code::state, "there are no gradients since the last update: call backward() first");
  passes_->wait();
  return *weights_;
}

// Forgets the passes since the last update: no update will follow from them.
void Learner::forget_passes() {
  passed_samples_ = {};
  forward_passes_ = 0;
  has_gradients_ = false;
}

StepMetrics Learner::update() {
  with_gradients();
  if (steps_.has_untaken())
    fail(Code::state,
         "there are steps whose results have not been taken: take them before update()");
  StepMetrics metrics;
  metrics.counts = passed_samples_;
  const ops::StepValues values = steps_.values_of_update(metrics.counts);
  metrics.learning_rate = values.learning_rate;
  forget_passes();
  if (!passes_->update(values))
    fail(Code::not_finite, "step ", steps_.count() + 1,
         ": a gradient is not finite. The parameters are as they were. Lower the learning rate, "
         "clip gradients (clip_norm), and check the gradient that the program gave");
  steps_.count_step(metrics.counts);
  metrics.step = steps_.count();
  return metrics;
}

std::vector<pipeline::Field> Learner::gradients(const std::string& name) {
  return with_gradients().read_gradients(name);
}

void Learner::set_gradients(const std::vector<pipeline::Field>& given) {
  with_gradients().write_gradients(given);
}

EvalMetrics Learner::evaluate(pipeline::Pipeline& pipeline, const EvalProgress& progress,
                              const std::atomic<bool>* stop) {
  auto input = in_evaluation([&] { return EvaluationInput(pipeline, progress, stop); });
  return evaluate(input);
}

EvalMetrics Learner::evaluate(EvaluationInput& input, bool is_part) {
  wait();
  return in_evaluation([&] {
    ops::StepValues values;
    steps_.put_hyperparameters(values);
    Scoring scoring(model_, values);
    pipeline::Item batch;
    while (input.next(batch)) {
      scoring.add(plans_for(batch, /*with_target=*/true), batch);
      input.done();
    }
    const EvalMetrics metrics = scoring.finish();
    if (metrics.samples == 0 && !is_part)
      fail(Code::invalid_argument, "the pipeline gave no samples: ", input.why_empty());
    // The last stage has the metrics for all ranks with the same batches.
    return stage_ && !stage_->is_last() ? EvalMetrics{} : metrics;
  });
}

Tensor Learner::predict(const pipeline::Item& batch) {
  wait();
  return train::predict(plans_for(batch, /*with_target=*/false), batch);
}

void Learner::predict(const pipeline::Item& batch, const pipeline::OpaqueField& to) {
  wait();
  train::predict(plans_for(batch, /*with_target=*/false), batch, to);
}

Json Learner::profile(const pipeline::Item& batch, int steps) {
  step(batch);
  Planned& planned = *plans_->last_trained();
  Planned::Training& training = *planned.training();
  training.fed.runner->wait();
  // Feeds the inputs anew for each run, because later tensors of a step reuse their memory.
  gpu::CommandList commands = steps_.input_commands(*plans_, planned, batch);
  commands.insert(commands.end(), training.commands.begin(), training.commands.end());
  // Only this rank runs, so there are no exchanges.
  std::erase_if(commands,
                [](const gpu::Command& c) { return std::holds_alternative<gpu::HostTurn>(c); });
  return profile_commands(*kernels_, commands, steps);
}

std::optional<GradientSquares> Learner::measure_noise(const pipeline::Item& batch, int64_t parts) {
  Plans& plans = plans_for(batch, /*with_target=*/true);
  const int64_t rows = rows_of(batch, model_.inputs()[0]), count = std::min(parts, rows);
  std::vector<std::string> names;
  for (const graph::ValueId id : fed_values(plans.training(batch).net()))
    names.push_back(plans.weights().net.graph.value(id).name);
  std::vector<pipeline::Item> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(part_of(batch, names, i * (rows / count), rows / count));
  return measure_noise(out);
}

std::optional<GradientSquares> Learner::measure_noise(const std::vector<pipeline::Item>& batches) {
  if (ranks_ || stage_)
    fail(Code::unsupported,
         "the gradient noise scale can be measured on one device only; here several take "
         "part in a step");
  if (batches.size() < 2) return std::nullopt;
  Plans& plans = plans_for(batches.front(), /*with_target=*/true);
  plans.results(/*wait_all=*/true);
  if (passes_) passes_->wait();
  forget_passes();  // the measurement has gradients of its own
  const graph::ParameterStore& store = weights_->store;
  const auto states = weights_->states();
  const double divisor =
      weights_->loss_scale
          ? static_cast<double>(
                graph::download(store.device(), weights_->loss_scale->state()).view<float>()[0])
          : 1;
  const ops::DeviceTensor gradients{store.gradients(), {int64_t{store.count()}}};
  GradientSum sum;
  for (const pipeline::Item& batch : batches) {
    steps_.compute_gradients(plans, batch);
    const Tensor all = graph::download(store.device(), gradients);
    std::vector<float> used;  // without the gaps between parameters
    for (const auto& parameter : store.parameters()) {
      const auto part = all.view<float>().subspan(parameter.begin, parameter.count);
      used.insert(used.end(), part.begin(), part.end());
    }
    sum.add(used, divisor);
  }
  weights_->set_states(states);
  ++weights_->age;  // what was folded for predictions is outdated, like the states
  const auto rows = static_cast<double>(rows_of(batches.front(), model_.inputs()[0]));
  const GradientSquares squares = sum.squares(rows);
  return std::isfinite(squares.small) ? std::optional(squares) : std::nullopt;
}

std::vector<pipeline::Field> Learner::weights(const std::string& name) {
  const Weights& weights = begun(kNoWeights);
  wait();
  return weights.read(name);
}

void Learner::set_weights(const std::vector<pipeline::Field>& given) {
  Weights& weights = begun(kNoWeights);
  wait();
  replace_weights([&] { weights.write(given); });
}

std::string Learner::onnx() const {
  const Weights& weights = begun(
      "there is nothing to export before the first batch, from which the shapes of the inputs are "
      "known: predict or train on one");
  wait();
  return weights.onnx(model_);
}

Json Learner::summary() const {
  return train::summary(begun("there are no shapes before the first batch: make a step or a "
                              "prediction first")
                            .whole);
}

void Learner::load_pytorch(const std::string& path,
                           const std::map<std::string, std::string>& names) {
  if (weights_)
    fail(Code::state,
         "PyTorch's weights must be loaded before the first batch; this trainer has "
         "already had one");
  const std::string bytes = platform::read_file(path);
  const std::string origin = cat("'", path, "'");
  imported_ = std::make_unique<Imported>(Imported{
      origin, checkpoint::read_safetensors(std::as_bytes(std::span(bytes)), origin), names});
}

}  // namespace etr::train

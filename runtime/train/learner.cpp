#include "train/learner.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "core/options.h"
#include "core/platform.h"
#include "core/text.h"
#include "nn/onnx.h"
#include "nn/weights.h"
#include "train/batch_fields.h"
#include "train/finite.h"
#include "train/profile.h"
#include "train/summary.h"

namespace etr::train {
namespace {

constexpr const char* kFirstBatch = ": make a step or a prediction first";

// Batches that are being scored: the device may read their memory until it is done with them.
struct Scoring {
  graph::Runner* runner = nullptr;
  std::deque<pipeline::Item> batches;

  void keep(const pipeline::Item& batch) {
    batches.push_back(batch);
    if (batches.size() > graph::Runner::kSlots) batches.pop_front();
  }
  ~Scoring() {
    try {
      if (runner) runner->wait();
    } catch (...) {  // the device is lost, and reads nothing any more
    }
  }
};

Shape output_shape(const Planned& planned, int64_t rows) {
  Shape shape = planned.net().graph.shape(planned.net().output);
  shape[0] = rows;
  return shape;
}

// "label 5, but the model has 3 classes (...): ", of the first label in the program's memory that is of no class; "" where
// there is none.
std::string wrong_label(const pipeline::Item& batch, const nn::Loss& loss,
                        const nn::ModelGraph& net) {
  const Tensor* labels = loss.classifies() ? batch.find(loss.target()) : nullptr;
  if (!labels || labels->dtype() != DType::i32) return "";
  const int64_t classes = net.graph.shape(net.output).back();
  for (const int32_t label : labels->view<int32_t>())
    if (label != loss.ignored_label() && (label < 0 || label >= classes))
      return cat("label ", label, ", but the model has ", counted(classes, "class", "classes"),
                 " (field '", loss.target(), "': 0 to ", classes - 1, "; ignored_label is ",
                 loss.ignored_label(), "): ");
  return "";
}

}  // namespace

Learner::Learner(std::shared_ptr<gpu::Kernels> kernels, const LearnerSpec& spec,
                 std::unique_ptr<parallel::DataParallel> ranks)
    : kernels_(std::move(kernels)),
      ranks_(std::move(ranks)),
      model_(spec.model),
      update_(spec.optimizer),
      schedule_(Options(optim::schedule_schema(), "schedule", spec.schedule),
                spec.total_steps / update_.accumulate()),
      seed_(spec.seed) {}

// The plans wait for the device, which may read the batches of started_ until then.
Learner::~Learner() { plans_.reset(); }

int64_t Learner::rows(const pipeline::Item& batch) const {
  return rows_of(batch, model_.inputs()[0]);
}

int64_t Learner::trainable() const { return weights_ ? weights_->store.trainable() : 0; }
int Learner::in_flight() const { return plans_ ? plans_->in_flight() : 0; }
uint64_t Learner::device_bytes() const { return plans_ ? plans_->reserved_bytes() : 0; }

ReservoirStats Learner::reservoir() const {
  return plans_ ? plans_->reservoir() : ReservoirStats{};
}

void Learner::prepare(const pipeline::Item& batch) { training_for(batch); }
void Learner::shape(const pipeline::Item& batch) { look_at(batch, /*with_target=*/true); }

void Learner::check(const pipeline::Item& batch, const nn::ModelGraph& net,
                    const std::vector<graph::ValueId>& values) const {
  const int64_t rows = rows_of(batch, model_.inputs()[0]);
  for (const graph::ValueId id : values) {
    const graph::Value& value = net.graph.value(id);
    check_field(batch, value, net, model_.loss().classifies(), rows);
    if (batch.find_on_device(value.name) && !device()->options().host)
      fail(Code::state, "field '", value.name,
           "' lies in a Vulkan buffer, but the trainer has a device of its own: make its runtime "
           "with etr_runtime_create_shared");
  }
}

// The model's parameters are made of the first batch, once that is known to fit.
Learner::Seen Learner::look_at(const pipeline::Item& batch, bool with_target) {
  Seen seen{fields_of(batch, model_.inputs()), rows_of(batch, model_.inputs()[0])};
  if (!weights_) begin(batch, seen, with_target);
  for (const graph::ValueId id : weights_->net.inputs) {
    const graph::Value& value = weights_->net.graph.value(id);
    if (seen.fields.at(value.name).dtype != value.dtype) check(batch, weights_->net, {id});
  }
  return seen;
}

void Learner::begin(const pipeline::Item& batch, const Seen& seen, bool with_target) {
  nn::ModelGraph net = model_.build(seen.rows, seen.fields);
  check(batch, net, with_target ? fed_values(net) : net.inputs);
  auto weights = std::make_unique<Weights>(*kernels_, std::move(net), seed_);
  if (imported_) {
    auto tensors = weights->store.download();
    for (auto& [name, tensor] : nn::weights_of_pytorch(weights->net, imported_->tensors,
                                                       imported_->names, imported_->path))
      tensors[name] = std::move(tensor);
    weights->store.upload(tensors);
    imported_.reset();
  }
  weights->update =
      std::make_unique<optim::Update>(update_, weights->store, weights->loss_scale.get());
  if (loaded_) apply(*loaded_, *weights);
  loaded_.reset();
  if (ranks_) ranks_->share(weights->store);
  weights->ranks = ranks_.get();
  weights_ = std::move(weights);
  plans_ = std::make_unique<Plans>(*kernels_, model_, *weights_);
}

Planned& Learner::training_for(const pipeline::Item& batch) {
  const Seen seen = look_at(batch, /*with_target=*/true);
  Planned* last = plans_->last_trained();
  if (last && last->training()->reservoir && batch.views)
    last->training()->reservoir->check_like(batch.views->front());
  const bool again = last && last->fields == seen.fields && last->rows >= seen.rows;
  Planned& planned = again ? *last : plan_training(batch, seen);
  check(batch, planned.net(), planned.fed());
  if (static_cast<bool>(batch.views) != static_cast<bool>(planned.training()->reservoir))
    fail(Code::state,
         "a run works on batches of images or on batches of views, not on both in turn");
  return planned;
}

// For as many rows as any batch of this shape had, so that a run that goes on pads its batches as before.
Planned& Learner::plan_training(const pipeline::Item& batch, const Seen& seen) {
  const std::string shape = fields_text(seen.fields);
  const auto trained = trained_rows_.find(shape);
  int64_t rows = std::max(trained == trained_rows_.end() ? 0 : trained->second, seen.rows);
  if (ranks_) {
    plans_->results(/*wait_all=*/true);  // whose exchanges use the ranks' group
    rows = ranks_->most(rows);
  }
  Planned& planned = plans_->exactly(rows, seen.fields);
  check(batch, planned.net(), planned.fed());
  plans_->trained(planned, batch, view_samples_);
  trained_rows_[shape] = rows;
  return planned;
}

bool Learner::ready_within(double seconds) {
  Planned* last = plans_ ? plans_->last_trained() : nullptr;
  return !last || last->training()->runner->ready_within(seconds);
}

void Learner::step(const pipeline::Item& batch) {
  Planned& planned = training_for(batch);
  graph::Runner& runner = *planned.training()->runner;
  ops::StepValues values;
  values.step = static_cast<uint32_t>(step_);
  values.valid_rows = static_cast<uint32_t>(rows_of(batch, model_.inputs()[0]));
  values.rows = static_cast<uint32_t>(planned.rows);
  if (ranks_) values.first_row = values.rows * static_cast<uint32_t>(ranks_->rank());
  values.seed_lo = static_cast<uint32_t>(seed_);
  values.seed_hi = static_cast<uint32_t>(seed_ >> 32);
  const auto k = static_cast<uint64_t>(update_.accumulate());
  values.learning_rate = schedule_.rate(static_cast<int64_t>(step_ / k));
  values.update = (step_ + 1) % k == 0 ? static_cast<uint32_t>((step_ + 1) / k) : 0;
  values.flags = (step_ % k == 0 ? ops::StepValues::kFirstOfUpdate : 0) |
                 (batch.replica == 0 ? ops::StepValues::kFreshBatch : 0);
  planned.fill(runner, planned.fed(), batch);
  runner.submit(values, ++tickets_);
  ++step_;
  ++weights_->age;
  StepMetrics metrics;
  metrics.step = step_;
  metrics.learning_rate = values.learning_rate;
  metrics.samples = static_cast<int32_t>(values.valid_rows);
  metrics.fresh = batch.batch.size ? batch.batch.fresh : metrics.samples;
  metrics.echoed = batch.batch.size ? batch.batch.echoed : 0;
  started_.push_back({tickets_, metrics, values, batch});
}

std::vector<StepMetrics> Learner::take_metrics(bool wait_all) {
  std::vector<StepMetrics> out;
  if (!plans_) return out;
  if (failed_) fail_not_finite();
  auto& results = plans_->results(wait_all);
  while (!started_.empty() && results.contains(started_.front().ticket)) {
    const Started step = std::move(started_.front());
    started_.pop_front();
    const graph::StepResult result = std::move(results.extract(step.ticket).mapped());
    StepMetrics metrics = step.metrics;
    metrics.loss = result.outputs[0][0];
    // A loss scale that was too large is halved already; at its least, the numbers themselves are at fault.
    const bool gradients_failed =
        weights_->loss_scale ? result.not_finite == ops::StepValues::kHopeless : result.not_finite;
    if (!std::isfinite(metrics.loss) || gradients_failed) {
      // Told after the results before it; those after it changed nothing.
      failed_ = {step, metrics.loss};
      break;
    }
    metrics.skipped = result.not_finite != 0;
    if (metrics.skipped)
      log_line(LogLevel::info, cat("step ", metrics.step,
                                   ": a gradient was too large for fp16; there was no update, and "
                                   "the loss scale is halved"));
    if (result.outputs.size() > 1) metrics.accuracy = result.outputs[1][0];
    metrics.busy_seconds = result.busy_seconds;
    out.push_back(metrics);
  }
  if (failed_ && out.empty()) fail_not_finite();
  return out;
}

// Repeats the step, which the weights that it began with have survived, and looks at what each command gives.
void Learner::fail_not_finite() {
  const auto [step, loss] = *std::exchange(failed_, std::nullopt);
  plans_->results(true).clear();
  weights_->update->resume();
  const size_t behind = started_.size();
  started_.clear();
  Planned& p = training_for(step.batch);
  Planned::Training& training = *p.training();
  p.fill(*training.runner, p.fed(), step.batch);
  std::vector<Named> given;
  for (const graph::ValueId id : p.fed())
    if (p.net().graph.value(id).dtype == DType::f32)
      given.push_back({cat("the batch's field '", p.net().graph.value(id).name, "'"),
                       training.plan.tensor(id).buffer});
  for (const auto& parameter : weights_->store.parameters())
    given.push_back({cat("the parameter '", parameter.name, "'"),
                     weights_->store.tensor(parameter.name).buffer});
  const std::string first = first_not_finite(*kernels_, training.runner->feeding(step.values),
                                             given, training.plan.commands());
  const bool of_loss = !std::isfinite(loss);
  const float shown = std::isnan(loss) ? std::abs(loss) : loss;  // a NaN's sign is the driver's
  fail(Code::not_finite, wrong_label(step.batch, model_.loss(), p.net()), "step ",
       step.metrics.step, ": ", of_loss ? cat("the loss is ", shown) : "a gradient is not finite",
       "; ",
       first.empty() ? "it did not come again when the step was repeated"
                     : cat("the first to be NaN or infinite: ", first),
       ". The weights are as they were",
       behind == 0   ? ""
       : behind == 1 ? cat("; step ", step.metrics.step + 1, " after it was left out")
                     : cat("; steps ", step.metrics.step + 1, " to ", step.metrics.step + behind,
                           " after it were left out"),
       ". Lower the learning rate or clip gradients (clip_norm) if "
       "the "
       "training diverged; check the data, and that labels lie within the model's classes");
}

EvalMetrics Learner::evaluate(pipeline::Pipeline& pipeline, const EvalProgress& progress,
                              const std::atomic<bool>* stop) {
  return in_evaluation([&] {
    EvaluationInput input(pipeline, progress, stop);
    const EvalMetrics metrics = evaluate(input);
    if (metrics.samples == 0)
      fail(Code::invalid_argument, "the pipeline gave no samples: ", pipeline.why_empty());
    return metrics;
  });
}

EvalMetrics Learner::evaluate(EvaluationInput& input) {
  EvalMetrics total;
  const auto add = [&](const std::vector<graph::StepResult>& results) {
    for (const graph::StepResult& result : results) {
      const auto rows = static_cast<double>(result.tag);
      total.samples += static_cast<int64_t>(result.tag);
      total.loss += rows * static_cast<double>(result.outputs[0][0]);
      if (result.outputs.size() > 1)
        total.accuracy += rows * static_cast<double>(result.outputs[1][0]);
    }
  };
  pipeline::Item batch;
  Planned* planned = nullptr;
  Scoring scoring;
  graph::Runner*& scorer = scoring.runner;
  int64_t most = 0;  // rows of a batch that `planned` is for
  while (input.next(batch)) {
    const Seen seen = look_at(batch, /*with_target=*/true);
    if (!planned || planned->fields != seen.fields || most < seen.rows || !planned->scores(batch)) {
      if (scorer) add(scorer->take_results(true));
      scorer = nullptr;  // it may go
      planned = &scoring_for(seen);
      most = std::max(planned->rows, seen.rows);
      check(batch, planned->net(), planned->fed());
      scorer = &plans_->scorer(*planned, batch);
      scorer->take_results(true);  // of an evaluation that failed
    } else {
      check(batch, planned->net(), planned->fed());
    }
    scoring.keep(batch);
    for (int64_t begin = 0; begin < seen.rows; begin += planned->rows) {
      const int64_t rows = std::min(planned->rows, seen.rows - begin);
      ops::StepValues values;
      values.valid_rows = static_cast<uint32_t>(rows);
      planned->fill(*scorer, planned->fed(),
                    rows == seen.rows ? batch : part_of(batch, fed_names(), begin, rows));
      scorer->submit(values, values.valid_rows);
      add(scorer->take_results(false));
    }
    input.done();
  }
  if (scorer) add(scorer->take_results(true));
  if (total.samples == 0) return total;
  total.loss /= static_cast<double>(total.samples);
  total.accuracy /= static_cast<double>(total.samples);
  return total;
}

Json Learner::profile(const pipeline::Item& batch, int steps) {
  step(batch);  // fills the inputs and the step's values, which stay in device memory
  const Planned::Training& training = *plans_->last_trained()->training();
  training.runner->wait();
  gpu::CommandList commands = training.commands;  // of this rank alone
  std::erase_if(commands,
                [](const gpu::Command& c) { return std::holds_alternative<gpu::HostTurn>(c); });
  return profile_commands(*kernels_, commands, steps);
}

// As many rows as steps have (perhaps before the run was interrupted), so that a run's evaluations are the same to the bit
// wherever it goes on from.
Planned& Learner::scoring_for(const Seen& seen) {
  const auto trained = trained_rows_.find(fields_text(seen.fields));
  if (trained != trained_rows_.end() && trained->second >= seen.rows)
    return plans_->exactly(trained->second, seen.fields);
  return plans_->serving(seen.rows, seen.fields);
}

Planned& Learner::predicting_for(const pipeline::Item& batch, int64_t& rows) {
  const Seen seen = look_at(batch, /*with_target=*/false);
  Planned& planned = plans_->serving(seen.rows, seen.fields);
  check(batch, planned.net(), planned.net().inputs);
  rows = seen.rows;
  return planned;
}

std::vector<std::string> Learner::fed_names() const {
  std::vector<std::string> names = model_.inputs();
  names.push_back(model_.target());
  return names;
}

std::vector<float> Learner::infer(Planned& planned, const pipeline::Item& batch, int64_t begin,
                                  int64_t rows) {
  const std::vector<graph::ValueId>& inputs = planned.net().inputs;
  graph::Runner& runner = plans_->predictor(planned, batch);
  const bool whole = begin == 0 && rows == rows_of(batch, model_.inputs()[0]);
  planned.fill(runner, inputs, whole ? batch : part_of(batch, model_.inputs(), begin, rows));
  ops::StepValues step;
  step.valid_rows = static_cast<uint32_t>(rows);
  runner.submit(step, 0);
  return runner.take_results(true).back().outputs[0];
}

Tensor Learner::predict(const pipeline::Item& batch) {
  int64_t rows = 0;
  Planned& planned = predicting_for(batch, rows);
  Tensor out(DType::f32, output_shape(planned, rows));
  const auto to = out.mutable_view<float>();
  const auto row = static_cast<int64_t>(to.size()) / rows;
  for (int64_t begin = 0; begin < rows; begin += planned.rows) {
    const int64_t count = std::min(planned.rows, rows - begin);
    const std::vector<float> values = infer(planned, batch, begin, count);
    std::copy_n(values.begin(), count * row, to.begin() + begin * row);
  }
  return out;
}

void Learner::predict(const pipeline::Item& batch, const pipeline::DeviceField& to) {
  int64_t rows = 0;
  Planned& planned = predicting_for(batch, rows);
  const Shape shape = output_shape(planned, rows);
  if (!device()->options().host)
    fail(Code::state,
         "the trainer has a device of its own and cannot write to a buffer of yours: "
         "make its runtime with etr_runtime_create_shared");
  if (to.dtype != DType::f32 || to.shape != shape)
    fail(Code::invalid_argument, "the output is f32 ", shape_text(shape), ", not ",
         dtype_name(to.dtype), " ", shape_text(to.shape));
  const gpu::Buffer target = buffer_of(to);
  const uint64_t row = target.size_bytes / static_cast<uint64_t>(rows);
  for (int64_t begin = 0; begin < rows; begin += planned.rows) {
    const int64_t count = std::min(planned.rows, rows - begin);
    infer(planned, batch, begin, count);
    const uint64_t bytes = static_cast<uint64_t>(count) * row;
    gpu::run_once(device(), {gpu::Copy{planned.predicted().slice(0, bytes),
                                       target.slice(static_cast<uint64_t>(begin) * row, bytes)}});
  }
}

std::string Learner::onnx() const {
  if (!weights_) fail(Code::state, "there is nothing to export before the first batch");
  const gpu::Buffer averages = weights_->update->averages();
  return nn::to_onnx(weights_->net, [&](const std::string& name) {
    ops::DeviceTensor tensor = weights_->store.tensor(name);
    if (averages) tensor = weights_->store.elsewhere(name, averages);
    return graph::download(device(), tensor);
  });
}

void Learner::load_pytorch(const std::string& path,
                           const std::map<std::string, std::string>& names) {
  if (weights_)
    fail(Code::state,
         "weights of PyTorch are loaded before the first batch; this trainer has had one");
  const std::string bytes = platform::read_file(path);
  const std::string origin = cat("'", path, "'");
  imported_ = std::make_unique<Imported>(Imported{
      origin, checkpoint::read_safetensors(std::as_bytes(std::span(bytes)), origin), names});
}

std::vector<pipeline::Field> Learner::weights(const std::string& name) {
  if (!weights_) fail(Code::state, "there are no weights before the first batch", kFirstBatch);
  const graph::ParameterStore& store = weights_->store;
  if (!name.empty()) return {{name, graph::download(device(), weight(name))}};
  std::vector<pipeline::Field> out;
  for (const std::string& each : store.names())
    out.push_back({each, graph::download(device(), store.tensor(each))});
  return out;
}

// Constants have names too, but are the model's own.
const ops::DeviceTensor& Learner::weight(const std::string& name) const {
  const std::vector<std::string>& names = weights_->store.names();
  if (std::find(names.begin(), names.end(), name) == names.end())
    fail(Code::not_found, "the model has no weight '", name, "'", suggestion(name, names));
  return weights_->store.tensor(name);
}

void Learner::set_weights(const std::vector<pipeline::Field>& given) {
  if (!weights_) fail(Code::state, "there are no weights before the first batch", kFirstBatch);
  for (const pipeline::Field& field : given) {
    const ops::DeviceTensor& to = weight(field.name);
    if (field.tensor.dtype() != DType::f32 || field.tensor.shape() != to.shape)
      fail(Code::invalid_argument, "weight '", field.name, "' is f32 ", shape_text(to.shape),
           ", not ", dtype_name(field.tensor.dtype()), " ", shape_text(field.tensor.shape()));
  }
  const gpu::Buffer averages = weights_->update->averages();
  for (const pipeline::Field& field : given) {
    graph::upload(device(), field.tensor, weight(field.name));
    if (averages && weights_->store.is_trainable(field.name))
      graph::upload(device(), field.tensor, weights_->store.elsewhere(field.name, averages));
  }
  ++weights_->age;
}

Json Learner::summary() const {
  if (!weights_) fail(Code::state, "there are no shapes before the first batch", kFirstBatch);
  return train::summary(weights_->net);
}

}  // namespace etr::train

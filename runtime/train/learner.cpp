#include "train/learner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "core/platform.h"
#include "core/text.h"
#include "nn/onnx.h"
#include "nn/weights.h"
#include "tensor/normalize.h"
#include "train/batch_fields.h"
#include "train/byte_feed.h"
#include "train/finite.h"
#include "train/profile.h"
#include "train/reservoir.h"

namespace etr::train {
namespace {

constexpr const char* kWeights = "weights.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kState = "learner.json";

const std::vector<std::byte>& file_of(const checkpoint::Files& files, const char* name) {
  const auto it = files.find(name);
  if (it == files.end()) fail(Code::corrupt_data, "the checkpoint has no file '", name, "'");
  return it->second;
}

}  // namespace

// Everything that depends on the batch's shape. Members in the order of their making: each may use
// those before it.
struct Learner::Planned {
  Planned(gpu::Kernels& kernels, const nn::Model& model, int64_t batch_size,
          const nn::Fields& fields, uint64_t seed)
      : batch(batch_size),
        net(model.build(batch_size, fields)),
        store(kernels.device(), net.graph, seed),
        loss_scale(net.precision == ops::Precision::fp16
                       ? std::make_unique<optim::LossScale>(kernels.device())
                       : nullptr),
        training(kernels, net.graph, store, training_options()),
        tail_arena(kernels.device(), gpu::MemoryUse::device),
        feed_arena(kernels.device(), gpu::MemoryUse::device) {}

  graph::PlanOptions training_options() const {
    graph::PlanOptions options;
    options.training = true;
    options.loss = net.loss;
    options.recompute = net.recompute;
    options.precision = net.precision;
    if (loss_scale) options.loss_scale = loss_scale->scale();
    options.outputs = outputs();
    return options;
  }

  graph::PlanOptions evaluation_options() const {
    graph::PlanOptions options;
    options.weights = update->averages();
    options.precision = net.precision;
    options.outputs = outputs();
    options.outputs.push_back(net.output);
    options.fold_norms = true;
    return options;
  }

  std::vector<graph::ValueId> outputs() const {
    return net.accuracy >= 0 ? std::vector{net.loss, net.accuracy} : std::vector{net.loss};
  }

  // From where `batch` has them; later batches have them there too.
  std::vector<graph::Feed> feeds(gpu::Kernels& kernels, const std::vector<graph::ValueId>& values,
                                 const pipeline::Item& first) {
    std::vector<graph::Feed> out(values.begin(), values.end());
    for (graph::Feed& feed : out) {
      const graph::Value& value = net.graph.value(feed.value);
      feed.on_device = first.find_on_device(value.name);
      if (is_bytes(first, value.name)) feed = byte_feed(kernels, feed_arena, value, feed.value);
    }
    return out;
  }

  // What a training step is fed: the inputs, and the target where it is not one of them.
  std::vector<graph::ValueId> fed() const {
    std::vector<graph::ValueId> out = net.inputs;
    if (std::find(out.begin(), out.end(), net.target) == out.end()) out.push_back(net.target);
    return out;
  }

  int64_t batch;
  nn::ModelGraph net;
  graph::ParameterStore store;
  std::unique_ptr<optim::LossScale> loss_scale;  // of float16
  graph::Plan training;
  std::unique_ptr<optim::Update> update;
  gpu::Arena tail_arena, feed_arena;
  gpu::CommandList tail;
  std::unique_ptr<Reservoir> reservoir;  // of the training runner, for device echo
  std::unique_ptr<graph::Runner> runner;
  std::unique_ptr<graph::Plan> evaluation;  // these are made when first needed
  std::unique_ptr<graph::Runner> evaluator, predictor;

  // `weights_age`: how often the weights have changed. Waits for the device where they have.
  graph::Plan& evaluation_plan(gpu::Kernels& kernels, uint64_t weights_age) {
    if (!evaluation)
      evaluation = std::make_unique<graph::Plan>(kernels, net.graph, store, evaluation_options());
    if (prepared_for != weights_age && !evaluation->preparation().empty())
      gpu::run_once(kernels.device(), evaluation->preparation());
    prepared_for = weights_age;
    return *evaluation;
  }
  std::optional<uint64_t> prepared_for;
};

Learner::Learner(std::shared_ptr<gpu::Kernels> kernels, const LearnerSpec& spec)
    : kernels_(std::move(kernels)),
      model_(spec.model),
      update_(spec.optimizer),
      schedule_(Options(optim::schedule_schema(), "schedule", spec.schedule),
                spec.total_steps / update_.accumulate()),
      seed_(spec.seed) {}

Learner::~Learner() = default;

int64_t Learner::trainable() const { return planned_ ? planned_->store.trainable() : 0; }
int Learner::in_flight() const { return planned_ ? planned_->runner->in_flight() : 0; }

ReservoirStats Learner::reservoir() const {
  if (!planned_ || !planned_->reservoir) return {};
  const Reservoir& of = *planned_->reservoir;
  return {of.capacity(), of.uploaded(), of.reused()};
}

uint64_t Learner::device_bytes() const {
  if (!planned_) return 0;
  return planned_->training.reserved_bytes() +
         (planned_->evaluation ? planned_->evaluation->reserved_bytes() : 0);
}

void Learner::prepare(const pipeline::Item& batch) {
  plan_for(batch);
  for (const graph::ValueId id : planned_->fed()) check(batch, id);
}

void Learner::check(const pipeline::Item& batch, graph::ValueId id) const {
  const graph::Value& value = planned_->net.graph.value(id);
  check_field(batch, value, planned_->net, model_.loss().classifies());
  if (batch.find_on_device(value.name) && !device()->options().host)
    fail(
        Code::state, "field '", value.name,
        "' lies in a Vulkan buffer, but the trainer has a device of its own: make its runtime with "
        "etr_runtime_create_shared");
}

int64_t Learner::rows_of(const pipeline::Item& batch) const {
  return train::rows_of(batch, model_.inputs()[0]);
}

void Learner::plan_for(const pipeline::Item& batch) {
  if (planned_) return;
  const nn::Fields fields = fields_of(batch, model_.inputs());
  const int64_t rows = rows_of(batch);
  auto planned = std::make_unique<Planned>(*kernels_, model_, rows, fields, seed_);
  if (imported_) {
    auto tensors = planned->store.download();
    for (auto& [name, tensor] : nn::weights_of_pytorch(planned->net, imported_->tensors,
                                                       imported_->names, imported_->path))
      tensors[name] = std::move(tensor);
    planned->store.upload(tensors);
    imported_.reset();
  }
  planned->update =
      std::make_unique<optim::Update>(update_, planned->store, planned->loss_scale.get());
  ops::Emitter emit(*kernels_, planned->tail_arena, planned->tail);
  planned->update->emit(emit, planned->training.tensor(planned->net.loss).buffer,
                        planned->training.step_values());
  std::vector<graph::Feed> feeds = planned->feeds(*kernels_, planned->fed(), batch);
  if (batch.views) {
    planned->reservoir = std::make_unique<Reservoir>(
        *kernels_, batch.views->front(), rows,
        view_samples_ + static_cast<uint64_t>(rows * graph::Runner::kSlots));
    for (graph::Feed& feed : feeds)
      if (planned->net.graph.value(feed.value).name == kImage)
        feed = planned->reservoir->feed(feed.value);
  }
  planned->runner = std::make_unique<graph::Runner>(*kernels_, planned->training, feeds,
                                                    planned->outputs(), planned->tail);
  planned_ = std::move(planned);
  if (loaded_) apply_loaded();
}

namespace {

gpu::Buffer buffer_of(const pipeline::DeviceField& field) {
  gpu::Buffer out;
  out.handle = static_cast<VkBuffer_T*>(field.buffer);
  out.offset = field.offset;
  out.size_bytes = field.size_bytes();
  return out;
}

}  // namespace

// Rows beyond a smaller batch repeat it, so that batch statistics stay sane; the loss leaves them
// out.
void Learner::fill(graph::Runner& runner, const std::vector<graph::ValueId>& values,
                   const pipeline::Item& batch) const {
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string& name = planned_->net.graph.value(values[i]).name;
    const pipeline::DeviceField* in_buffer = batch.find_on_device(name);
    if (runner.on_device(i) != (in_buffer != nullptr))
      fail(Code::state, "field '", name, "' ",
           in_buffer ? "lies in a Vulkan buffer and did not"
                     : "does not lie in a Vulkan buffer and did",
           " in the first batch: a trainer takes a field from one place");
    if (is_viewed(batch, name))
      planned_->reservoir->fill(runner.parts(i), batch);
    else if (in_buffer)
      runner.bring(i, buffer_of(*in_buffer));
    else if (!runner.is_fed_in_parts(i))
      fill(runner.input(i), batch, name);
    else if (is_bytes(batch, name))
      fill_bytes(runner.parts(i), batch, name, planned_->net.graph.shape(values[i]));
    else
      fail(Code::state, "field '", name,
           "' is f32, and came as u8 for the device to normalise in the first batch: a trainer "
           "takes "
           "a field in one form");
  }
}

void Learner::fill(std::byte* to, const pipeline::Item& batch, const std::string& name) const {
  const Tensor& tensor = *batch.find(name);
  const auto count = static_cast<size_t>(tensor.count());
  const size_t want =
      count / static_cast<size_t>(tensor.shape()[0]) * static_cast<size_t>(planned_->batch);
  const size_t size = dtype_size(tensor.dtype());
  for (size_t at = 0; at < want; at += count) {
    const size_t n = std::min(count, want - at);
    if (tensor.dtype() == DType::u8)
      normalize_u8(tensor.view<uint8_t>().first(n), batch.find(name + "_scale")->view<float>(),
                   batch.find(name + "_shift")->view<float>(), reinterpret_cast<float*>(to) + at);
    else
      std::memcpy(to + at * size, tensor.data(), n * size);
  }
}

bool Learner::ready_within(double seconds) {
  return !planned_ || planned_->runner->ready_within(seconds);
}

void Learner::step(const pipeline::Item& batch) {
  prepare(batch);
  if (static_cast<bool>(batch.views) != static_cast<bool>(planned_->reservoir))
    fail(Code::state,
         "a run works on batches of images or on batches of views, not on both in turn");
  ops::StepValues values;
  values.step = static_cast<uint32_t>(step_);
  values.valid_rows = static_cast<uint32_t>(rows_of(batch));
  values.seed_lo = static_cast<uint32_t>(seed_);
  values.seed_hi = static_cast<uint32_t>(seed_ >> 32);
  const auto k = static_cast<uint64_t>(update_.accumulate());
  values.learning_rate = schedule_.rate(static_cast<int64_t>(step_ / k));
  values.update = (step_ + 1) % k == 0 ? static_cast<uint32_t>((step_ + 1) / k) : 0;
  values.flags = (step_ % k == 0 ? ops::StepValues::kFirstOfUpdate : 0) |
                 (batch.replica == 0 ? ops::StepValues::kFreshBatch : 0);
  fill(*planned_->runner, planned_->fed(), batch);
  planned_->runner->submit(values, ++step_);
  ++weights_age_;
  StepMetrics metrics;
  metrics.step = step_;
  metrics.learning_rate = values.learning_rate;
  metrics.samples = static_cast<int32_t>(values.valid_rows);
  metrics.fresh = batch.batch.size ? batch.batch.fresh : metrics.samples;
  metrics.echoed = batch.batch.size ? batch.batch.echoed : 0;
  // A batch that was echoed as a whole is not fresh, whatever its samples were.
  if (batch.replica > 0) metrics.echoed = std::exchange(metrics.fresh, 0) + metrics.echoed;
  started_.push_back({metrics, values, batch});
}

std::vector<StepMetrics> Learner::take_metrics(bool wait_all) {
  std::vector<StepMetrics> out;
  if (!planned_) return out;
  if (failed_) fail_not_finite();
  for (const graph::StepResult& result : planned_->runner->take_results(wait_all)) {
    const Started step = std::move(started_.front());
    started_.pop_front();
    StepMetrics metrics = step.metrics;
    metrics.loss = result.outputs[0][0];
    // A loss scale that was too large is halved already; at its least, the numbers themselves are at fault.
    const bool gradients_failed =
        planned_->loss_scale ? result.not_finite == ops::StepValues::kHopeless : result.not_finite;
    if (!std::isfinite(metrics.loss) || gradients_failed) {
      failed_ = {step,
                 metrics.loss};  // after the results before it; those behind it changed nothing
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
  Planned& p = *planned_;
  p.runner->wait();
  p.runner->take_results(true);
  p.update->resume();
  const size_t behind = started_.size();
  started_.clear();
  fill(*p.runner, p.fed(), step.batch);
  std::vector<Named> given;
  for (const graph::ValueId id : p.fed())
    if (p.net.graph.value(id).dtype == DType::f32)
      given.push_back({cat("the batch's field '", p.net.graph.value(id).name, "'"),
                       p.training.tensor(id).buffer});
  for (const auto& parameter : p.store.parameters())
    given.push_back(
        {cat("the parameter '", parameter.name, "'"), p.store.tensor(parameter.name).buffer});
  const std::string first =
      first_not_finite(*kernels_, p.runner->feeding(step.values), given, p.training.commands());
  const bool of_loss = !std::isfinite(loss);
  const float shown = std::isnan(loss) ? std::abs(loss) : loss;  // a NaN's sign is the driver's
  fail(Code::not_finite, "step ", step.metrics.step, ": ",
       of_loss ? cat("the loss is ", shown) : "a gradient is not finite", "; ",
       first.empty() ? "it did not come again when the step was repeated"
                     : cat("the first to be NaN or infinite: ", first),
       ". The weights are as they were",
       behind == 0   ? ""
       : behind == 1 ? cat("; step ", step.metrics.step + 1, " behind it was left out")
                     : cat("; steps ", step.metrics.step + 1, " to ", step.metrics.step + behind,
                           " behind it were left out"),
       ". Lower the learning rate or clip gradients (clip_norm) if "
       "the "
       "training diverged; check the data, and that labels lie within the model's classes");
}

EvalMetrics Learner::evaluate(pipeline::Pipeline& pipeline, const EvalProgress& progress) {
  EvalMetrics total;
  // An evaluation that failed may have left some.
  if (planned_ && planned_->evaluator) planned_->evaluator->take_results(true);
  const auto length = progress ? pipeline.length() : std::nullopt;
  const int64_t batches = length ? static_cast<int64_t>(*length) : -1;
  int64_t done = 0;
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
  while (pipeline.next(batch) == pipeline::Pipeline::Next::item) {
    prepare(batch);
    const graph::Plan& plan = planned_->evaluation_plan(*kernels_, weights_age_);
    if (!planned_->evaluator)
      planned_->evaluator = std::make_unique<graph::Runner>(
          *kernels_, plan, planned_->feeds(*kernels_, planned_->fed(), batch), planned_->outputs(),
          gpu::CommandList{});
    ops::StepValues values;
    values.valid_rows = static_cast<uint32_t>(rows_of(batch));
    fill(*planned_->evaluator, planned_->fed(), batch);
    planned_->evaluator->submit(values, values.valid_rows);
    add(planned_->evaluator->take_results(false));
    if (progress && !progress(++done, batches))
      fail(Code::cancelled, "the evaluation was stopped after ", counted(done, "batch", "batches"));
  }
  if (planned_ && planned_->evaluator) add(planned_->evaluator->take_results(true));
  if (total.samples == 0) fail(Code::invalid_argument, "the evaluation pipeline gave no samples");
  total.loss /= static_cast<double>(total.samples);
  total.accuracy /= static_cast<double>(total.samples);
  return total;
}

Json Learner::profile(const pipeline::Item& batch, int steps) {
  step(batch);  // fills the inputs and the step's values, which stay in device memory
  planned_->runner->wait();
  gpu::CommandList commands = planned_->training.commands();
  commands.insert(commands.end(), planned_->tail.begin(), planned_->tail.end());
  return profile_commands(*kernels_, commands, steps);
}

std::vector<float> Learner::infer(const pipeline::Item& batch) {
  plan_for(batch);
  Planned& p = *planned_;
  for (const graph::ValueId id : p.net.inputs) check(batch, id);
  const graph::Plan& plan = p.evaluation_plan(*kernels_, weights_age_);
  const std::vector<graph::Feed> feeds = p.feeds(*kernels_, p.net.inputs, batch);
  bool fits = p.predictor != nullptr;
  for (size_t i = 0; fits && i < feeds.size(); ++i) fits = p.predictor->is_fed_as(i, feeds[i]);
  if (!fits)
    p.predictor = std::make_unique<graph::Runner>(*kernels_, plan, feeds, std::vector{p.net.output},
                                                  gpu::CommandList{}, 1);
  fill(*p.predictor, p.net.inputs, batch);
  ops::StepValues step;
  step.valid_rows = static_cast<uint32_t>(rows_of(batch));
  p.predictor->submit(step, 0);
  return p.predictor->take_results(true).front().outputs[0];
}

Shape Learner::output_shape(const pipeline::Item& batch) const {
  Shape shape = planned_->net.graph.shape(planned_->net.output);
  shape[0] = rows_of(batch);
  return shape;
}

Tensor Learner::predict(const pipeline::Item& batch) {
  const std::vector<float> values = infer(batch);
  Tensor out(DType::f32, output_shape(batch));
  std::copy_n(values.begin(), out.count(), out.mutable_view<float>().begin());
  return out;
}

void Learner::predict(const pipeline::Item& batch, const pipeline::DeviceField& to) {
  plan_for(batch);
  const Shape shape = output_shape(batch);
  if (!device()->options().host)
    fail(Code::state,
         "the trainer has a device of its own and cannot write to a buffer of yours: "
         "make its runtime with etr_runtime_create_shared");
  if (to.dtype != DType::f32 || to.shape != shape)
    fail(Code::invalid_argument, "the output is f32 ", shape_text(shape), ", not ",
         dtype_name(to.dtype), " ", shape_text(to.shape));
  infer(batch);
  const gpu::Buffer target = buffer_of(to);
  const gpu::Buffer& output = planned_->evaluation->tensor(planned_->net.output).buffer;
  gpu::run_once(device(), {gpu::Copy{output.slice(0, target.size_bytes), target}});
}

std::string Learner::onnx() const {
  if (!planned_) fail(Code::state, "there is nothing to export before the first batch");
  planned_->runner->wait();
  const gpu::Buffer averages = planned_->update->averages();
  return nn::to_onnx(planned_->net, [&](const std::string& name) {
    ops::DeviceTensor tensor = planned_->store.tensor(name);
    if (averages) tensor = planned_->store.elsewhere(name, averages);
    return graph::download(device(), tensor);
  });
}

void Learner::load_pytorch(const std::string& path,
                           const std::map<std::string, std::string>& names) {
  if (planned_)
    fail(Code::state,
         "weights of PyTorch are loaded before the first batch; this trainer has had one");
  const std::string bytes = platform::read_file(path);
  const std::string origin = cat("'", path, "'");
  imported_ = std::make_unique<Imported>(Imported{
      origin, checkpoint::read_safetensors(std::as_bytes(std::span(bytes)), origin), names});
}

void Learner::save(checkpoint::Files& files) {
  if (!planned_) fail(Code::state, "there is nothing to save before the first batch");
  files[kWeights] = checkpoint::write_safetensors(planned_->store.download());
  files[kOptimizer] = checkpoint::write_safetensors(planned_->update->download());
  const std::string state = Json{{"step", step_}, {"seed", seed_}}.dump();
  const auto bytes = std::as_bytes(std::span(state));
  files[kState].assign(bytes.begin(), bytes.end());
}

void Learner::load(const checkpoint::Files& files) {
  const auto& state = file_of(files, kState);
  const Json json = parse_json({reinterpret_cast<const char*>(state.data()), state.size()}, kState);
  step_ = json.value("step", uint64_t{0});
  loaded_ = std::make_unique<checkpoint::Files>(files);
  if (planned_) apply_loaded();
}

void Learner::apply_loaded() {
  planned_->store.upload(checkpoint::read_safetensors(file_of(*loaded_, kWeights), kWeights));
  planned_->update->upload(checkpoint::read_safetensors(file_of(*loaded_, kOptimizer), kOptimizer));
  loaded_.reset();
  ++weights_age_;
}

}  // namespace etr::train

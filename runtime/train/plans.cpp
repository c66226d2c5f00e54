#include "train/plans.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "tensor/normalize.h"
#include "train/batch_fields.h"
#include "train/byte_feed.h"

namespace etr::train {
namespace {

constexpr size_t kMostOfAShape = 3;  // for evaluating; then the next is made for twice the rows

std::string field_text(const nn::Field& field) {
  return cat(dtype_name(field.dtype), " ", batch_text(field.sample));
}

// "field 'image' is f32 [N, 40, 40, 3], and was f32 [N, 32, 32, 3] in the first batch"; "" where nothing differs.
std::string difference(const nn::Fields& fields, const nn::ModelGraph& first) {
  for (const graph::ValueId id : first.inputs) {
    const graph::Value& value = first.graph.value(id);
    const nn::Field was{value.dtype, Shape(value.shape.begin() + 1, value.shape.end())};
    const nn::Field& is = fields.at(value.name);
    if (is.sample != was.sample || is.dtype != was.dtype)
      return cat("field '", value.name, "' is ", field_text(is), ", and was ", field_text(was),
                 " in the first batch");
  }
  return "";
}

constexpr const char* kRemedy =
    ". Bring all batches to one shape (resize, crop, pad), or let no parameter depend on it "
    "(global_avg_pool in the place of flatten, sinusoidal position embeddings)";

nn::ModelGraph built(const nn::Model& model, int64_t rows, const nn::Fields& fields,
                     const Weights& weights) {
  const std::string differs = difference(fields, weights.net);
  try {
    nn::ModelGraph net = model.build(rows, fields);
    for (const graph::Value& value : net.graph.values()) {
      if (value.kind != graph::ValueKind::parameter && value.kind != graph::ValueKind::state)
        continue;
      const Shape& shape = weights.store.tensor(value.name).shape;
      if (value.shape != shape)
        fail(Code::invalid_argument, "the model's parameter '", value.name, "' would be ",
             shape_text(value.shape), " and is ", shape_text(shape));
    }
    return net;
  } catch (const Error& error) {
    if (differs.empty()) throw;
    fail(error.code(), differs, "; this model cannot take both: ", error.what(), kRemedy);
  }
}

std::unique_ptr<optim::LossScale> loss_scale_of(gpu::Kernels& kernels, const nn::ModelGraph& net) {
  return net.precision == ops::Precision::fp16
             ? std::make_unique<optim::LossScale>(kernels.device())
             : nullptr;
}

}  // namespace

std::vector<graph::ValueId> fed_values(const nn::ModelGraph& net) {
  std::vector<graph::ValueId> out = net.inputs;
  if (std::find(out.begin(), out.end(), net.target) == out.end()) out.push_back(net.target);
  return out;
}

Weights::Weights(gpu::Kernels& kernels, nn::ModelGraph of, uint64_t seed)
    : net(std::move(of)),
      store(kernels.device(), net.graph, seed),
      loss_scale(loss_scale_of(kernels, net)) {}

// A runner, with the memory in which its feeds put what they need.
struct Planned::FedRunner {
  explicit FedRunner(const gpu::DevicePtr& device) : memory(device, gpu::MemoryUse::device) {}
  gpu::Arena memory;
  std::unique_ptr<graph::Runner> runner;
};

struct Planned::Evaluation {
  graph::Plan plan;
  std::optional<uint64_t> prepared_for = {};  // the weights' age
  std::unique_ptr<FedRunner> scorer = {}, predictor = {};
};

Planned::Planned(gpu::Kernels& kernels, const nn::Model& model, Weights& weights, int64_t of_rows,
                 const nn::Fields& of_fields)
    : rows(of_rows),
      fields(of_fields),
      kernels_(kernels),
      weights_(weights),
      net_(built(model, rows, fields, weights)),
      store_(weights.store, net_.graph),
      fed_(fed_values(net_)) {}

Planned::~Planned() = default;

std::vector<graph::ValueId> Planned::outputs() const {
  return net_.accuracy >= 0 ? std::vector{net_.loss, net_.accuracy} : std::vector{net_.loss};
}

std::vector<graph::Feed> Planned::feeds(gpu::Arena& memory,
                                        const std::vector<graph::ValueId>& values,
                                        const pipeline::Item& batch) const {
  std::vector<graph::Feed> out(values.begin(), values.end());
  for (graph::Feed& feed : out) {
    const graph::Value& value = net_.graph.value(feed.value);
    feed.on_device = batch.find_on_device(value.name);
    if (is_bytes(batch, value.name)) feed = byte_feed(kernels_, memory, value, feed.value);
  }
  return out;
}

// After the plan's commands, with what ranks exchange on the way.
void Planned::add_update(Training& training) {
  training.commands = training.plan.commands();
  optim::Update& update = *weights_.update;
  ops::Emitter emit(kernels_, training.memory, training.commands);
  const gpu::Buffer &loss = training.plan.tensor(net_.loss).buffer,
                    &values = training.plan.step_values();
  if (!weights_.ranks) return update.emit(emit, loss, values);
  parallel::DataParallel::Step step{values, {}, rows};
  for (const graph::ValueId id : outputs()) step.results.push_back(training.plan.tensor(id).buffer);
  if (update.accumulate() == 1) {
    training.commands = weights_.ranks->weave(training.commands, weights_.store, step);
    return update.emit(emit, loss, values);
  }
  const gpu::Buffer verdict = training.memory.allocate(sizeof(float));
  update.emit_verdict(emit, verdict);
  step.results.push_back(verdict);
  training.commands = weights_.ranks->weave_sum(
      training.commands, weights_.store, step, [&](const gpu::Buffer& divisor) {
        gpu::CommandList sum;
        ops::Emitter into(kernels_, training.memory, sum);
        const optim::Update::Shared shared{verdict, divisor};
        update.emit_gradients(into, loss, values, &shared);
        return sum;
      });
  update.emit_change(emit, loss, values);
}

Planned::Training& Planned::make_training(const pipeline::Item& first, uint64_t view_samples) {
  graph::PlanOptions options;
  options.training = true;
  options.loss = net_.loss;
  options.recompute = net_.recompute;
  options.precision = net_.precision;
  if (weights_.loss_scale) options.loss_scale = weights_.loss_scale->scale();
  options.outputs = outputs();
  std::unique_ptr<Training> made(new Training{{kernels_, net_.graph, store_, options},
                                              {kernels_.device(), gpu::MemoryUse::device}});
  add_update(*made);
  std::vector<graph::Feed> fed = feeds(made->memory, fed_, first);
  if (first.views) {
    made->reservoir = std::make_unique<Reservoir>(
        kernels_, first.views->front(), rows,
        view_samples + static_cast<uint64_t>(rows * graph::Runner::kSlots));
    for (graph::Feed& feed : fed)
      if (net_.graph.value(feed.value).name == kImage) feed = made->reservoir->feed(feed.value);
  }
  made->runner = std::make_unique<graph::Runner>(kernels_, made->plan, fed, outputs(),
                                                 graph::Runner::Work{made->commands, true});
  training_ = std::move(made);
  return *training_;
}

Planned::Evaluation& Planned::evaluation() {
  if (!evaluation_) {
    graph::PlanOptions options;
    options.weights = weights_.update->averages();
    options.precision = net_.precision;
    options.outputs = outputs();
    options.outputs.push_back(net_.output);
    options.fold_norms = true;
    evaluation_.reset(new Evaluation{{kernels_, net_.graph, store_, options}});
  }
  Evaluation& e = *evaluation_;
  if (e.prepared_for != weights_.age && !e.plan.preparation().empty())
    gpu::run_once(kernels_.device(), e.plan.preparation());
  e.prepared_for = weights_.age;
  return e;
}

graph::Runner& Planned::fed_with(std::unique_ptr<FedRunner>& fed,
                                 const std::vector<graph::ValueId>& values,
                                 const std::vector<graph::ValueId>& read, int slots,
                                 const pipeline::Item& batch) {
  if (fed && takes(*fed->runner, values, batch)) return *fed->runner;
  if (batch.views)
    fail(Code::unsupported, "the batch is views of samples on the device, which only train");
  auto made = std::make_unique<FedRunner>(kernels_.device());
  made->runner = std::make_unique<graph::Runner>(
      kernels_, evaluation_->plan, feeds(made->memory, values, batch), read,
      graph::Runner::Work{evaluation_->plan.commands()}, slots);
  fed = std::move(made);
  return *fed->runner;
}

graph::Runner& Planned::scorer(const pipeline::Item& batch) {
  return fed_with(evaluation().scorer, fed_, outputs(), graph::Runner::kSlots, batch);
}

graph::Runner& Planned::predictor(const pipeline::Item& batch) {
  return fed_with(evaluation().predictor, net_.inputs, {net_.output}, 1, batch);
}

bool Planned::scores(const pipeline::Item& batch) const {
  return evaluation_ && evaluation_->scorer && takes(*evaluation_->scorer->runner, fed_, batch);
}

const gpu::Buffer& Planned::predicted() const {
  return evaluation_->plan.tensor(net_.output).buffer;
}

// Bytes are made floats by the host where the runner has no commands that do.
bool Planned::takes(const graph::Runner& runner, const std::vector<graph::ValueId>& values,
                    const pipeline::Item& batch) const {
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string& name = net_.graph.value(values[i]).name;
    if (runner.on_device(i) != (batch.find_on_device(name) != nullptr)) return false;
    if (runner.is_fed_in_parts(i) && !is_bytes(batch, name)) return false;
  }
  return !batch.views;
}

void Planned::fill(graph::Runner& runner, const std::vector<graph::ValueId>& values,
                   const pipeline::Item& batch) {
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string& name = net_.graph.value(values[i]).name;
    const pipeline::DeviceField* in_buffer = batch.find_on_device(name);
    if (runner.on_device(i) != (in_buffer != nullptr))
      fail(Code::state, "field '", name, "' ",
           in_buffer ? "lies in a Vulkan buffer and did not"
                     : "does not lie in a Vulkan buffer and did",
           " in the first batch: a trainer takes a field from one place");
    if (is_viewed(batch, name))
      training_->reservoir->fill(runner.parts(i), batch);
    else if (in_buffer)
      runner.bring(i, buffer_of(*in_buffer));
    else if (!runner.is_fed_in_parts(i))
      copy_rows(runner.input(i), batch, name);
    else if (is_bytes(batch, name))
      fill_bytes(runner.parts(i), batch, name, net_.graph.shape(values[i]));
    else
      fail(Code::state, "field '", name,
           "' is f32, and came as u8 for the device to normalise in the first batch: a trainer "
           "takes "
           "a field in one form");
  }
}

void Planned::copy_rows(std::byte* to, const pipeline::Item& batch, const std::string& name) const {
  const Tensor& tensor = *batch.find(name);
  const auto count = static_cast<size_t>(tensor.count());
  const size_t want = count / static_cast<size_t>(tensor.shape()[0]) * static_cast<size_t>(rows);
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

uint64_t Planned::reserved_bytes() const {
  return (training_ ? training_->plan.reserved_bytes() : 0) +
         (evaluation_ ? evaluation_->plan.reserved_bytes() : 0);
}

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
  std::unique_ptr<Planned> made;
  with_room(nullptr,
            [&] { made = std::make_unique<Planned>(kernels_, model_, weights_, rows, fields); });
  kept_.push_front(std::move(made));
  if (kept_.size() > kMost) {
    if (!std::exchange(warned_, true))
      log_line(LogLevel::info, cat("batches come in more than ", kMost,
                                   " shapes, and each new one is planned "
                                   "anew: pad them to a few, and steps need not wait for that"));
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
  // Half of the memory is for the others, and for whoever else uses the device.
  const auto needed = [&](const Planned* of) { return of == planned || of == last_trained_; };
  for (auto it = kept_.end(); it != kept_.begin() && reserved_bytes() > memory_bytes() / 2;)
    if (--it; !needed(it->get())) it = drop(it);
}

// The one that trained last is used by every step, and goes last.
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

// What its steps gave stays.
Plans::Kept::iterator Plans::drop(Kept::iterator it) {
  if (Planned::Training* training = (*it)->training())
    for (graph::StepResult& result : training->runner->take_results(true))
      results_[result.tag] = std::move(result);
  if (it->get() == last_trained_) last_trained_ = nullptr;
  return kept_.erase(it);
}

uint64_t Plans::memory_bytes() const {
  const gpu::Device& device = *kernels_.device();
  const uint64_t limit = device.options().memory_limit_bytes, all = device.info().memory_bytes;
  return limit ? std::min(limit, all) : all;
}

Planned& Plans::exactly(int64_t rows, const nn::Fields& fields) {
  if (Planned* found = find(rows, fields)) return *found;
  return add(rows, fields);
}

void Plans::trained(Planned& planned, const pipeline::Item& first, uint64_t view_samples) {
  if (!planned.training()) {
    for (auto it = kept_.begin(); it != kept_.end();) {
      const bool outgrown =
          it->get() != &planned && (*it)->fields == planned.fields && (*it)->training();
      it = outgrown ? drop(it) : std::next(it);
    }
    with_room(&planned, [&] { planned.make_training(first, view_samples); });
  }
  last_trained_ = &planned;
}

// By what all values of a plan would take, had each its own memory: far more than it takes.
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
  const double share =
      std::max(of(all, memory_bytes() / 4), of(largest, kernels_.device()->max_tensor_bytes()));
  if (share <= 1) return rows;
  return std::max<int64_t>(static_cast<int64_t>(static_cast<double>(rows) / share), 1);
}

Planned& Plans::serving(int64_t rows, const nn::Fields& fields) {
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

graph::Runner& Plans::scorer(Planned& planned, const pipeline::Item& batch) {
  graph::Runner* out = nullptr;
  with_room(&planned, [&] { out = &planned.scorer(batch); });
  return *out;
}

graph::Runner& Plans::predictor(Planned& planned, const pipeline::Item& batch) {
  graph::Runner* out = nullptr;
  with_room(&planned, [&] { out = &planned.predictor(batch); });
  return *out;
}

std::map<uint64_t, graph::StepResult>& Plans::results(bool wait_all) {
  for (const auto& planned : kept_)
    if (Planned::Training* training = planned->training())
      for (graph::StepResult& result : training->runner->take_results(wait_all))
        results_[result.tag] = std::move(result);
  return results_;
}

int Plans::in_flight() const {
  int count = 0;
  for (const auto& planned : kept_)
    if (Planned::Training* training = planned->training()) count += training->runner->in_flight();
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
      if (training->reservoir) return training->reservoir->stats();
  return {};
}

}  // namespace etr::train

#include "train/passes.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "train/batch_fields.h"

namespace etr::train {

// The model with an input for the gradient of its output.
struct Seeded {
  nn::ModelGraph net;
  graph::ValueId seed;
};

namespace {

constexpr const char* kSeed = "gradient of the output";  // no field can have this name

Seeded seeded(nn::ModelGraph net) {
  Seeded out{std::move(net), -1};
  out.seed = out.net.graph.add_input(kSeed, out.net.graph.shape(out.net.output), DType::f32);
  return out;
}

std::vector<graph::ValueId> float_inputs(const nn::ModelGraph& net) {
  std::vector<graph::ValueId> out = net.inputs;
  std::erase_if(out, [&](graph::ValueId id) { return net.graph.value(id).dtype != DType::f32; });
  return out;
}

graph::PlanOptions options_of(const Seeded& model, bool input_gradients) {
  graph::PlanOptions options = training_options(model.net);
  options.loss = model.net.output;
  options.loss_gradient = model.seed;
  options.outputs = {model.net.output};
  if (input_gradients) options.input_gradients = float_inputs(model.net);
  return options;
}

}  // namespace

// The passes for batches of one shape.
struct Passes::Shaped {
  Shaped(gpu::Kernels& kernels, Seeded of, const nn::Fields& its_fields, Weights& weights,
         const pipeline::Item& first, bool input_gradients)
      : fields(its_fields),
        model(std::move(of)),
        gives_input_gradients(input_gradients),
        store(weights.store, model.net.graph),
        plan(kernels, model.net.graph, store, options_of(model, input_gradients)),
        memory(kernels.device(), gpu::MemoryUse::device),
        feeds(kernels, memory, model.net, model.net.inputs, first, std::nullopt),
        forward(kernels, plan, feeds.for_runner(), {model.net.output},
                graph::Runner::Work{plan.commands()}, 1) {
    for (const graph::ValueId id : plan_inputs())
      if (plan.input_gradient(id)) read.push_back(plan.input_gradient(id).buffer);
  }

  int64_t rows() const { return model.net.graph.shape(model.net.output)[0]; }
  std::vector<graph::ValueId> plan_inputs() const {
    return gives_input_gradients ? float_inputs(model.net) : std::vector<graph::ValueId>{};
  }

  std::unique_ptr<graph::Runner> runner_of(gpu::Kernels& kernels, gpu::CommandList commands) const {
    return std::make_unique<graph::Runner>(
        kernels, plan, std::vector<graph::Feed>{model.seed}, std::vector<graph::ValueId>{},
        graph::Runner::Work{std::move(commands), false, read}, 1);
  }

  const nn::Fields fields;
  const Seeded model;
  const bool gives_input_gradients;
  graph::ParameterStore store;  // with the constants of this shape
  graph::Plan plan;
  gpu::Arena memory;  // of commands, besides the plan's
  Feeds feeds;
  graph::Runner forward;
  std::vector<gpu::Buffer> read;                        // gradients of inputs
  std::unique_ptr<graph::Runner> replace, add, update;  // made when first needed
  ops::StepValues values;                               // of the latest forward pass
};

Passes::Passes(gpu::Kernels& kernels, const nn::Model& model, Weights& weights)
    : kernels_(kernels),
      model_(model),
      weights_(weights),
      memory_(kernels.device(), gpu::MemoryUse::device) {}

Passes::~Passes() {
  try {
    wait();
  } catch (...) {  // the device is lost, and no longer reads anything
  }
}

bool Passes::gives_input_gradients() const {
  return has_output() && shaped_.front()->gives_input_gradients;
}

void Passes::wait() {
  for (const auto& shaped : shaped_)
    for (graph::Runner* runner : {shaped->replace.get(), shaped->add.get()})
      if (runner) runner->take_results(/*wait_all=*/true);
}

Passes::Shaped& Passes::shaped_for(const pipeline::Item& batch, bool input_gradients) {
  const Seen seen = look_at(batch, model_);
  const auto found = std::find_if(shaped_.begin(), shaped_.end(), [&](const auto& each) {
    return each->rows() == seen.rows && each->fields == seen.fields &&
           each->gives_input_gradients == input_gradients && each->feeds.accepts(batch);
  });
  if (found != shaped_.end()) {
    shaped_.splice(shaped_.begin(), shaped_, found);
    return *shaped_.front();
  }
  wait();
  Seeded model = seeded(graph_for(model_, seen.rows, seen.fields, weights_));
  check_fields(batch, model.net, model.net.inputs, model_, *kernels_.device());
  while (shaped_.size() >= kMost) shaped_.pop_back();
  shaped_.push_front(std::make_unique<Shaped>(kernels_, std::move(model), seen.fields, weights_,
                                              batch, input_gradients));
  return *shaped_.front();
}

Tensor Passes::forward(const pipeline::Item& batch, bool input_gradients,
                       const ops::StepValues& values) {
  has_output_ = false;
  Shaped& shaped = shaped_for(batch, input_gradients);
  check_fields(batch, shaped.model.net, shaped.model.net.inputs, model_, *kernels_.device());
  shaped.values = values;
  shaped.values.rows = shaped.values.valid_rows = static_cast<uint32_t>(shaped.rows());
  shaped.feeds.fill(shaped.forward, batch);
  shaped.forward.submit(shaped.values, 0);
  const graph::StepResult result = std::move(shaped.forward.take_results(true).back());
  ++weights_.age;  // running statistics have changed
  output_shape_ = shaped.model.net.graph.shape(shaped.model.net.output);
  has_output_ = true;
  output_age_ = weights_.age;
  Tensor out(DType::f32, output_shape_);
  std::copy(result.outputs[0].begin(), result.outputs[0].end(), out.mutable_view<float>().begin());
  return out;
}

// Returns the commands of a backward pass with the gradients from before it added.
gpu::CommandList Passes::added(const gpu::CommandList& backward) {
  const graph::ParameterStore& store = weights_.store;
  if (!earlier_) earlier_ = memory_.allocate_whole(store.gradients().size_bytes);
  gpu::CommandList out{gpu::Copy{store.gradients(), earlier_}};
  out.insert(out.end(), backward.begin(), backward.end());
  ops::Emitter emit(kernels_, memory_, out);
  emit.set_label("gradients");
  for (const auto& range : store.ranges())
    emit.for_each("add",
                  {{graph::part_of(earlier_, range), gpu::Access::read},
                   {graph::part_of(store.gradients(), range), gpu::Access::read_write}},
                  range.count, range.count);
  return out;
}

std::vector<pipeline::Field> Passes::backward(const Tensor& output_gradient, bool accumulate) {
  Shaped& shaped = *shaped_.front();
  std::unique_ptr<graph::Runner>& runner = accumulate ? shaped.add : shaped.replace;
  if (!runner) {
    // The output may not depend on all parameters.
    gpu::CommandList commands{gpu::Fill{weights_.store.gradients(), 0}};
    const gpu::CommandList& pass = shaped.plan.backward_commands();
    commands.insert(commands.end(), pass.begin(), pass.end());
    runner = shaped.runner_of(kernels_, accumulate ? added(commands) : commands);
  }
  has_output_ = false;  // the pass overwrites what it needs of the forward pass
  const auto gradient = output_gradient.view<float>();
  std::memcpy(runner->input(0), gradient.data(), gradient.size_bytes());
  runner->submit(shaped.values, 0);
  std::vector<pipeline::Field> out;
  if (!shaped.gives_input_gradients) return out;
  const graph::StepResult result = std::move(runner->take_results(true).back());
  size_t next = 0;
  for (const graph::ValueId id : shaped.plan_inputs()) {
    const graph::Value& value = shaped.model.net.graph.value(id);
    Tensor tensor(DType::f32, value.shape);
    const auto to = tensor.mutable_view<float>();
    if (shaped.plan.input_gradient(id))
      std::copy_n(result.outputs[next++].begin(), to.size(), to.begin());
    else
      std::fill(to.begin(), to.end(), 0.0f);  // nothing depends on it
    out.push_back({value.name, std::move(tensor)});
  }
  return out;
}

bool Passes::update(const ops::StepValues& values) {
  Shaped& shaped = *shaped_.front();
  if (!shaped.update) {
    gpu::CommandList commands;
    ops::Emitter emit(kernels_, shaped.memory, commands);
    // Any finite value: the program computes the loss itself.
    const gpu::Buffer loss = shaped.memory.allocate(sizeof(float));
    emit.add(gpu::Fill{loss, 0});
    weights_.update->emit(emit, loss, shaped.plan.step_values());
    shaped.update = std::make_unique<graph::Runner>(
        kernels_, shaped.plan, std::vector<graph::Feed>{}, std::vector<graph::ValueId>{},
        graph::Runner::Work{std::move(commands), true}, 1);
  }
  shaped.update->submit(values, 0);
  const bool finite = shaped.update->take_results(true).back().not_finite == 0;
  if (!finite) weights_.update->resume();
  ++weights_.age;
  return finite;
}

}  // namespace etr::train

#include "train/planned.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"
#include "gpu/run_once.h"
#include "train/batch_fields.h"

namespace etr::train {
namespace {

std::string field_text(const nn::Field& field) {
  return cat(dtype_name(field.dtype), " ", batch_text(field.sample));
}

// Describes the first difference: "field 'image' is f32 [N, 40, 40, 3], and was f32 [N, 32, 32, 3]
// in the first batch"; "" if there is none.
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

}  // namespace

nn::ModelGraph graph_for(const nn::Model& model, int64_t rows, const nn::Fields& fields,
                         const Weights& weights) {
  const std::string differs = difference(fields, weights.net);
  try {
    nn::ModelGraph net = weights.part_of(model.build(rows, fields));
    for (const graph::Value& value : net.graph.values()) {
      if (!graph::is_weight(value.kind)) continue;
      if (weights.stage && !weights.has(value.name)) continue;
      const Shape& shape = weights.store.shape(value.name);
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

std::vector<graph::ValueId> fed_values(const nn::ModelGraph& net) {
  std::vector<graph::ValueId> out = net.inputs;
  if (std::find(out.begin(), out.end(), net.target) == out.end()) out.push_back(net.target);
  return out;
}

graph::PlanOptions training_options(const nn::ModelGraph& net) {
  graph::PlanOptions options;
  options.training = true;
  options.loss = net.loss;
  options.recompute = net.recompute;
  options.precision = net.precision;
  return options;
}

struct Planned::Evaluation {
  Evaluation(gpu::Kernels& kernels, const graph::Graph& graph, const graph::ParameterStore& store,
             const graph::PlanOptions& options)
      : plan(kernels, graph, store, options), memory(kernels.device(), gpu::MemoryUse::device) {}

  graph::Plan plan;
  gpu::Arena memory;  // of the commands, besides the plan's
  gpu::CommandList commands = {};
  std::optional<uint64_t> prepared_for = {};  // the weights' age
  std::unique_ptr<FedRunner> scorer = {}, predictor = {};
};

Planned::Planned(gpu::Kernels& kernels, const nn::Model& model, Weights& weights, int64_t of_rows,
                 const nn::Fields& of_fields)
    : rows(of_rows),
      fields(of_fields),
      kernels_(kernels),
      model_(model),
      weights_(weights),
      net_(graph_for(model, rows, fields, weights)),
      micro_(weights.stage ? std::optional(graph_for(model, rows / weights.stage->micro_batches(),
                                                     fields, weights))
                           : std::nullopt),
      store_(weights.store, planned_net().graph),
      fed_(fed_here()),
      slice_peers_(weights.tensor_ranks ? weights.tensor_ranks->peers() : nullptr) {}

// Returns the values that are fed here: with a stage, only those that its part of the model reads.
std::vector<graph::ValueId> Planned::fed_here() const {
  std::vector<graph::ValueId> out = fed_values(net_);
  if (!weights_.stage) return out;
  const auto has = weights_.stage->values_of(net_.graph, weights_.stage->stage());
  std::erase_if(out, [&](graph::ValueId id) { return !has[static_cast<size_t>(id)]; });
  return out;
}

// Adds the fields that ServedTables makes of a batch.
std::vector<graph::ValueId> Planned::with_tables(std::vector<graph::ValueId> values) const {
  for (const nn::ServedTable& table : net_.served)
    values.insert(values.end(), {table.rows, table.table});
  return values;
}

Planned::~Planned() = default;

void Planned::check(const pipeline::Item& batch) const {
  check_fields(batch, net_, fed_, model_, *kernels_.device());
}

void Planned::check_inputs(const pipeline::Item& batch) const {
  check_fields(batch, net_, net_.inputs, model_, *kernels_.device());
}

std::vector<graph::ValueId> Planned::outputs() const {
  return net_.accuracy >= 0 ? std::vector{net_.loss, net_.accuracy} : std::vector{net_.loss};
}

// Returns a step's commands between its feeds and the reading of its results: gradients and update,
// with the exchanges of ranks.
gpu::CommandList Planned::step_commands(const graph::Plan& plan, gpu::Arena& memory) {
  optim::Update& update = *weights_.update;
  if (weights_.stage)
    return weights_.stage->with_update(plan, net_.loss, update, weights_.store,
                                       weights_.split.slices, kernels_, memory);
  if (weights_.ranks) {
    parallel::Sharing::Step step{
        plan.step_values(), {}, plan.row_weights().front(), &weights_.split.slices};
    if (weights_.loss_scale) step.loss_scale = weights_.loss_scale->scale();
    for (const nn::ServedTable& table : net_.served)
      step.row_gradients.push_back(plan.input_gradient(table.table));
    for (const graph::ValueId id : outputs()) step.results.push_back(plan.tensor(id).buffer);
    return weights_.ranks->with_update(plan.commands(), update, weights_.store, step, kernels_,
                                       memory);
  }
  gpu::CommandList commands = plan.commands();
  ops::Emitter emit(kernels_, memory, commands);
  update.emit(emit, plan.tensor(net_.loss).buffer, plan.step_values());
  return commands;
}

void Planned::make_training(const pipeline::Item& first, uint64_t view_samples) {
  if (weights_.stage && first.views)
    fail(Code::unsupported,
         "an echo node with 'device' can feed only one device, but this model is cut into "
         "stages: leave 'device' out of the node");
  graph::PlanOptions options = training_options(net_);
  if (weights_.loss_scale) options.loss_scale = weights_.loss_scale->scale();
  options.outputs = outputs();
  for (const nn::ServedTable& table : net_.served) options.input_gradients.push_back(table.table);
  if (weights_.ranks) options.weighed = net_.loss;
  auto row_peers = weights_.ranks ? weights_.ranks->row_peers(rows) : nullptr;
  options.peers = {row_peers.get(), slice_peers_.get()};
  if (weights_.stage) options.part = weights_.stage->part(/*training=*/true);
  if (weights_.sharded && weights_.sharded->stage() == 2)
    options.take_gradients = weights_.sharded->take_gradients(*weights_.update, weights_.store);
  std::unique_ptr<Training> made(new Training{std::move(row_peers),
                                              {kernels_, planned_net().graph, store_, options},
                                              {},
                                              FedRunner(kernels_.device(), weights_.served.get())});
  FedRunner& fed = made->fed;
  made->commands = step_commands(made->plan, fed.memory);
  fed.feeds =
      std::make_unique<Feeds>(kernels_, fed.memory, net_, with_tables(fed_), first, view_samples);
  fed.runner =
      std::make_unique<graph::Runner>(kernels_, made->plan, fed.feeds->for_runner(), outputs(),
                                      graph::Runner::Work{made->commands, true});
  training_ = std::move(made);
}

Planned::Evaluation& Planned::evaluation() {
  if (!evaluation_) {
    graph::PlanOptions options;
    options.weights = weights_.update->averages();
    options.precision = net_.precision;
    options.outputs = outputs();
    options.weighed = net_.loss;
    if (weights_.stage)
      options.part = weights_.stage->part(/*training=*/false);
    else
      options.outputs.push_back(net_.output);
    options.fold_norms = true;
    options.peers.slices = slice_peers_.get();
    evaluation_ = std::make_unique<Evaluation>(kernels_, planned_net().graph, store_, options);
    Evaluation& made = *evaluation_;
    made.commands = weights_.stage ? weights_.stage->with_means(made.plan, kernels_, made.memory)
                                   : made.plan.commands();
  }
  Evaluation& e = *evaluation_;
  if (e.prepared_for != weights_.age && !e.plan.preparation().empty())
    gpu::run_once(kernels_.device(), e.plan.preparation());
  e.prepared_for = weights_.age;
  return e;
}

FedRunner& Planned::fed_with(std::unique_ptr<FedRunner>& fed,
                             const std::vector<graph::ValueId>& values,
                             const std::vector<graph::ValueId>& read,
                             const std::vector<gpu::Buffer>& also_read, int slots,
                             const pipeline::Item& batch) {
  if (fed && fed->feeds->accepts(batch)) return *fed;
  auto made = std::make_unique<FedRunner>(kernels_.device(), weights_.served.get());
  made->feeds = std::make_unique<Feeds>(kernels_, made->memory, net_, with_tables(values), batch,
                                        std::nullopt);
  made->runner = std::make_unique<graph::Runner>(
      kernels_, evaluation_->plan, made->feeds->for_runner(), read,
      graph::Runner::Work{evaluation_->commands, false, also_read}, slots);
  fed = std::move(made);
  return *fed;
}

FedRunner& Planned::scorer(const pipeline::Item& batch) {
  Evaluation& e = evaluation();
  return fed_with(e.scorer, fed_, outputs(), e.plan.row_weights(), graph::Runner::kSlots, batch);
}

FedRunner& Planned::predictor(const pipeline::Item& batch) {
  return fed_with(evaluation().predictor, net_.inputs, {net_.output}, {}, 1, batch);
}

bool Planned::scores(const pipeline::Item& batch) const {
  return evaluation_ && evaluation_->scorer && evaluation_->scorer->feeds->accepts(batch);
}

const gpu::Buffer& Planned::predicted() const {
  return evaluation_->plan.tensor(net_.output).buffer;
}

uint64_t Planned::reserved_bytes() const {
  return (training_ ? training_->plan.reserved_bytes() : 0) +
         (evaluation_ ? evaluation_->plan.reserved_bytes() : 0);
}

}  // namespace etr::train

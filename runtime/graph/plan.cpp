#include "graph/plan.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "graph/fusion.h"
#include "graph/quantized.h"
#include "ops/gemm.h"
#include "ops/pointwise.h"

namespace etr::graph {
namespace {

// Returns the end of the nodes to compute.
size_t end_of(const Graph& graph, const PlanOptions& options) {
  const auto& nodes = graph.nodes();
  if (options.loss_gradient < 0)
    return std::min(options.part ? options.part->end : SIZE_MAX, nodes.size());
  const auto last = std::find_if(nodes.begin(), nodes.end(),
                                 [&](const Node& node) { return node.output == options.loss; });
  if (last == nodes.end() || options.part || options.take_gradients || options.peers.rows ||
      options.peers.slices)
    fail(Code::internal, "a plan cannot be cut between its passes here");
  return static_cast<size_t>(last - nodes.begin()) + 1;
}

// Returns what the rows weigh, which the op mean_rows saves after its divisor.
gpu::Buffer weight_in(const gpu::Buffer& total) {
  return total.slice(sizeof(float), sizeof(float));
}

}  // namespace

int64_t elements_of_mean(const Graph& graph, ValueId mean) {
  for (const Node& node : graph.nodes())
    if (node.output == mean) return element_count(graph.shape(node.inputs[0]));
  fail(Code::internal, "no node computes value ", mean);
}

Plan::Plan(gpu::Kernels& kernels, const Graph& graph, const ParameterStore& parameters,
           const PlanOptions& options)
    : graph_(graph),
      training_(options.training),
      recompute_(options.recompute),
      part_(options.part),
      begin_(part_ ? part_->begin : 0),
      end_(end_of(graph, options)),
      has_(part_ ? values_of(graph, *part_) : std::vector<bool>(graph.values().size(), true)),
      arena_(kernels.device(), gpu::MemoryUse::device),
      memory_(kernels.device()),
      step_(arena_.allocate(sizeof(ops::StepValues))),
      tensors_(graph.values().size()) {
  ops::Emitter emit(kernels, memory_, commands_);
  emit.set_precision(options.precision);
  emit.set_peers(options.peers);
  allocate(parameters, options.weights);
  if (part_)
    make_micro_batches(emit, options);
  else
    flights_.push_back(make_flight());
  if (options.fold_norms && !options.training) {
    ops::Emitter prepare(kernels, arena_, preparation_);
    find_folds(prepare, options);
  }
  if (options.training) needs_gradient_ = trained(graph, options.input_gradients);
  if (part_) {
    run_micro_batches(emit, parameters, options);
  } else {
    Flight& flight = flights_.front();
    forward(emit, flight);
    if (options.loss_gradient >= 0) emit.add(gpu::HostTurn{});  // where split_passes() cuts
    if (options.training) begin_backward(emit, flight, options);
    if (options.training) backward(emit, flight, parameters);
    if (options.take_gradients)
      options.take_gradients(commands_, gradients_of(flight),
                             weight_in(total_of(flight, options.weighed).buffer));
    tensors_ = flight.tensors;
    for (const ValueId id : options.input_gradients)
      input_gradients_[id] = flight.gradients[index(id)];
  }
  place(kernels, options);
}

void Plan::place(gpu::Kernels& kernels, const PlanOptions& options) {
  const std::vector<ValueId>& outputs = options.outputs;
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (graph_.values()[i].kind == ValueKind::input) memory_.written_before(tensors_[i].buffer);
  for (const ValueId id : outputs) memory_.read_after(tensors_[index(id)].buffer);
  for (const auto& [id, gradient] : input_gradients_) memory_.read_after(gradient.buffer);
  if (options.weighed >= 0 && computes(options.weighed))
    for (const Flight& flight : flights_)
      row_weights_.push_back(total_of(flight, options.weighed).buffer);
  for (const gpu::Buffer& total : row_weights_) memory_.read_after(total);
  memory_.join_copies(commands_);
  if (options.fuse) fuse(commands_, memory_, kernels);
  memory_.place(commands_, arena_);
  if (options.loss_gradient >= 0) split_passes();
  for (auto& [id, gradient] : input_gradients_)
    if (gradient) gradient.buffer = memory_.real(gradient.buffer);  // no value may depend on it
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const bool input = graph_.values()[i].kind == ValueKind::input;
    const bool output =
        std::find(outputs.begin(), outputs.end(), static_cast<ValueId>(i)) != outputs.end();
    if (input || output)
      tensors_[i].buffer = memory_.real(tensors_[i].buffer);
    else if (tensors_[i].buffer.planned)
      tensors_[i] = {};
  }
  for (gpu::Buffer& total : row_weights_) total = weight_in(memory_.real(total));
  // Inputs that no command reads are uploaded too.
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (graph_.values()[i].kind == ValueKind::input && has_[i] && !tensors_[i])
      tensors_[i] = {
          arena_.allocate(static_cast<uint64_t>(element_count(graph_.values()[i].shape)) * 4),
          graph_.values()[i].shape};
  flights_.clear();
}

// Fusion moves nothing over the cut that the forward pass's outputs, which are kept, depend on.
void Plan::split_passes() {
  const auto cut = std::find_if(
      commands_.begin(), commands_.end(),
      [](const gpu::Command& command) { return std::holds_alternative<gpu::HostTurn>(command); });
  backward_commands_.assign(std::next(cut), commands_.end());
  commands_.erase(cut, commands_.end());
}

const ops::DeviceTensor& Plan::tensor(ValueId id) const {
  const ops::DeviceTensor& tensor = tensors_[index(id)];
  if (!tensor) fail(Code::internal, "value ", id, " of the plan is no input and no output");
  return tensor;
}

const ops::DeviceTensor& Plan::input_gradient(ValueId id) const {
  const auto it = input_gradients_.find(id);
  if (it == input_gradients_.end())
    fail(Code::internal, "value ", id, " of the plan is no input with a gradient");
  return it->second;
}

ops::DeviceTensor Plan::unplaced(const Shape& shape) {
  return {memory_.allocate(static_cast<uint64_t>(element_count(shape)) * 4), shape};
}

void Plan::allocate(const ParameterStore& parameters, const gpu::Buffer& weights) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Value& value = graph_.values()[i];
    if (!has_[i]) continue;
    if (is_weight(value.kind) || value.kind == ValueKind::constant)
      tensors_[i] = parameters.stored(value.name);
    else if (value.kind == ValueKind::input && !part_)
      tensors_[i] = unplaced(value.shape);
    if (value.kind == ValueKind::parameter && weights)
      tensors_[i] = parameters.elsewhere(value.name, weights);
  }
}

Plan::Flight Plan::make_flight() {
  Flight flight{step_, tensors_, std::vector<ops::DeviceTensor>(tensors_.size()),
                std::vector<std::vector<ops::DeviceTensor>>(graph_.nodes().size())};
  for (size_t i = 0; part_ && i < tensors_.size(); ++i) {  // inputs, and values from other parts
    const ValueKind kind = graph_.values()[i].kind;
    if (has_[i] && (kind == ValueKind::input || kind == ValueKind::result))
      flight.tensors[i] = unplaced(graph_.values()[i].shape);
  }
  for (size_t n = begin_; n < end_; ++n) {
    const Node& node = graph_.nodes()[n];
    const ops::DeviceTensor& from = flight.tensors[index(node.inputs[0])];
    const Shape& shape = graph_.value(node.output).shape;
    flight.tensors[index(node.output)] =
        node.op->view ? ops::DeviceTensor{from.buffer, shape} : unplaced(shape);
    for (const Shape& saved : node.saved) flight.saved[n].push_back(unplaced(saved));
  }
  return flight;
}

ops::OpCall Plan::call_of(const Flight& flight, size_t n) const {
  const Node& node = graph_.nodes()[n];
  ops::OpCall call{node.options,    node.key,    training_, {}, flight.tensors[index(node.output)],
                   flight.saved[n], flight.step, {},        {}};
  for (const ValueId id : node.inputs) call.inputs.push_back(flight.tensors[index(id)]);
  return call;
}

ops::OpCall Plan::whole_call_of(ops::Emitter& emit, const Flight& flight, size_t n) const {
  ops::OpCall call = call_of(flight, n);
  const Node& node = graph_.nodes()[n];
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Value& value = graph_.value(node.inputs[i]);
    if (value.stored_bits == 32) continue;
    const ops::DeviceTensor whole = emit.scratch(value.shape);
    emit_dequantize(emit, call.inputs[i].buffer, value.stored_bits, whole);
    call.inputs[i] = whole;
  }
  return call;
}

// Finds normalisations whose input is a product that nothing else reads and that has its own
// weights.
void Plan::find_folds(ops::Emitter& emit, const PlanOptions& options) {
  const auto& nodes = graph_.nodes();
  folded_away_.assign(nodes.size(), false);
  std::vector<size_t> producer(tensors_.size(), nodes.size()), users(tensors_.size(), 0);
  const Flight& flight = flights_.front();
  for (size_t n = 0; n < nodes.size(); ++n) {
    if (n >= begin_ && n < end_) producer[index(nodes[n].output)] = n;
    for (const ValueId id : nodes[n].inputs) ++users[index(id)];
  }
  for (const ValueId id : options.outputs) ++users[index(id)];
  for (size_t n = begin_; n < end_; ++n) {
    const Node& norm = nodes[n];
    if (!norm.op->is_foldable) continue;
    const size_t p = producer[index(norm.inputs[0])];
    if (p == nodes.size() || users[index(norm.inputs[0])] != 1) continue;
    const Node& product = nodes[p];
    if (!product.op->folds || !product.op->folds(product.options) ||
        !is_weight(graph_.value(product.inputs[1]).kind) ||
        graph_.value(product.inputs[1]).stored_bits != 32)
      continue;
    const ops::OpCall call = call_of(flight, p), after = call_of(flight, n);
    Fold fold{p, emit.scratch(call.inputs[1].shape), emit.scratch(after.inputs[1].shape)};
    emit.set_label(norm.label + " (folded)");
    ops::emit_fold_norm(emit, call.inputs[1],
                        call.inputs.size() > 2 ? call.inputs[2] : ops::DeviceTensor{},
                        std::span(after.inputs).subspan(1),
                        static_cast<float>(norm.options.number("epsilon")), fold.w, fold.b);
    folds_[n] = std::move(fold);
    folded_away_[p] = true;
  }
}

void Plan::forward_folded(ops::Emitter& emit, const Flight& flight, size_t norm) {
  const Fold& fold = folds_.at(norm);
  const Node& product = graph_.nodes()[fold.product];
  Json json = product.options.json();
  json["relu"] = graph_.nodes()[norm].options.boolean("relu");
  const Options options(product.op->options, product.label, json);
  const ops::OpCall of_product = call_of(flight, fold.product), of_norm = call_of(flight, norm);
  const ops::OpCall call{options,
                         of_product.node,
                         /*training=*/false,
                         {of_product.inputs[0], fold.w, fold.b},
                         of_norm.output,
                         of_product.saved,
                         flight.step,
                         {},
                         {}};
  emit.set_label(product.label);
  product.op->forward(call, emit);
}

void Plan::forward(ops::Emitter& emit, const Flight& flight) {
  for (size_t n = begin_; n < end_; ++n) {
    if (!folded_away_.empty() && folded_away_[n]) continue;
    if (folds_.count(n)) {
      forward_folded(emit, flight, n);
      continue;
    }
    emit.set_label(graph_.nodes()[n].label);
    graph_.nodes()[n].op->forward(whole_call_of(emit, flight, n), emit);
  }
}

bool Plan::any_needs_gradient(size_t begin, size_t end) const {
  for (size_t n = begin; n < end; ++n)
    if (needs_gradient_[index(graph_.nodes()[n].output)]) return true;
  return false;
}

// Returns the nodes at which the parts for recomputation begin: about as many as the square root of
// the number of nodes, where the fewest bytes cross.
std::vector<size_t> Plan::cuts() const {
  const size_t n = end_ - begin_;
  std::vector<size_t> last_user(graph_.values().size());
  for (size_t user = begin_; user < end_; ++user)
    for (const ValueId input : graph_.nodes()[user].inputs) last_user[index(input)] = user;
  std::vector<double> crossing(n + 1);
  for (size_t producer = begin_; producer < end_; ++producer) {
    const ValueId value = graph_.nodes()[producer].output;
    for (size_t cut = producer + 1; cut <= last_user[index(value)]; ++cut)
      crossing[cut - begin_] += static_cast<double>(element_count(graph_.shape(value)));
  }
  std::vector<size_t> out{begin_};
  const auto parts = static_cast<size_t>(std::sqrt(static_cast<double>(n)));
  for (size_t part = 1; part < parts; ++part) {
    const size_t low = std::max(out.back() - begin_ + 1, (2 * part - 1) * n / (2 * parts)),
                 high = (2 * part + 1) * n / (2 * parts);
    if (low >= high) continue;
    out.push_back(begin_ + static_cast<size_t>(
                               std::min_element(crossing.begin() + static_cast<ptrdiff_t>(low),
                                                crossing.begin() + static_cast<ptrdiff_t>(high)) -
                               crossing.begin()));
  }
  return out;
}

void Plan::forward_again(ops::Emitter& emit, Flight& flight, size_t begin, size_t end) {
  for (size_t n = begin; n < end; ++n) {
    const Node& node = graph_.nodes()[n];
    ops::DeviceTensor& out = flight.tensors[index(node.output)];
    if (node.op->view) {
      out.buffer = flight.tensors[index(node.inputs[0])].buffer;
      continue;
    }
    out = emit.scratch(out.shape);
    const bool stateful =
        std::any_of(node.op->inputs.begin(), node.op->inputs.end(),
                    [](const ops::OpInput& i) { return i.role == ops::InputRole::state; });
    if (!stateful)
      for (ops::DeviceTensor& saved : flight.saved[n]) saved = emit.scratch(saved.shape);
    emit.set_label(node.label + " (again)");
    ops::OpCall call = whole_call_of(emit, flight, n);
    call.recomputed = true;
    node.op->forward(call, emit);
  }
}

void Plan::begin_backward(ops::Emitter& emit, Flight& flight, const PlanOptions& options) {
  ops::DeviceTensor& first = flight.gradients[index(options.loss)];
  if (options.loss_gradient >= 0) {
    first = flight.tensors[index(options.loss_gradient)];
    return;
  }
  first = emit.scratch(graph_.shape(options.loss));
  if (options.loss_scale)
    emit.add(gpu::Copy{options.loss_scale, first.buffer});
  else
    emit.add(gpu::Fill{first.buffer, std::bit_cast<uint32_t>(1.0f)});
}

// Recomputed tensors serve only the backward pass.
void Plan::backward(ops::Emitter& emit, Flight& flight, const ParameterStore& parameters) {
  const auto first = flight.tensors;
  std::vector<size_t> parts = recompute_ ? cuts() : std::vector<size_t>{begin_};
  for (size_t n = end_; n-- > begin_;) {
    if (n < parts.back()) {  // only values that cross its end were kept of this part
      const size_t end = parts.back();
      parts.pop_back();
      if (any_needs_gradient(parts.back(), end)) forward_again(emit, flight, parts.back(), end);
    }
    backward_of(emit, flight, n, parameters);
  }
  flight.tensors = first;
}

std::map<std::string, gpu::Buffer> Plan::gradients_of(const Flight& flight) const {
  std::map<std::string, gpu::Buffer> out;
  for (size_t i = 0; i < flight.gradients.size(); ++i)
    if (graph_.values()[i].kind == ValueKind::parameter && flight.gradients[i])
      out[graph_.values()[i].name] = flight.gradients[i].buffer;
  return out;
}

void Plan::backward_of(ops::Emitter& emit, Flight& flight, size_t n,
                       const ParameterStore& parameters) {
  const Node& node = graph_.nodes()[n];
  const ops::DeviceTensor output_grad = flight.gradients[index(node.output)];
  if (!output_grad || !needs_gradient_[index(node.output)]) return;
  if (!node.op->backward)
    fail(Code::invalid_argument, node.label, ": op '", node.op->name, "' has no gradient");
  emit.set_label(node.label + " (gradient)");
  ops::OpCall call = whole_call_of(emit, flight, n);
  call.output_grad = output_grad;
  std::vector<std::pair<ops::DeviceTensor, ops::DeviceTensor>> sums;  // from, into
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    ops::DeviceTensor target;
    const Value& value = graph_.value(node.inputs[i]);
    ops::DeviceTensor& gradient = flight.gradients[index(node.inputs[i])];
    if (node.op->inputs[i].role == ops::InputRole::differentiable &&
        needs_gradient_[index(node.inputs[i])]) {
      const ops::DeviceTensor viewed{output_grad.buffer, value.shape};
      const bool first = !gradient;
      if (first && value.kind == ValueKind::parameter) gradient = parameters.gradient(value.name);
      if (!first) {  // another user: into a temporary, then added
        target = node.op->view ? viewed : emit.scratch(value.shape);
        sums.emplace_back(target, gradient);
      } else if (!node.op->view) {
        if (!gradient) gradient = emit.scratch(value.shape);
        target = gradient;
      } else if (gradient) {  // of a parameter, which is read from its own place
        emit.add(gpu::Copy{viewed.buffer, gradient.buffer});
      } else {
        gradient = viewed;
      }
    }
    call.input_grads.push_back(target);
  }
  if (!node.op->view) node.op->backward(call, emit);
  for (const auto& [from, into] : sums) {
    emit.for_each("add", {ops::reads(from), ops::updates(into)}, from.count(), from.count());
    emit.set_fusible(
        ops::pointwise("add", from.count(), 2, "$r = $0 + $1;", ops::Pointwise::Form::add));
  }
}

}  // namespace etr::graph

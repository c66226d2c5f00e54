#include "graph/plan.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>

#include "core/error.h"
#include "core/json.h"
#include "graph/fusion.h"
#include "ops/gemm.h"
#include "ops/pointwise.h"

namespace etr::graph {
namespace {

size_t index(ValueId id) { return static_cast<size_t>(id); }

}  // namespace

Plan::Plan(gpu::Kernels& kernels, const Graph& graph, const ParameterStore& parameters,
           const PlanOptions& options)
    : graph_(graph),
      training_(options.training),
      recompute_(options.recompute),
      arena_(kernels.device(), gpu::MemoryUse::device),
      memory_(kernels.device()),
      step_(arena_.allocate(sizeof(ops::StepValues))),
      tensors_(graph.values().size()),
      gradients_(graph.values().size()),
      saved_(graph.nodes().size()) {
  ops::Emitter emit(kernels, memory_, commands_);
  emit.set_precision(options.precision);
  emit.set_peers(options.peers);
  allocate(parameters, options.weights);
  if (options.fold_norms && !options.training) {
    ops::Emitter prepare(kernels, arena_, preparation_);
    find_folds(prepare, options);
  }
  forward(emit);
  if (options.training) {
    find_needed();
    const auto first =
        tensors_;  // of the forward pass; recomputed ones are for the backward pass alone
    backward(emit, parameters, options);
    tensors_ = first;
  }
  place(kernels, options);
}

void Plan::place(gpu::Kernels& kernels, const PlanOptions& options) {
  const std::vector<ValueId>& outputs = options.outputs;
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (graph_.values()[i].kind == ValueKind::input) memory_.written_before(tensors_[i].buffer);
  for (const ValueId id : outputs) memory_.read_after(tensors_[index(id)].buffer);
  memory_.join_copies(commands_);
  if (options.fuse) fuse(commands_, memory_, kernels);
  memory_.place(commands_, arena_);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const bool input = graph_.values()[i].kind == ValueKind::input;
    const bool output =
        std::find(outputs.begin(), outputs.end(), static_cast<ValueId>(i)) != outputs.end();
    if (input || output)
      tensors_[i].buffer = memory_.real(tensors_[i].buffer);
    else if (tensors_[i].buffer.planned)
      tensors_[i] = {};
  }
  // An input that no command reads is uploaded all the same.
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (graph_.values()[i].kind == ValueKind::input && !tensors_[i])
      tensors_[i] = {
          arena_.allocate(static_cast<uint64_t>(element_count(graph_.values()[i].shape)) * 4),
          graph_.values()[i].shape};
  gradients_.clear();
  saved_.clear();
}

const ops::DeviceTensor& Plan::tensor(ValueId id) const {
  const ops::DeviceTensor& tensor = tensors_[index(id)];
  if (!tensor) fail(Code::internal, "value ", id, " of the plan is no input and no output");
  return tensor;
}

void Plan::allocate(const ParameterStore& parameters, const gpu::Buffer& weights) {
  const auto allocate_tensor = [&](const Shape& shape) -> ops::DeviceTensor {
    return {memory_.allocate(static_cast<uint64_t>(element_count(shape)) * 4), shape};
  };
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Value& value = graph_.values()[i];
    if (value.kind == ValueKind::parameter || value.kind == ValueKind::state ||
        value.kind == ValueKind::constant)
      tensors_[i] = parameters.tensor(value.name);
    else if (value.kind == ValueKind::input)
      tensors_[i] = allocate_tensor(value.shape);
    if (value.kind == ValueKind::parameter && weights)
      tensors_[i] = parameters.elsewhere(value.name, weights);
  }
  for (size_t n = 0; n < graph_.nodes().size(); ++n) {
    const Node& node = graph_.nodes()[n];
    ops::DeviceTensor& out = tensors_[index(node.output)];
    out = node.op->view
              ? ops::DeviceTensor{tensors_[index(node.inputs[0])].buffer, graph_.shape(node.output)}
              : allocate_tensor(graph_.shape(node.output));
    for (const Shape& shape : node.saved) saved_[n].push_back(allocate_tensor(shape));
  }
}

ops::OpCall Plan::call_of(size_t n) const {
  const Node& node = graph_.nodes()[n];
  ops::OpCall call{node.options,
                   static_cast<uint32_t>(n),
                   training_,
                   {},
                   tensors_[index(node.output)],
                   saved_[n],
                   step_,
                   {},
                   {}};
  for (const ValueId id : node.inputs) call.inputs.push_back(tensors_[index(id)]);
  return call;
}

// A normalisation whose input is a product that nobody else reads, with weights of its own.
void Plan::find_folds(ops::Emitter& emit, const PlanOptions& options) {
  const auto& nodes = graph_.nodes();
  folded_away_.assign(nodes.size(), false);
  std::vector<size_t> producer(tensors_.size(), nodes.size()), users(tensors_.size(), 0);
  for (size_t n = 0; n < nodes.size(); ++n) {
    producer[index(nodes[n].output)] = n;
    for (const ValueId id : nodes[n].inputs) ++users[index(id)];
  }
  for (const ValueId id : options.outputs) ++users[index(id)];
  for (size_t n = 0; n < nodes.size(); ++n) {
    const Node& norm = nodes[n];
    if (std::string_view(norm.op->name) != "batch_norm") continue;
    const size_t p = producer[index(norm.inputs[0])];
    if (p == nodes.size() || users[index(norm.inputs[0])] != 1) continue;
    const Node& product = nodes[p];
    const std::string_view op = product.op->name;
    const bool plain = op == "conv2d" || (op == "dense" && !product.options.boolean("transposed"));
    if (!plain || product.options.boolean("relu") ||
        graph_.value(product.inputs[1]).kind != ValueKind::parameter)
      continue;
    const ops::OpCall call = call_of(p), after = call_of(n);
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

void Plan::forward_folded(ops::Emitter& emit, size_t norm) {
  const Fold& fold = folds_.at(norm);
  const Node& product = graph_.nodes()[fold.product];
  Json json = product.options.json();
  json["relu"] = graph_.nodes()[norm].options.boolean("relu");
  const Options options(product.op->options, product.label, json);
  const ops::OpCall of_product = call_of(fold.product), of_norm = call_of(norm);
  const ops::OpCall call{options,
                         of_product.node,
                         /*training=*/false,
                         {of_product.inputs[0], fold.w, fold.b},
                         of_norm.output,
                         of_product.saved,
                         step_,
                         {},
                         {}};
  emit.set_label(product.label);
  product.op->forward(call, emit);
}

void Plan::forward(ops::Emitter& emit) {
  for (size_t n = 0; n < graph_.nodes().size(); ++n) {
    if (!folded_away_.empty() && folded_away_[n]) continue;
    if (folds_.count(n)) {
      forward_folded(emit, n);
      continue;
    }
    emit.set_label(graph_.nodes()[n].label);
    graph_.nodes()[n].op->forward(call_of(n), emit);
  }
}

void Plan::find_needed() {
  needs_gradient_.assign(tensors_.size(), false);
  for (size_t i = 0; i < tensors_.size(); ++i)
    needs_gradient_[i] = graph_.values()[i].kind == ValueKind::parameter;
  for (const Node& node : graph_.nodes())
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.op->inputs[i].role == ops::InputRole::differentiable &&
          needs_gradient_[index(node.inputs[i])])
        needs_gradient_[index(node.output)] = true;
}

// Nodes at which parts begin whose insides are computed again: about as many as the root of all, where the
// fewest bytes cross.
std::vector<size_t> Plan::cuts() const {
  const size_t n = graph_.nodes().size();
  std::vector<size_t> last_user(graph_.values().size());
  for (size_t user = 0; user < n; ++user)
    for (const ValueId input : graph_.nodes()[user].inputs) last_user[index(input)] = user;
  std::vector<double> crossing(n + 1);
  for (size_t producer = 0; producer < n; ++producer) {
    const ValueId value = graph_.nodes()[producer].output;
    for (size_t cut = producer + 1; cut <= last_user[index(value)]; ++cut)
      crossing[cut] += static_cast<double>(element_count(graph_.shape(value)));
  }
  std::vector<size_t> out{0};
  const auto parts = static_cast<size_t>(std::sqrt(static_cast<double>(n)));
  for (size_t part = 1; part < parts; ++part) {
    const size_t low = std::max(out.back() + 1, (2 * part - 1) * n / (2 * parts)),
                 high = (2 * part + 1) * n / (2 * parts);
    if (low >= high) continue;
    out.push_back(
        static_cast<size_t>(std::min_element(crossing.begin() + static_cast<ptrdiff_t>(low),
                                             crossing.begin() + static_cast<ptrdiff_t>(high)) -
                            crossing.begin()));
  }
  return out;
}

void Plan::forward_again(ops::Emitter& emit, size_t begin, size_t end) {
  for (size_t n = begin; n < end; ++n) {
    const Node& node = graph_.nodes()[n];
    ops::DeviceTensor& out = tensors_[index(node.output)];
    if (node.op->view) {
      out.buffer = tensors_[index(node.inputs[0])].buffer;
      continue;
    }
    out = emit.scratch(out.shape);
    const bool stateful =
        std::any_of(node.op->inputs.begin(), node.op->inputs.end(),
                    [](const ops::OpInput& i) { return i.role == ops::InputRole::state; });
    if (!stateful)
      for (ops::DeviceTensor& saved : saved_[n]) saved = emit.scratch(saved.shape);
    emit.set_label(node.label + " (again)");
    ops::OpCall call = call_of(n);
    call.recomputed = true;
    node.op->forward(call, emit);
  }
}

void Plan::backward(ops::Emitter& emit, const ParameterStore& parameters,
                    const PlanOptions& options) {
  ops::DeviceTensor& first = gradients_[index(options.loss)];
  first = emit.scratch(graph_.shape(options.loss));
  if (options.loss_scale)
    emit.add(gpu::Copy{options.loss_scale, first.buffer});
  else
    emit.add(gpu::Fill{first.buffer, std::bit_cast<uint32_t>(1.0f)});
  std::vector<size_t> parts = recompute_ ? cuts() : std::vector<size_t>{0};
  for (size_t n = graph_.nodes().size(); n-- > 0;) {
    if (n < parts.back()) {  // a part of which only what crosses its end is still there
      const size_t end = parts.back();
      parts.pop_back();
      forward_again(emit, parts.back(), end);
    }
    const Node& node = graph_.nodes()[n];
    const ops::DeviceTensor output_grad = gradients_[index(node.output)];
    if (!output_grad || !needs_gradient_[index(node.output)]) continue;
    if (!node.op->backward)
      fail(Code::invalid_argument, node.label, ": op '", node.op->name, "' has no gradient");
    emit.set_label(node.label + " (gradient)");
    ops::OpCall call = call_of(n);
    call.output_grad = output_grad;
    std::vector<std::pair<ops::DeviceTensor, ops::DeviceTensor>> sums;  // from, into
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      ops::DeviceTensor target;
      const Value& value = graph_.value(node.inputs[i]);
      ops::DeviceTensor& gradient = gradients_[index(node.inputs[i])];
      if (node.op->inputs[i].role == ops::InputRole::differentiable &&
          needs_gradient_[index(node.inputs[i])]) {
        if (node.op->view && !gradient) {
          gradient = {output_grad.buffer, value.shape};
        } else if (!gradient) {
          gradient = value.kind == ValueKind::parameter ? parameters.gradient(value.name)
                                                        : emit.scratch(value.shape);
          target = gradient;
        } else {  // a second user: into a temporary, then added
          target = node.op->view ? ops::DeviceTensor{output_grad.buffer, value.shape}
                                 : emit.scratch(value.shape);
          sums.emplace_back(target, gradient);
        }
      }
      call.input_grads.push_back(target);
    }
    if (!node.op->view) node.op->backward(call, emit);
    for (const auto& [from, into] : sums) {
      emit.for_each("add", {ops::reads(from), ops::updates(into)}, from.count(), from.count());
      emit.tell(ops::pointwise("add", from.count(), 2, "$r = $0 + $1;", ops::Pointwise::Form::add));
    }
  }
}

}  // namespace etr::graph

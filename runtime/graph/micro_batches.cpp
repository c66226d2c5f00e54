// Plans for a part of a graph: the state of each micro-batch, and what they share.
#include <algorithm>

#include "core/error.h"
#include "graph/plan.h"

namespace etr::graph {
namespace {

using gpu::Access;

// Emits a kernel with a single workgroup.
template <typename Push>
void emit_one(ops::Emitter& emit, const char* shader, std::vector<gpu::Binding> bindings,
              const Push& push) {
  emit.dispatch(shader, std::move(bindings), push, {1, 1, 1});
}

Shape rows_of(Shape shape, int times) {
  shape[0] *= times;
  return shape;
}

}  // namespace

bool Plan::computes(ValueId value) const {
  return std::any_of(graph_.nodes().begin() + static_cast<ptrdiff_t>(begin_),
                     graph_.nodes().begin() + static_cast<ptrdiff_t>(end_),
                     [&](const Node& node) { return node.output == value; });
}

// Returns the divisor and weight that the op of the mean saved.
const ops::DeviceTensor& Plan::total_of(const Flight& flight, ValueId mean) const {
  for (size_t n = begin_; n < end_; ++n)
    if (graph_.nodes()[n].output == mean && graph_.nodes()[n].op->is_mean_of_rows)
      return flight.saved[n].front();
  fail(Code::internal, "value ", mean, " is no mean over rows");
}

// Returns the number of elements of the mean in all micro-batches, valid or not.
float Plan::all_rows(ValueId mean) const {
  return static_cast<float>(elements_of_mean(graph_, mean) * part_->micro_batches);
}

void Plan::make_micro_batches(ops::Emitter& emit, const PlanOptions& options) {
  means_ = options.outputs;
  sums_ = arena_.allocate(2 * sizeof(float) * std::max<size_t>(means_.size(), 1));
  weight_ = arena_.allocate(sizeof(float));
  for (const ValueId id : means_) tensors_[index(id)] = {arena_.allocate(sizeof(float)), {1}};
  for (size_t i = 0; i < tensors_.size(); ++i)
    if (const Value& value = graph_.values()[i]; has_[i] && value.kind == ValueKind::input)
      tensors_[i] = unplaced(rows_of(value.shape, part_->micro_batches));
  emit.set_label("micro-batches");
  emit.add(gpu::Fill{sums_, 0});
  const auto input = std::find_if(graph_.values().begin(), graph_.values().end(),
                                  [](const Value& v) { return v.kind == ValueKind::input; });
  const auto rows = static_cast<uint32_t>(input->shape[0]);
  for (int i = 0; i < part_->micro_batches; ++i) {
    flights_.push_back(make_flight());
    Flight& flight = flights_.back();
    flight.step = arena_.allocate(sizeof(ops::StepValues));
    const struct { uint32_t first, rows; } push{rows * static_cast<uint32_t>(i), rows};
    emit_one(emit, "micro_batch_values", {{step_, Access::read}, {flight.step, Access::write}},
             push);
  }
}

// Copies the micro-batch's part of what the host has uploaded.
void Plan::load_inputs(ops::Emitter& emit, Flight& flight, int micro_batch) const {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (!has_[i] || graph_.values()[i].kind != ValueKind::input) continue;
    const gpu::Buffer& own = flight.tensors[i].buffer;
    emit.add(gpu::Copy{tensors_[i].buffer.slice(static_cast<uint64_t>(micro_batch) * own.size_bytes,
                                                own.size_bytes),
                       own});
  }
}

void Plan::sum_outputs(ops::Emitter& emit, const Flight& flight) const {
  emit.set_label("micro-batches");
  for (size_t k = 0; k < means_.size(); ++k) {
    if (!computes(means_[k])) continue;
    const struct {
      uint32_t at;
      float all;
    } push{static_cast<uint32_t>(k), all_rows(means_[k])};
    emit_one(emit, "micro_batch_sum",
             {ops::reads(flight.tensors[index(means_[k])]),
              ops::reads(total_of(flight, means_[k])),
              {sums_, Access::read_write}},
             push);
  }
}

void Plan::seed(ops::Emitter& emit, Flight& flight, const PlanOptions& options) const {
  if (!computes(options.loss)) return;
  emit.set_label("micro-batches");
  ops::DeviceTensor& first = flight.gradients[index(options.loss)];
  first = emit.scratch(graph_.shape(options.loss));
  const bool scaled = static_cast<bool>(options.loss_scale);
  const ops::DeviceTensor& total = total_of(flight, options.loss);
  const struct {
    uint32_t scaled;
    float all;
  } push{scaled, all_rows(options.loss)};
  emit_one(emit, "micro_batch_seed",
           {ops::reads(total),
            {scaled ? options.loss_scale : total.buffer, Access::read},
            ops::writes(first)},
           push);
}

void Plan::run_micro_batches(ops::Emitter& emit, const ParameterStore& parameters,
                             const PlanOptions& options) {
  const auto at_begin = crossing(graph_, begin_, options.loss),
             at_end = crossing(graph_, end_, options.loss);
  const auto carry = [&](const Part::Carrier& carrier, const Pass& pass,
                         const std::vector<ops::DeviceTensor>& tensors) {
    if (!tensors.empty()) carrier(pass, tensors, emit);
  };
  const auto values = [](const Flight& flight, const std::vector<Crossing>& all) {
    std::vector<ops::DeviceTensor> out;
    for (const Crossing& each : all) out.push_back(flight.tensors[index(each.value)]);
    return out;
  };
  const auto gradients = [](const Flight& flight, const std::vector<Crossing>& all) {
    std::vector<ops::DeviceTensor> out;
    for (const Crossing& each : all)
      if (each.differentiable) out.push_back(flight.gradients[index(each.value)]);
    return out;
  };
  const Flight* before = nullptr;  // the latest in a backward pass: the next adds to its gradients
  for (const Pass& pass : part_->order) {
    Flight& flight = flights_[static_cast<size_t>(pass.micro_batch)];
    if (pass.direction == Pass::Direction::forward) {
      load_inputs(emit, flight, pass.micro_batch);
      carry(part_->receive, pass, values(flight, at_begin));
      forward(emit, flight);
      sum_outputs(emit, flight);
      carry(part_->send, pass, values(flight, at_end));
      continue;
    }
    for (size_t i = 0; before && i < tensors_.size(); ++i)
      if (graph_.values()[i].kind == ValueKind::parameter)
        flight.gradients[i] = before->gradients[i];
    for (const Crossing& each : at_end)
      if (each.differentiable)
        flight.gradients[index(each.value)] = emit.scratch(graph_.shape(each.value));
    carry(part_->receive, pass, gradients(flight, at_end));
    seed(emit, flight, options);
    backward(emit, flight, parameters);
    carry(part_->send, pass, gradients(flight, at_begin));
    before = &flight;
  }
}

void Plan::emit_means(ops::Emitter& emit) const {
  emit.set_label("micro-batches");
  for (size_t k = 0; k < means_.size(); ++k)
    emit_one(emit, "micro_batch_mean",
             {{sums_, Access::read}, ops::writes(tensors_[index(means_[k])])},
             static_cast<uint32_t>(k));
  emit_one(emit, "micro_batch_weight", {{sums_, Access::read}, {weight_, Access::write}},
           uint32_t{0});
}

}  // namespace etr::graph

// Plans of a part of a graph: both sides of a cut together are the whole graph, micro-batches
// together are the batch.
#include <gtest/gtest.h>

#include <cmath>

#include "core/json.h"
#include "gpu/run_once.h"
#include "graph/plan.h"
#include "graph/runner.h"
#include "support/device.h"

namespace etr::test {
namespace {

using namespace graph;
using Direction = Pass::Direction;

constexpr int kRows = 8, kValid = 7, kColumns = 5;

Initializer waves(float phase) {
  return [phase](std::span<float> out, Rng&) {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = 0.4f * std::sin(phase + 1.7f * static_cast<float>(i));
  };
}

// A chain with a value that several later nodes read, dropout, and rows that weigh nothing.
struct Chain {
  explicit Chain(int rows) {
    x = g.add_input("x", {rows, kColumns}, DType::f32);
    labels = g.add_input("labels", {rows}, DType::i32);
    const ValueId a = unary(dense(x, 1));
    const ValueId b = g.add("dropout", {{"rate", 0.3}}, {dense(a, 2)}, "drop");
    const ValueId c = g.add("binary", {{"function", "add"}}, {a, unary(b)}, "skip");
    const ValueId d = g.add("binary", {{"function", "add"}}, {dense(c, 3), a}, "skip again");
    const ValueId weight = g.add("label_weights", {{"ignored", 2}}, {labels}, "loss");
    const ValueId rows_of_loss =
        g.add("softmax_cross_entropy", Json::object(), {d, labels, weight}, "loss");
    loss = g.add("mean_rows", Json::object(), {rows_of_loss, weight}, "loss");
  }
  ValueId dense(ValueId of, int number) {
    const ValueId w = g.add_parameter(cat("w", number), {kColumns, kColumns}, true,
                                      waves(static_cast<float>(number)));
    return g.add("dense", Json::object(), {of, w}, cat("dense", number));
  }
  ValueId unary(ValueId of) { return g.add("unary", {{"function", "relu"}}, {of}, "relu"); }

  Graph g;
  ValueId x, labels, loss;
};

struct Outcome {
  float loss;
  std::vector<float> gradients;
};

std::vector<float> values_of(const ops::DeviceTensor& tensor) {
  const Tensor host = download(device(), tensor);
  return {host.view<float>().begin(), host.view<float>().end()};
}

void fill(const Plan& plan, const Chain& chain) {
  Tensor x(DType::f32, {kRows, kColumns}), labels(DType::i32, {kRows}),
      step(DType::i32, {sizeof(ops::StepValues) / 4});
  for (size_t i = 0; i < kRows * kColumns; ++i)
    x.mutable_view<float>()[i] = std::sin(3.1f * static_cast<float>(i));
  for (int32_t i = 0; i < kRows; ++i)
    labels.mutable_view<int32_t>()[static_cast<size_t>(i)] = i % kColumns;
  ops::StepValues values;
  values.valid_rows = kValid;
  values.rows = kRows;
  values.seed_lo = 5;
  std::memcpy(step.mutable_view<int32_t>().data(), &values, sizeof values);
  upload(device(), step, {plan.step_values(), step.shape()});
  for (const auto& [id, tensor] : {std::pair{chain.x, x}, {chain.labels, labels}}) try {
      upload(device(), tensor, plan.tensor(id));
    } catch (const Error&) {  // the part does not read it
    }
}

PlanOptions training(const Chain& chain) {
  PlanOptions options;
  options.training = true;
  options.loss = chain.loss;
  options.outputs = {chain.loss};
  return options;
}

Outcome whole() {
  const Chain chain(kRows);
  const ParameterStore store(device(), chain.g, 1);
  const Plan plan(kernels(), chain.g, store, training(chain));
  fill(plan, chain);
  gpu::run_once(device(), plan.commands());
  Outcome out{values_of(plan.tensor(chain.loss))[0], {}};
  for (const auto& each : store.parameters())
    for (const float value : values_of(store.gradient(each.name))) out.gradients.push_back(value);
  return out;
}

// Memory for what crosses the cut, by direction and micro-batch.
struct Mailbox {
  explicit Mailbox() : memory(device(), gpu::MemoryUse::device) {}
  Part::Carrier put() {
    return [this](const Pass& pass, const std::vector<ops::DeviceTensor>& tensors,
                  ops::Emitter& emit) {
      auto& box = boxes[{pass.direction == Direction::forward, pass.micro_batch}];
      for (const ops::DeviceTensor& tensor : tensors) {
        box.push_back(memory.allocate(tensor.buffer.size_bytes));
        emit.add(gpu::Copy{tensor.buffer, box.back()});
      }
    };
  }
  Part::Carrier take() {
    return [this](const Pass& pass, const std::vector<ops::DeviceTensor>& tensors,
                  ops::Emitter& emit) {
      const auto& box = boxes.at({pass.direction == Direction::forward, pass.micro_batch});
      ASSERT_EQ(box.size(), tensors.size());
      for (size_t i = 0; i < box.size(); ++i) emit.add(gpu::Copy{box[i], tensors[i].buffer});
    };
  }
  gpu::Arena memory;
  std::map<std::pair<bool, int>, std::vector<gpu::Buffer>> boxes;
};

std::vector<Pass> passes(Direction direction, int count) {
  std::vector<Pass> out;
  for (int i = 0; i < count; ++i) out.push_back({direction, i});
  return out;
}

std::vector<Pass> both(int count) {
  std::vector<Pass> out = passes(Direction::forward, count);
  const std::vector<Pass> back = passes(Direction::backward, count);
  out.insert(out.end(), back.begin(), back.end());
  return out;
}

// The first part's forward passes, the second part's work, and the first part's backward passes:
// the latter's list of commands is run within the former's, in a turn of the host.
Outcome in_two_parts(size_t cut, int count, bool one_by_one) {
  const Chain chain(kRows / count);
  Mailbox mail;
  Part first{0, cut, count, both(count), {}, mail.put()};
  Part second{cut, SIZE_MAX, count, both(count), mail.take(), mail.put()};
  if (one_by_one) {
    second.order.clear();
    for (int i = 0; i < count; ++i) {
      second.order.push_back({Direction::forward, i});
      second.order.push_back({Direction::backward, i});
    }
  }
  // The second part's commands exist when the first part's backward passes are reached.
  const ParameterStore second_store(device(), chain.g, 1, graph::values_of(chain.g, second));
  const ParameterStore first_store(device(), chain.g, 1, graph::values_of(chain.g, first));
  std::unique_ptr<Plan> second_plan;
  PlanOptions options = training(chain);
  bool reached = false;
  first.receive = [&](const Pass& pass, const std::vector<ops::DeviceTensor>& tensors,
                      ops::Emitter& emit) {
    if (!std::exchange(reached, true)) {
      PlanOptions of_second = options;
      of_second.part = second;
      second_plan = std::make_unique<Plan>(kernels(), chain.g, second_store, of_second);
      fill(*second_plan, chain);
      const auto work = std::make_shared<const std::function<void()>>(
          [&] { gpu::run_once(device(), second_plan->commands()); });
      emit.add(gpu::HostTurn{gpu::HostTurn::Mark::begin, work});
      emit.add(gpu::HostTurn{gpu::HostTurn::Mark::end, work});
    }
    mail.take()(pass, tensors, emit);
  };
  options.part = first;
  const Plan first_plan(kernels(), chain.g, first_store, options);
  EXPECT_TRUE(reached) << "no gradient crosses the cut";
  fill(first_plan, chain);
  gpu::run_once(device(), first_plan.commands());
  gpu::CommandList means;
  gpu::Arena memory(device(), gpu::MemoryUse::device);
  ops::Emitter emit(kernels(), memory, means);
  second_plan->emit_means(emit);
  gpu::run_once(device(), means);
  Outcome out{values_of(second_plan->tensor(chain.loss))[0], {}};
  const float weight = values_of({second_plan->weight(), {1}})[0];
  EXPECT_EQ(values_of({first_plan.sums(), {2}}), (std::vector<float>{0, 0}));
  for (const char* name : {"w1", "w2", "w3"}) {
    const bool is_first = std::find(first_store.names().begin(), first_store.names().end(), name) !=
                          first_store.names().end();
    for (const float value : values_of((is_first ? first_store : second_store).gradient(name)))
      out.gradients.push_back(value / weight);
  }
  return out;
}

TEST(MicroBatches, OfTwoPartsAreTheWholeBatch) {
  const Outcome one = whole();
  const size_t nodes = Chain(1).g.nodes().size();
  for (size_t cut = 2; cut + 4 < nodes; cut += 2)
    for (const int count : {1, 4}) {
      const Outcome parts = in_two_parts(cut, count, false);
      EXPECT_NEAR(parts.loss, one.loss, 1e-6) << "cut " << cut << ", " << count;
      ASSERT_EQ(parts.gradients.size(), one.gradients.size());
      for (size_t i = 0; i < one.gradients.size(); ++i)
        EXPECT_NEAR(parts.gradients[i], one.gradients[i], 1e-6) << "cut " << cut << ", " << count;
      const Outcome in_turn = in_two_parts(cut, count, true);
      EXPECT_EQ(in_turn.loss, parts.loss) << "to the bit";
      EXPECT_EQ(in_turn.gradients, parts.gradients) << "to the bit";
    }
}

TEST(MicroBatches, TellWhatCrossesACut) {
  const Chain chain(2);
  EXPECT_TRUE(crossing(chain.g, 0, chain.loss).empty());
  EXPECT_TRUE(crossing(chain.g, SIZE_MAX, chain.loss).empty());
  const auto after_dropout = crossing(chain.g, 4, chain.loss);  // the first ReLU's value and that
  ASSERT_EQ(after_dropout.size(), 2u);
  for (const Crossing& each : after_dropout) EXPECT_TRUE(each.differentiable);
  // Behind the weights of labels, which nobody learns.
  const auto last = crossing(chain.g, chain.g.nodes().size() - 2, chain.loss);
  ASSERT_EQ(last.size(), 2u);
  EXPECT_TRUE(last[0].differentiable);
  EXPECT_FALSE(last[1].differentiable);
}

TEST(MicroBatches, KeepTheirActivationsNoLongerThanTheirOrderNeeds) {
  const int count = 8;
  const Chain chain(1 << 15);
  const auto reserved = [&](bool one_by_one) {
    Part part{0, SIZE_MAX, count, both(count), {}, {}};
    if (one_by_one) {
      part.order.clear();
      for (int i = 0; i < count; ++i) {
        part.order.push_back({Direction::forward, i});
        part.order.push_back({Direction::backward, i});
      }
    }
    const ParameterStore store(device(), chain.g, 1);
    PlanOptions options = training(chain);
    options.part = part;
    return Plan(kernels(), chain.g, store, options).reserved_bytes();
  };
  EXPECT_LT(2 * reserved(true), reserved(false));
}

}  // namespace
}  // namespace etr::test

#include "parallel/part_times.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "core/clock.h"
#include "gpu/recording.h"

namespace etr::parallel {
namespace {

constexpr int kRuns = 3;

// Writes with commands what the host writes for a step.
void emit_step_values(gpu::CommandList& commands, const gpu::Buffer& to) {
  const ops::StepValues values;
  std::array<uint32_t, sizeof values / sizeof(uint32_t)> words;
  std::memcpy(words.data(), &values, sizeof values);
  for (size_t i = 0; i < words.size(); ++i)
    commands.push_back(gpu::Fill{to.slice(i * sizeof(uint32_t), sizeof(uint32_t)), words[i]});
}

double seconds_of(gpu::Kernels& kernels, const graph::Graph& graph, graph::Part part,
                  graph::PlanOptions options) {
  part.order = {{graph::Pass::Direction::forward, 0}, {graph::Pass::Direction::backward, 0}};
  // Fills inputs with zeros, which are also valid indices and labels.
  part.receive = [](const auto&, const std::vector<ops::DeviceTensor>& tensors,
                    ops::Emitter& emit) {
    for (const ops::DeviceTensor& tensor : tensors) emit.add(gpu::Fill{tensor.buffer, 0});
  };
  part.send = [](const auto&, const auto&, ops::Emitter&) {};
  const std::vector<bool> has = graph::values_of(graph, part);
  const graph::ParameterStore store(kernels.device(), graph, /*seed=*/0, has);
  options.part = std::move(part);
  const graph::Plan plan(kernels, graph, store, options);
  gpu::CommandList commands;
  emit_step_values(commands, plan.step_values());
  for (size_t i = 0; i < has.size(); ++i)
    if (has[i] && graph.values()[i].kind == graph::ValueKind::input)
      commands.push_back(gpu::Fill{plan.tensor(static_cast<graph::ValueId>(i)).buffer, 0});
  commands.insert(commands.end(), plan.commands().begin(), plan.commands().end());
  gpu::Recording recording(kernels.device(), commands, /*timed=*/false,
                           gpu::parts_for(*kernels.device(), commands, 0));
  double least = std::numeric_limits<double>::infinity();
  for (int run = -1; run < kRuns; ++run) {
    const int64_t begin_ns = now_ns();
    recording.submit();
    recording.wait();
    if (run >= 0) least = std::min(least, seconds_between(begin_ns, now_ns()));
  }
  return least;
}

}  // namespace

std::vector<double> seconds_of_parts(gpu::Kernels& kernels, const graph::Graph& graph,
                                     const std::vector<size_t>& begins,
                                     graph::PlanOptions options) {
  std::vector<double> out;
  for (size_t i = 0; i < begins.size(); ++i) {
    graph::Part part;
    part.begin = begins[i];
    part.end = i + 1 < begins.size() ? begins[i + 1] : graph.nodes().size();
    out.push_back(seconds_of(kernels, graph, std::move(part), options));
  }
  return out;
}

}  // namespace etr::parallel

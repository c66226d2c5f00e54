#include "graph/part.h"

#include <algorithm>

namespace etr::graph {

std::vector<bool> trained(const Graph& graph, const std::vector<ValueId>& inputs) {
  std::vector<bool> out(graph.values().size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = graph.values()[i].kind == ValueKind::parameter;
  for (const ValueId id : inputs) out[index(id)] = true;
  for (const Node& node : graph.nodes())
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.op->inputs[i].role == ops::InputRole::differentiable && out[index(node.inputs[i])])
        out[index(node.output)] = true;
  return out;
}

std::vector<Crossing> crossing(const Graph& graph, size_t cut, ValueId loss) {
  const auto& nodes = graph.nodes();
  std::vector<bool> made(graph.values().size()), used(made), leads_to_loss(made);
  for (size_t n = 0; n < std::min(cut, nodes.size()); ++n) made[index(nodes[n].output)] = true;
  if (loss >= 0) leads_to_loss[index(loss)] = true;
  for (size_t n = nodes.size(); n-- > std::min(cut, nodes.size());)
    for (size_t i = 0; i < nodes[n].inputs.size(); ++i) {
      const size_t input = index(nodes[n].inputs[i]);
      used[input] = true;
      if (leads_to_loss[index(nodes[n].output)] &&
          nodes[n].op->inputs[i].role == ops::InputRole::differentiable)
        leads_to_loss[input] = true;
    }
  const std::vector<bool> learns = trained(graph);
  std::vector<Crossing> out;
  for (size_t i = 0; i < made.size(); ++i)
    if (made[i] && used[i]) out.push_back({static_cast<ValueId>(i), learns[i] && leads_to_loss[i]});
  return out;
}

std::vector<bool> values_of(const Graph& graph, const Part& part) {
  std::vector<bool> out(graph.values().size());
  for (size_t n = part.begin; n < std::min(part.end, graph.nodes().size()); ++n) {
    const Node& node = graph.nodes()[n];
    for (const ValueId input : node.inputs) out[index(input)] = true;
    out[index(node.output)] = true;
  }
  for (const size_t cut : {part.begin, part.end})
    for (const Crossing& each : crossing(graph, cut, -1)) out[index(each.value)] = true;
  return out;
}

}  // namespace etr::graph

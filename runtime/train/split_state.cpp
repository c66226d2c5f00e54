#include "train/split_state.h"

#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "graph/parameters.h"
#include "train/flat_state.h"

namespace etr::train {
namespace {

using graph::Layout;

// Copies the scalars of each parameter that both layouts have.
void copy_common(const Tensor& from, const Layout& from_layout, Tensor& to,
                 const Layout& to_layout) {
  std::map<std::string, uint32_t> begins;
  for (const auto& parameter : from_layout.parameters) begins[parameter.name] = parameter.begin;
  const auto source = from.view<float>();
  const auto target = to.mutable_view<float>();
  for (const auto& parameter : to_layout.parameters)
    if (const auto at = begins.find(parameter.name); at != begins.end())
      std::copy_n(source.begin() + at->second, parameter.count, target.begin() + parameter.begin);
}

}  // namespace

checkpoint::NamedTensors part_of_state(const checkpoint::NamedTensors& whole,
                                       const graph::Graph& graph, const std::vector<bool>& has) {
  const Layout all = graph::layout_of(graph), own = graph::layout_of(graph, has);
  checkpoint::NamedTensors out = whole;
  for (auto& [name, tensor] : out) {
    if (!is_flat(tensor, all.count)) continue;
    Tensor part = flat_zeros(own.count);
    copy_common(tensor, all, part, own);
    tensor = std::move(part);
  }
  return out;
}

checkpoint::NamedTensors joined_state(const std::vector<checkpoint::NamedTensors>& parts,
                                      const graph::Graph& graph,
                                      const std::vector<std::vector<bool>>& has) {
  const Layout all = graph::layout_of(graph);
  checkpoint::NamedTensors out = parts.front();
  for (auto& [name, tensor] : out) {
    if (!is_flat(tensor, graph::layout_of(graph, has.front()).count)) continue;
    Tensor whole = flat_zeros(all.count);
    for (size_t i = 0; i < parts.size(); ++i)
      copy_common(parts[i].at(name), graph::layout_of(graph, has[i]), whole, all);
    tensor = std::move(whole);
  }
  return out;
}

void check_all(const checkpoint::NamedTensors& given, const graph::Graph& graph) {
  for (const graph::Value& value : graph.values()) {
    if (!graph::is_weight(value.kind)) continue;
    const auto at = given.find(value.name);
    if (at == given.end())
      fail(Code::invalid_argument, "the file has no tensor '", value.name, "' (the model expects ",
           shape_text(value.shape), ")");
    if (at->second.shape() != value.shape)
      fail(Code::invalid_argument, "tensor '", value.name, "' is ", shape_text(at->second.shape()),
           " in the file but ", shape_text(value.shape), " in the model");
  }
}

}  // namespace etr::train

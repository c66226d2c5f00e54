#include "nn/pytorch_order.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/error.h"

namespace etr::nn {
namespace {

using ops::AxesRule;

bool is_trained(const graph::Value& value) { return graph::is_weight(value.kind); }

// Returns the order for a flattened image [N, H, W, C] or [N, positions, C], whose channels may be
// split into several axes; nullptr if it is the same in both. We count by place, then channel;
// PyTorch by channel, then place.
std::shared_ptr<const PytorchOrder::Order> flattened(const Shape& image) {
  const auto channels = static_cast<size_t>(std::accumulate(
      image.begin() + (image.size() == 3 ? 2 : 3), image.end(), int64_t{1}, std::multiplies<>()));
  const auto places = static_cast<size_t>(element_count(image) / std::max<int64_t>(image[0], 1)) /
                      std::max<size_t>(channels, 1);
  if (channels <= 1 || places <= 1) return nullptr;
  auto order = std::make_shared<PytorchOrder::Order>(channels * places);
  for (size_t i = 0; i < order->size(); ++i) (*order)[i] = i % channels * places + i / channels;
  return order;
}

}  // namespace

PytorchOrder::PytorchOrder(const graph::Graph& graph) : axes_(graph.values().size()) {
  for (size_t id = 0; id < axes_.size(); ++id) {
    const graph::Value& value = graph.values()[id];
    if (value.kind == graph::ValueKind::input && value.shape.size() == 4)
      axes_[id].kind = Axes::image;
  }
  for (const graph::Node& node : graph.nodes()) {
    note_parameters(graph, node);
    axes(node.output) = after(graph, node);
  }
}

std::shared_ptr<const PytorchOrder::Order> PytorchOrder::of(graph::ValueId id) const {
  if (const auto untold = untold_.find(id); untold != untold_.end())
    fail(Code::unsupported, "layer '", untold->second,
         "' reads an image that was flattened, reshaped or permuted, and the order of its features "
         "in PyTorch cannot be told: leave its weights out, or flatten the image just before a "
         "dense layer");
  const auto found = orders_.find(id);
  return found == orders_.end() ? nullptr : found->second;
}

void PytorchOrder::note_parameters(const graph::Graph& graph, const graph::Node& node) {
  const auto changed = std::find_if(node.inputs.begin(), node.inputs.end(), [&](graph::ValueId id) {
    return axes(id).kind == Axes::flat || axes(id).kind == Axes::unknown;
  });
  if (changed == node.inputs.end()) return;
  const Axes from = axes(*changed);
  const bool makes_features = node.op->axes == AxesRule::new_rows;
  const bool by_feature = node.op->axes == AxesRule::elements || node.op->axes == AxesRule::rows;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const graph::ValueId id = node.inputs[i];
    // A bias has the order of the new features.
    if (!is_trained(graph.value(id)) || (makes_features && i != 1)) continue;
    const bool of_features =
        node.op->layout && node.op->layout(node.options, i) == ops::WeightLayout::transposed;
    const bool told =
        from.kind == Axes::flat &&
        ((makes_features && of_features) || (by_feature && graph.shape(id).size() == 1)) &&
        static_cast<size_t>(graph.shape(id)[0]) == from.order->size();
    const auto [entry, is_new] = orders_.emplace(id, from.order);
    if (!told || (!is_new && *entry->second != *from.order)) untold_[id] = node.label;
  }
}

PytorchOrder::Axes PytorchOrder::after(const graph::Graph& graph, const graph::Node& node) {
  const Shape x = graph.shape(node.inputs[0]), y = graph.shape(node.output);
  const Axes from = axes(node.inputs[0]), unknown{Axes::unknown, nullptr};
  const bool is_image = from.kind == Axes::image;
  switch (node.op->axes) {
    case AxesRule::elements:
    case AxesRule::joined: return joined(graph, node);
    case AxesRule::reshaped: return reshaped(x, y, from);
    case AxesRule::permuted:
      if (is_image) return permuted(graph, node);
      break;
    case AxesRule::image: return from.kind == Axes::unknown ? unknown : Axes{Axes::image, nullptr};
    case AxesRule::parts:
      if (is_image && y.size() > 2) return from;
      break;
    // The rows of an image of three axes are those of a sequence, as in PyTorch.
    case AxesRule::rows: return is_image && y.size() == 3 ? Axes{} : from;
    case AxesRule::new_rows:
      if (from.kind == Axes::unknown) return y.size() > 2 ? unknown : Axes{};
      return is_image && y.size() > 3 ? from : Axes{};
    case AxesRule::reduced: return reduced(x, y, from);
    case AxesRule::untold: break;
  }
  const bool all_same = std::all_of(node.inputs.begin(), node.inputs.end(),
                                    [&](graph::ValueId id) { return axes(id).kind == Axes::same; });
  return all_same ? Axes{} : unknown;
}

// Returns the axes of sums, means, ... over some of the axes of `from`.
PytorchOrder::Axes PytorchOrder::reduced(const Shape& from, const Shape& to, const Axes& axes) {
  if (axes.kind == Axes::unknown || (axes.kind == Axes::image && from.size() > 4))
    return !to.empty() && element_count(to) > to[0] ? Axes{Axes::unknown, nullptr} : Axes{};
  const bool keeps_channels = to.size() > 2 && to.back() == from.back();
  // The last axis may be the width, if there are as many channels.
  if (axes.kind == Axes::image && keeps_channels && to.size() < from.size() &&
      from[from.size() - 2] == from.back())
    return {Axes::unknown, nullptr};
  return axes.kind == Axes::image && keeps_channels ? axes : Axes{};
}

PytorchOrder::Axes PytorchOrder::reshaped(const Shape& from, const Shape& to,
                                          const Axes& axes) const {
  const Axes unknown{Axes::unknown, nullptr}, image{Axes::image, nullptr};
  if (axes.kind == Axes::unknown) return axes;
  if (axes.kind == Axes::flat) return from == to ? axes : unknown;
  const bool keeps_channels = from.back() == to.back();
  // Elements that lie alike in both may be reshaped at will.
  if (axes.kind == Axes::same || (to.size() > 2 && !flattened(from))) {
    if (to.size() != 4) return Axes{};
    // A convolution takes sequences as images of one row.
    if (keeps_channels || !flattened(to)) return image;
    const bool splits_channels = from.size() == 3 && from[1] == to[1];  // of rows, as for heads
    return splits_channels ? Axes{} : unknown;
  }
  if (to.size() == 2) {
    const auto order = flattened(from);
    return order ? Axes{Axes::flat, order} : Axes{};
  }
  const bool keeps_places =
      from.size() > 3 && to.size() > 3 && from[1] == to[1] && from[2] == to[2];
  if (keeps_places) return axes;  // groups of channels
  if (!keeps_channels || from.size() > 4 || to.size() > 4) return unknown;
  const bool row = from.size() == 4 && from[1] == 1 && to.size() == 3;
  if (row || to.size() == 4) return axes;
  return {};  // rows of channels, as PyTorch makes tokens too
}

// Returns the axes of an image whose axes are moved.
PytorchOrder::Axes PytorchOrder::permuted(const graph::Graph& graph, const graph::Node& node) {
  const auto order = node.options.integers("axes");
  const graph::Value& from = graph.value(node.inputs[0]);
  const size_t rank = order.size();
  const bool keeps_places = order[1] == 1 && (rank == 3 || order[2] == 2);
  const bool turns = rank == 4 && order[3] == 3;
  // Programs that have images as PyTorch does begin with this.
  const bool of_theirs =
      from.kind == graph::ValueKind::input && order == std::vector<int64_t>{0, 2, 3, 1};
  if (keeps_places || turns || of_theirs) return {Axes::image, nullptr};
  const bool as_theirs =
      order == std::vector<int64_t>{0, 3, 1, 2} || order == std::vector<int64_t>{0, 2, 1};
  return as_theirs ? Axes{} : Axes{Axes::unknown, nullptr};
}

// Returns the axes of concatenated or element-wise combined values.
PytorchOrder::Axes PytorchOrder::joined(const graph::Graph& graph, const graph::Node& node) {
  Axes out = axes(node.inputs[0]);
  const bool concat = node.op->axes == AxesRule::joined;
  if (concat && out.kind == Axes::flat) out.order = nullptr;
  auto joint = std::make_shared<Order>();
  bool any_flat = false;
  for (const graph::ValueId id : node.inputs) {
    const Axes& in = axes(id);
    if (in.kind == Axes::unknown) return {Axes::unknown, nullptr};
    any_flat = any_flat || in.kind == Axes::flat;
    if (in.kind == Axes::image) out.kind = Axes::image;
    if (!concat) continue;
    const size_t begin = joint->size(), count = static_cast<size_t>(graph.shape(id).back());
    joint->resize(begin + count);
    for (size_t i = 0; i < count; ++i)
      (*joint)[begin + i] = begin + (in.order ? (*in.order)[i] : i);
  }
  if (!any_flat) return {out.kind, nullptr};
  if (concat) return {Axes::flat, joint};
  for (const graph::ValueId id : node.inputs) {
    const graph::Value& value = graph.value(id);
    const bool fits = axes(id).kind == Axes::flat || is_trained(value) || value.shape.back() == 1;
    if (axes(id).kind == Axes::flat && out.kind != Axes::flat) out = axes(id);
    if (!fits || (axes(id).order && *axes(id).order != *out.order)) return {Axes::unknown, nullptr};
  }
  return out;
}

}  // namespace etr::nn

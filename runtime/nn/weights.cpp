#include "nn/weights.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "nn/pytorch_order.h"

namespace etr::nn {
namespace {

using Layout = ops::WeightLayout;

// Returns the layout of a tensor in PyTorch, as the op that reads it says.
Layout layout_of(const graph::Graph& graph, graph::ValueId id) {
  for (const graph::Node& node : graph.nodes())
    for (size_t i = 1; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != id || !node.op->layout) continue;
      const Layout layout = node.op->layout(node.options, i);
      if (layout != Layout::same) return layout;
    }
  return Layout::same;
}

// from[c, r] -> out[r, c].
Tensor transposed(const Tensor& from, const Shape& shape) {
  Tensor out(DType::f32, shape);
  const auto rows = static_cast<size_t>(shape[0]), columns = static_cast<size_t>(shape[1]);
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < columns; ++c)
      out.mutable_view<float>()[r * columns + c] = from.view<float>()[c * rows + r];
  return out;
}

// Returns the shape of one of our tensors in PyTorch.
Shape theirs(Layout layout, const Shape& ours) {
  if (layout == Layout::transposed) return {ours[1], ours[0]};
  if (layout == Layout::convolution) return {ours[3], ours[2], ours[0], ours[1]};
  return ours;
}

Tensor converted(Layout layout, const Tensor& from, const Shape& shape) {
  if (layout == Layout::transposed) return transposed(from, shape);
  return layout == Layout::convolution ? unrolled(from.view<float>(), shape) : from;
}

// Returns the rows order[0], order[1], ... of PyTorch's tensor.
Tensor reordered(const Tensor& from, const PytorchOrder::Order& order) {
  Tensor out(DType::f32, from.shape());
  const size_t inner = from.view<float>().size() / order.size();
  for (size_t i = 0; i < order.size(); ++i)
    std::copy_n(from.view<float>().begin() + static_cast<ptrdiff_t>(order[i] * inner), inner,
                out.mutable_view<float>().begin() + static_cast<ptrdiff_t>(i * inner));
  return out;
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  if (const size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
}

// Our words for parts of names, and PyTorch's.
constexpr std::pair<const char*, const char*> kWords[] = {
    {".shortcut.conv.", ".downsample.0."},
    {".shortcut.bn.", ".downsample.1."},
    {".gamma", ".weight"},
    {".beta", ".bias"},
    {".input.weight", ".weight_ih_l0"},
    {".input.bias", ".bias_ih_l0"},
    {".recurrent.weight", ".weight_hh_l0"},
    {".recurrent.bias", ".bias_hh_l0"},
    {".qkv.weight", ".in_proj_weight"},
    {".qkv.bias", ".in_proj_bias"},
    {".output.weight", ".out_proj.weight"},
    {".output.bias", ".out_proj.bias"},
};

// Names of the model `llama`, and Hugging Face's.
constexpr std::pair<const char*, const char*> kLlamaWords[] = {
    {".attend.norm.", ".input_layernorm."},
    {".attend.attention.query.", ".self_attn.q_proj."},
    {".attend.attention.key.", ".self_attn.k_proj."},
    {".attend.attention.value.", ".self_attn.v_proj."},
    {".attend.attention.output.", ".self_attn.o_proj."},
    {".feed.norm.", ".post_attention_layernorm."},
    {".feed.gate.", ".mlp.gate_proj."},
    {".feed.up.", ".mlp.up_proj."},
    {".feed.down.", ".mlp.down_proj."},
    {".gamma", ".weight"},
};

std::string llama_name(std::string name) {
  if (name == "output.weight") return "lm_head.weight";
  if (name == "embedding.weight") return "model.embed_tokens.weight";
  for (const auto& [ours, theirs] : kLlamaWords) replace(name, ours, theirs);
  return "model." + name;
}

}  // namespace

Tensor unrolled(std::span<const float> from, const Shape& shape) {
  Tensor out(DType::f32, shape);
  const auto taps = static_cast<size_t>(shape[0] * shape[1]), c = static_cast<size_t>(shape[2]),
             f = static_cast<size_t>(shape[3]);
  for (size_t t = 0; t < taps; ++t)
    for (size_t i = 0; i < c; ++i)
      for (size_t k = 0; k < f; ++k)
        out.mutable_view<float>()[(t * c + i) * f + k] = from[(k * c + i) * taps + t];
  return out;
}

std::map<std::string, Tensor> weights_of_pytorch(const ModelGraph& model,
                                                 const checkpoint::NamedTensors& file,
                                                 const std::map<std::string, std::string>& names,
                                                 const std::string& origin) {
  std::map<std::string, Tensor> out;
  const PytorchOrder features(model.graph);
  const auto& values = model.graph.values();
  for (size_t id = 0; id < values.size(); ++id) {
    const graph::Value& value = values[id];
    if (!graph::is_weight(value.kind) || Lora::is_adapter(value.name)) continue;
    std::string name = value.name;
    bool left_out = false;
    const std::pair<const std::string, std::string>* longest = nullptr;
    for (const auto& entry : names)
      if (name.starts_with(entry.first) && (!longest || entry.first.size() > longest->first.size()))
        longest = &entry;
    if (longest) {
      left_out = longest->second.empty();
      name = longest->second + name.substr(longest->first.size());
    }
    if (left_out) continue;
    auto found = file.find(name);
    if (found == file.end()) {
      for (const auto& [ours, theirs] : kWords) replace(name, ours, theirs);
      found = file.find(name);
    }
    if (found == file.end()) found = file.find(llama_name(value.name));
    if (found == file.end()) {
      std::vector<std::string> there;
      for (const auto& [known, tensor] : file) there.push_back(known);
      fail(Code::not_found, origin, " has no tensor '", name, "' for the model's '", value.name,
           "'", suggestion(name, there),
           " (map other names, or leave tensors out by mapping them to \"\")");
    }
    const Layout layout = layout_of(model.graph, static_cast<graph::ValueId>(id));
    const Shape wanted = theirs(layout, value.shape);
    Shape shape = found->second.shape();
    // A 1D convolution has no kernel height in PyTorch.
    if (layout == Layout::convolution && shape.size() == 3)
      shape = {shape[0], shape[1], 1, shape[2]};
    if (shape != wanted || found->second.dtype() != DType::f32)
      fail(Code::invalid_argument, origin, ": tensor '", name, "' is ",
           dtype_name(found->second.dtype()), " ", shape_text(found->second.shape()),
           ", but the model's '", value.name, "' needs f32 ", shape_text(wanted));
    Tensor& made = out[value.name] = converted(layout, found->second, value.shape);
    if (const auto order = features.of(static_cast<graph::ValueId>(id)))
      made = reordered(made, *order);
  }
  return out;
}

}  // namespace etr::nn

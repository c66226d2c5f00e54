// What the importer makes of products, normalisations, reductions and recurrences.
#include <algorithm>
#include <cmath>

#include "nn/onnx_importer.h"
#include "nn/onnx_patterns.h"

namespace etr::nn {
namespace {

Tensor part_of(const Tensor& from, size_t begin, size_t count) {
  Tensor out(DType::f32, {static_cast<int64_t>(count)});
  std::copy_n(from.view<float>().begin() + static_cast<ptrdiff_t>(begin), count,
              out.mutable_view<float>().begin());
  return out;
}

}  // namespace

bool OnnxImporter::convert_rows(const OnnxNode& node) {
  const std::string& op = node.op;
  if (op == "MatMul") return matmul(node), true;
  if (op == "Gemm") return gemm(node), true;
  if (op == "Softmax" || op == "LogSoftmax") return softmax(node, op == "LogSoftmax"), true;
  if (op == "LSTM" || op == "GRU") return recurrent(node, op == "LSTM"), true;
  static const std::map<std::string, const char*> kReductions{
      {"ReduceMean", "mean"}, {"ReduceSum", "sum"}, {"ReduceMax", "max"}, {"ReduceMin", "min"}};
  if (const auto it = kReductions.find(op); it != kReductions.end())
    return reduce(node, it->second), true;
  if (op != "LayerNormalization" && op != kOnnxNormalize && op != "InstanceNormalization" &&
      op != "GroupNormalization")
    return false;
  const OnnxView x = view(node, 0);
  const size_t rank = x.axes.size();
  if (op == kOnnxNormalize) {
    const bool centred = node.integer("centred", 1) != 0;
    return set(node, normalize(node, x, onnx_axes(node, node.integers("axes"), rank), centred)),
           true;
  }
  std::vector<size_t> axes;
  const bool layer = op == "LayerNormalization";
  for (size_t i = layer ? onnx_axes(node, {node.integer("axis", -1)}, rank)[0] : 2; i < rank; ++i)
    axes.push_back(i);
  if (op != "GroupNormalization")
    return scale_and_shift(node, normalize(node, x, axes, true)), true;
  const int64_t groups = node.integer("num_groups", 1);
  if (rank < 3 || groups < 1 || x.size(x.axes[1]) % groups != 0)
    damaged(node, "its groups do not divide the channels");
  std::vector<int64_t> dims = x.dims();
  dims[1] /= groups;
  dims.insert(dims.begin() + 1, groups);
  const auto apart = x.reshaped(dims);
  if (!apart) lacks(node, "its groups are not consecutive channels");
  axes.push_back(rank);
  scale_and_shift(node, *normalize(node, *apart, axes, true).reshaped(x.dims()));
  return true;
}

// Applies the constants that are inputs of the node.
void OnnxImporter::scale_and_shift(const OnnxNode& node, const OnnxView& x) {
  OnnxView out = x;
  for (const auto& [input, op] : {std::pair(size_t{1}, "Mul"), {size_t{2}, "Add"}}) {
    if (!node.has_input(input)) continue;
    const OnnxValue from = value(node, input);
    OnnxTensor of = constant(node, input, "scale or shift");
    if (!of.is_real) lacks(node, "its scale or shift is not of real numbers");
    const float unchanging = op[0] == 'M' ? 1.f : 0.f;
    const bool neutral = std::all_of(of.reals.begin(), of.reals.end(),
                                     [=](float v) { return v == unchanging; });
    // By channel, where they are not by the last axes.
    if (node.op != "LayerNormalization") {
      if (neutral && from.source.empty()) continue;
      of.dims.assign(out.axes.size() - 1, 1);
      if (of.dims.empty()) damaged(node, "its input has no channels");
      of.dims[0] = static_cast<int64_t>(of.count());
      if (of.dims[0] != out.size(out.axes[1])) {
        if (neutral) continue;
        lacks(node, "its scale is not one number for each channel");
      }
      if (neutral && node.op == "InstanceNormalization") continue;  // a part of a group norm
    }
    const Tensor values = in_our_order(node, of, out);
    OnnxLayer& last = layer(out.layer);
    const char* part = op[0] == 'M' ? "gamma" : "beta";
    const bool vector = values.shape().size() == 1 && values.count() == out.size(out.ours.back());
    const bool takes = last.kind == "layer_norm" || last.kind == "group_norm";
    if (vector && takes && !last.weights.contains(part) && !last.weights.contains("beta")) {
      out = with_weight(out, part, values, from);
      continue;
    }
    const int held = parameter(node, values, from.source);
    out = same(out, add(node, op[0] == 'M' ? "multiply" : "add", {out.layer, held}));
  }
  set(node, std::move(out));
}

// Normalises x over the given axes of the file: a layer norm over our last axis, or a group norm
// over all but the batch and the first part of the channels.
OnnxView OnnxImporter::normalize(const OnnxNode& node, const OnnxView& x,
                                 const std::vector<size_t>& axes, bool centred) {
  Axis over, groups;
  for (size_t i = 0; i < x.axes.size(); ++i) {
    Axis& to = std::find(axes.begin(), axes.end(), i) == axes.end() ? groups : over;
    to.insert(to.end(), x.axes[i].begin(), x.axes[i].end());
  }
  if (std::find(over.begin(), over.end(), 0u) != over.end())
    lacks(node, "it normalises across the samples of a batch");
  if (over.empty()) lacks(node, "it normalises single numbers");
  std::sort(over.begin(), over.end());
  std::erase(groups, 0u);
  Json options{{"epsilon", node.real("epsilon", 1e-5)}};
  const Axis& last = x.ours.back();
  const bool by_group = centred && !groups.empty() && last.size() >= groups.size() &&
                        std::equal(groups.begin(), groups.end(), last.begin());
  if (!by_group)
    return applied(node, with_last(node, x, over), centred ? "layer_norm" : "rms_norm", options);
  options["groups"] = x.size(groups);
  return applied(node, x, "group_norm", options);
}

void OnnxImporter::reduce(const OnnxNode& node, const std::string& function) {
  OnnxView x = view(node, 0);
  const size_t rank = x.axes.size();
  std::vector<int64_t> given =
      node.has_input(1) ? constant(node, 1, "axes").integers : node.integers("axes");
  if (node.op.starts_with("Global"))
    for (size_t i = 2; i < rank; ++i) given.push_back(static_cast<int64_t>(i));
  if (given.empty() && node.integer("noop_with_empty_axes", 0) != 0) return set(node, x);
  if (given.empty())
    for (size_t i = 0; i < rank; ++i) given.push_back(static_cast<int64_t>(i));
  const std::vector<size_t> axes = onnx_axes(node, given, rank);
  const auto reduced = [&](size_t i) { return std::binary_search(axes.begin(), axes.end(), i); };
  std::set<size_t> atoms;
  for (const size_t i : axes) atoms.insert(x.axes[i].begin(), x.axes[i].end());
  if (atoms.contains(0)) lacks(node, "it reduces over the samples of a batch");
  const auto squeezed = [&](OnnxView out) {
    return node.integer("keepdims", 1) != 0 ? out : out.squeezed(axes);
  };
  if (atoms.empty()) return set(node, squeezed(x));
  // The layer takes whole axes that lie side by side.
  const auto places = [&]() -> std::vector<size_t> {
    std::vector<size_t> out;
    for (size_t i = 0; i < x.ours.size(); ++i) {
      const auto count = std::count_if(x.ours[i].begin(), x.ours[i].end(),
                                       [&](size_t atom) { return atoms.contains(atom); });
      if (count == 0) continue;
      if (static_cast<size_t>(count) != x.ours[i].size()) return {};
      if (!out.empty() && out.back() + 1 != i) return {};
      out.push_back(i);
    }
    return out;
  };
  std::vector<size_t> at = places();
  if (at.empty()) {
    std::vector<Axis> ours{{0}};
    for (const bool last : {false, true})
      for (size_t i = 0; i < rank; ++i) {
        Axis kept = x.axes[i];
        std::erase(kept, 0u);
        if (reduced(i) == last && !kept.empty()) ours.push_back(kept);
      }
    x = arranged(node, x, ours);
    atoms.clear();
    for (const size_t i : axes) atoms.insert(x.axes[i].begin(), x.axes[i].end());
    at = places();
  }
  const bool global = function == "mean" && x.ours.size() == 4 && at == std::vector<size_t>{1, 2};
  OnnxView out =
      same(x, global ? add(node, "global_avg_pool", {x.layer})
                     : add(node, "reduce", {x.layer}, {{"function", function}, {"axes", at}}));
  out.ours.erase(out.ours.begin() + static_cast<ptrdiff_t>(at.front()),
                 out.ours.begin() + static_cast<ptrdiff_t>(at.back()) + 1);
  std::vector<size_t> place(x.atoms.size());
  out.atoms.clear();
  for (size_t i = 0; i < x.atoms.size(); ++i) {
    place[i] = out.atoms.size();
    if (!atoms.contains(i)) out.atoms.push_back(x.atoms[i]);
  }
  for (auto* list : {&out.ours, &out.axes})
    for (Axis& axis : *list) {
      std::erase_if(axis, [&](size_t atom) { return atoms.contains(atom); });
      for (size_t& atom : axis) atom = place[atom];
    }
  set(node, squeezed(out));
}

void OnnxImporter::softmax(const OnnxNode& node, bool logarithm) {
  const OnnxView x = view(node, 0);
  const int64_t otherwise = graph_.opset < 13 ? 1 : -1;
  const size_t axis = onnx_axes(node, {node.integer("axis", otherwise)}, x.axes.size())[0];
  if (graph_.opset < 13 && axis + 1 != x.axes.size())
    lacks(node, "before opset 13 it is supported only over the last axis");
  set(node, applied(node, with_last(node, x, x.axes[axis]), logarithm ? "log_softmax" : "softmax"));
}

// x W on the file's last axis, whatever the others are.
void OnnxImporter::linear(const OnnxNode& node, const OnnxValue& weight, bool is_transposed,
                          double scale) {
  const OnnxTensor& w = *weight.constant;
  if (w.dims.size() != 2 || !w.is_real) lacks(node, "its weight is not a matrix of real numbers");
  OnnxView x = view(node, 0);
  if (x.axes.empty()) lacks(node, "its input has no axis");
  const auto rows = static_cast<size_t>(w.dims[is_transposed]),
             columns = static_cast<size_t>(w.dims[!is_transposed]);
  if (x.size(x.axes.back()) != w.dims[is_transposed] || columns == 0)
    damaged(node, cat("its weight is for ", rows, " features, and its input has ",
                      x.size(x.axes.back())));
  x = with_last(node, x, x.axes.back());
  // Our order of the features: that of the atoms.
  std::vector<size_t> strides(x.atoms.size(), 0), order{0};
  size_t stride = 1;
  for (size_t i = x.axes.back().size(); i-- > 0;) {
    strides[x.axes.back()[i]] = stride;
    stride *= static_cast<size_t>(x.atoms[x.axes.back()[i]].size);
  }
  for (const size_t atom : x.ours.back()) {
    std::vector<size_t> longer;
    for (const size_t offset : order)
      for (int64_t k = 0; k < x.atoms[atom].size; ++k)
        longer.push_back(offset + static_cast<size_t>(k) * strides[atom]);
    order = std::move(longer);
  }
  const int64_t units = static_cast<int64_t>(columns);
  Tensor ours(DType::f32, {w.dims[is_transposed], units});
  const auto to = ours.mutable_view<float>();
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < columns; ++c) {
      const size_t from = is_transposed ? c * rows + order[r] : order[r] * columns + c;
      to[r * columns + c] = static_cast<float>(scale * static_cast<double>(w.reals[from]));
    }
  int made;
  if (layer(x.layer).kind == "attention_core") {
    made = add(OnnxLayer(layer(x.layer)));
    layer(made).kind = "attention";
    const auto& weights = layer(made).weights;
    const char* query = weights.contains("query.weight") ? "query.weight" : "qkv.weight";
    if (units != weights.at(query).shape()[0])
      lacks(node, "the product after attention changes the width");
    give(made, "output.weight", std::move(ours), weight);
  } else {
    made = add(node, "dense", {x.layer}, {{"units", units}});
    // A product with the table of an embedding.
    const auto table = tables_.find(weight.origin);
    if (table != tables_.end() && scale == 1 && weight.flipped != is_transposed &&
        std::is_sorted(order.begin(), order.end()))
      layer(made).tied = table->second;
    if (layer(made).tied < 0) give(made, "weight", std::move(ours), weight);
  }
  OnnxView out = same(x, made);
  const size_t kept = x.atoms.size() - x.ours.back().size();
  out.atoms.resize(kept);
  out.ours.back().clear();
  out.axes.back().clear();
  if (units > 1) {
    out.atoms.push_back({units, true});
    out.ours.back() = out.axes.back() = {kept};
  }
  set(node, std::move(out));
}

void OnnxImporter::matmul(const OnnxNode& node) {
  if (node.inputs.size() != 2) damaged(node, "it takes two inputs");
  if (!is_constant(node, 1))
    lacks(node, is_constant(node, 0)
                    ? "it multiplies a constant from the left"
                    : "products of two values are supported only as parts of attention");
  linear(node, value(node, 1), false, 1);
}

void OnnxImporter::gemm(const OnnxNode& node) {
  if (node.integer("transA", 0) != 0) lacks(node, "it transposes its input");
  constant(node, 1, "weight");
  linear(node, value(node, 1), node.integer("transB", 0) != 0, node.real("alpha", 1));
  if (!node.has_input(2)) return;
  const OnnxView x = settled(node, values_.at(node.outputs[0]));
  const OnnxTensor& c = constant(node, 2, "bias");
  const double beta = node.real("beta", 1);
  if (static_cast<int64_t>(c.count()) != x.size(x.ours.back()) ||
      (!c.dims.empty() && c.dims.back() != static_cast<int64_t>(c.count())))
    lacks(node, "its bias is not one number for each column");
  set(node, add_vector(node, x, onnx_vector(c, beta), value(node, 2)));
}

// ONNX has [T, N, features], gates as rows in another order, and both biases in one tensor.
void OnnxImporter::recurrent(const OnnxNode& node, bool lstm) {
  OnnxView x = view(node, 0);
  const std::vector<size_t> order =
      lstm ? std::vector<size_t>{0, 3, 1, 2} : std::vector<size_t>{1, 0, 2};
  const OnnxTensor &w = constant(node, 1, "weight"), &r = constant(node, 2, "recurrent weight");
  const std::string direction = node.text("direction", "forward");
  if (x.axes.size() != 3 || x.axes[1] != Axis{0} || node.integer("layout", 0) != 0)
    lacks(node, "it is supported only for [positions, N, features]");
  if (direction == "bidirectional")
    lacks(node, "it runs in both directions at once, which is supported only as two layers");
  if (node.has("activations") || node.has("clip") || node.integer("input_forget", 0) != 0)
    lacks(node, "it is supported only with its usual activation functions");
  if (!lstm && node.integer("linear_before_reset", 0) == 0)
    lacks(node, "it is supported with linear_before_reset");
  for (const size_t i : {4, 5, 6, 7}) {
    if (!node.has_input(i)) continue;
    const OnnxTensor& of = constant(node, i, i == 4 ? "lengths" : "initial state");
    const auto count = of.count();
    budget_.take(count, node);
    for (size_t k = 0; k < count; ++k)
      if (i == 4 || of.number(k) != 0)
        lacks(node, "lengths, and initial states other than 0, are not supported");
  }
  if (w.dims.size() != 3 || r.dims.size() != 3 || w.dims[0] != 1 || !w.is_real || !r.is_real ||
      w.count() == 0 || r.count() == 0)
    damaged(node, "its weights have the wrong shape");
  const int64_t gates = static_cast<int64_t>(order.size()), units = r.dims[2], features = w.dims[2];
  if (units < 1 || features != x.size(x.axes[2]) || w.dims[1] != gates * units ||
      r.dims != std::vector<int64_t>{1, gates * units, units})
    damaged(node, "its weights do not fit each other or its input");
  const bool reverse = direction == "reverse";
  x = arranged(node, x, {x.axes[1], x.axes[0], x.axes[2]});
  const int made =
      add(node, lstm ? "lstm" : "gru", {x.layer}, {{"units", units}, {"reverse", reverse}});
  // [gates * units, columns] in ONNX's order of gates -> [columns, gates * units].
  const auto width = static_cast<size_t>(gates * units);
  const auto rearranged = [&](auto&& from, int64_t columns) {
    Tensor out(DType::f32, columns == 0 ? Shape{gates * units} : Shape{columns, gates * units});
    const auto n = static_cast<size_t>(std::max<int64_t>(columns, 1));
    for (size_t g = 0; g < order.size(); ++g)
      for (size_t k = 0; k < static_cast<size_t>(units); ++k)
        for (size_t c = 0; c < n; ++c)
          out.mutable_view<float>()[c * width + order[g] * static_cast<size_t>(units) + k] =
              from[(g * static_cast<size_t>(units) + k) * n + c];
    return out;
  };
  give(made, "input.weight", rearranged(w.reals, features), value(node, 1));
  give(made, "recurrent.weight", rearranged(r.reals, units), value(node, 2));
  std::vector<float> biases(2 * width, 0);
  if (node.has_input(3)) {
    const OnnxTensor& given = constant(node, 3, "bias");
    if (given.reals.size() != biases.size()) damaged(node, "its bias has the wrong shape");
    biases = given.reals;
  }
  Tensor both(DType::f32, {static_cast<int64_t>(biases.size())});
  std::copy(biases.begin(), biases.end(), both.mutable_view<float>().begin());
  give(made, "input.bias", rearranged(part_of(both, 0, width).view<float>(), 0), {});
  give(made, "recurrent.bias", rearranged(part_of(both, width, width).view<float>(), 0), {});
  OnnxView y = OnnxView::of(
      made, {{x.atoms[0]}, {{x.size(x.axes[0]), x.fixed(x.axes[0])}}, {{units, true}}}, {1, 0, 2});
  if (node.outputs.size() > 1 && !node.outputs[1].empty()) {
    const int64_t last = reverse ? 0 : y.size(y.axes[0]) - 1;
    set(node, range(node, y, 0, last, 1), 1, 1);  // Y_h: [1, N, units]
  }
  set(node, y.unsqueezed({1}));
}

}  // namespace etr::nn

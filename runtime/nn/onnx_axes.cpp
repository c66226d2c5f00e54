// The importer's values and their axes: layers that bring axes into the order that another layer
// takes.
#include <algorithm>
#include <numeric>

#include "nn/model.h"
#include "nn/onnx_importer.h"

namespace etr::nn {
namespace {

constexpr size_t kMostPermuted = 5;           // axes that `permute` takes
constexpr size_t kMostMade = 4 * kMaxLayers;  // some are left out in the end

bool is_run(const OnnxView::Axis& axis) {
  for (size_t i = 1; i < axis.size(); ++i)
    if (axis[i] != axis[i - 1] + 1) return false;
  return true;
}

}  // namespace

// Values --------------------------------------------------------------------------------------

const OnnxValue& OnnxImporter::value(const OnnxNode& node, size_t i) const {
  if (!node.has_input(i)) damaged(node, cat("input ", i, " is missing"));
  const auto found = values_.find(node.inputs[i]);
  if (found == values_.end()) {
    if (producers_.contains(node.inputs[i]))
      damaged(node, cat("it reads '", node.inputs[i],
                        "', which is computed after it, or is not supported"));
    damaged(node, cat("it reads '", node.inputs[i], "', which nothing writes"));
  }
  return found->second;
}

OnnxView OnnxImporter::view(const OnnxNode& node, size_t i) {
  return settled(node, value(node, i));
}

bool OnnxImporter::is_constant(const OnnxNode& node, size_t i) const {
  return value(node, i).constant != nullptr;
}

const OnnxTensor& OnnxImporter::constant(const OnnxNode& node, size_t i, const char* what) const {
  const OnnxValue& of = value(node, i);
  if (!of.constant)
    lacks(node, cat("its ", what, " ('", node.inputs[i],
                    "') is computed from the batch, and must "
                    "be known"));
  return *of.constant;
}

void OnnxImporter::set(const OnnxNode& node, OnnxValue made, size_t output) {
  if (output < node.outputs.size() && !node.outputs[output].empty())
    values_[node.outputs[output]] = std::move(made);
}

void OnnxImporter::set(const OnnxNode& node, OnnxView made, double factor, size_t output) {
  if (made.axes.size() > Shape::kMaxRank || made.ours.size() > Shape::kMaxRank)
    lacks(node, cat("its result has ", std::max(made.axes.size(), made.ours.size()),
                    " axes; at most ", Shape::kMaxRank, " are supported"));
  int64_t all = 1;
  for (const Atom& atom : made.atoms)
    if (__builtin_mul_overflow(all, atom.size, &all) || all > kMostElements)
      lacks(node, "its result is too large");
  set(node, OnnxValue{.view = std::move(made), .factor = factor}, output);
}

// Returns the value as a layer computes it.
OnnxView OnnxImporter::settled(const OnnxNode& node, const OnnxValue& of) {
  if (of.constant)
    lacks(node,
          "one of its inputs is a constant, but only values that depend on the batch are "
          "supported there");
  if (!of.view)
    lacks(node,
          "it reads an intermediate value of attention, which is supported only as scores "
          "= query key^T, softmax, and a product with values");
  if (of.view->repeats())
    lacks(node,
          "it reads values that are repeated along an axis, which is supported only for "
          "heads of keys and values of attention");
  if (of.factor == 1) return *of.view;
  Tensor by(DType::f32, {1});
  by.mutable_view<float>()[0] = static_cast<float>(of.factor);
  return same(*of.view, add(node, "multiply", {of.view->layer, parameter(node, by, "")}));
}

// Layers --------------------------------------------------------------------------------------

int OnnxImporter::add(OnnxLayer layer) {
  if (layers_.size() >= kMostMade)
    fail(Code::unsupported, "ONNX file ", graph_.origin, ": it becomes more than ", kMaxLayers,
         " layers");
  layers_.push_back(std::move(layer));
  return static_cast<int>(layers_.size()) - 1;
}

int OnnxImporter::add(const OnnxNode& node, const std::string& kind, std::vector<int> inputs,
                      Json options) {
  OnnxLayer made;
  made.kind = kind;
  made.options = std::move(options);
  made.inputs = std::move(inputs);
  made.node = &node;
  return add(std::move(made));
}

void OnnxImporter::give(int to, const char* part, Tensor weight, const OnnxValue& from) {
  budget_.take(static_cast<size_t>(weight.count()), *layer(to).node);
  layer(to).weights[part] = std::move(weight);
  if (!from.source.empty()) layer(to).sources.push_back(from.source);
}

// Adds a tensor that is trained if it is one of the file's weights. A single number is a part of
// the function, and not trained.
int OnnxImporter::parameter(const OnnxNode& node, const Tensor& values, const std::string& source) {
  const bool single = values.count() == 1;
  Json shape = Json::array();
  for (const int64_t extent : values.shape()) shape.push_back(extent);
  const int made = add(node, "parameter", {}, {{"shape", shape}});
  OnnxLayer& of = layer(made);
  if (single || source.empty()) of.options["trainable"] = false;
  if (single) {
    of.options["value"] = static_cast<double>(values.view<float>()[0]);
    return made;
  }
  budget_.take(static_cast<size_t>(values.count()), node);
  of.weights["weight"] = values;
  if (!source.empty()) of.sources.push_back(source);
  return made;
}

OnnxView OnnxImporter::same(OnnxView x, int layer) const {
  x.layer = layer;
  return x;
}

OnnxView OnnxImporter::applied(const OnnxNode& node, const OnnxView& x, const std::string& kind,
                               Json options) {
  return same(x, add(node, kind, {x.layer}, std::move(options)));
}

// Returns x from a copy of its layer that has one weight more.
OnnxView OnnxImporter::with_weight(const OnnxView& x, const char* part, Tensor weight,
                                   const OnnxValue& from) {
  const int made = add(OnnxLayer(layer(x.layer)));
  give(made, part, std::move(weight), from);
  return same(x, made);
}

// Whether nothing but this node reads a layer's value, however it looks at it.
bool OnnxImporter::is_only_use(const OnnxNode& node, size_t i) const {
  std::string name = node.inputs[i];
  while (true) {
    const auto uses = uses_.find(name);
    if (uses == uses_.end() || uses->second != 1) return false;
    const auto from = producers_.find(name);
    if (from == producers_.end()) return true;
    const std::string& op = from->second->op;
    if (op != "Reshape" && op != "Transpose" && op != "Squeeze" && op != "Unsqueeze" &&
        op != "Flatten" && op != "Identity" && op != "Cast")
      return true;
    name = from->second->inputs.empty() ? "" : from->second->inputs[0];
  }
}

// Axes ----------------------------------------------------------------------------------------

// Returns x with other axes of its layer, in the same order of elements.
OnnxView OnnxImporter::reshaped_layer(const OnnxNode& node, OnnxView x,
                                      const std::vector<Axis>& ours) {
  Json shape = Json::array();
  int open = 0;
  for (size_t i = 1; i < ours.size(); ++i) {
    const bool fixed = x.fixed(ours[i]);
    open += !fixed;
    shape.push_back(fixed ? x.size(ours[i]) : -1);
  }
  if (open > 1)
    lacks(node,
          "its axes are split or joined, and the file leaves the length of more than one "
          "free: export the model with free batches only");
  x.layer = ours.size() == 2 ? add(node, "flatten", {x.layer})
                             : add(node, "reshape", {x.layer}, {{"shape", shape}});
  x.ours = ours;
  return x;
}

OnnxView OnnxImporter::arranged(const OnnxNode& node, const OnnxView& x,
                                const std::vector<Axis>& ours) {
  if (ours == x.ours) return x;
  if (ours.empty() || ours[0] != Axis{0})
    lacks(node, "it joins samples of the batch with each other");
  const Axis flat = joined(ours);
  if (std::is_sorted(flat.begin(), flat.end())) return reshaped_layer(node, x, ours);
  // Axes to permute: those of the layer if they will do, else runs of atoms that stay together.
  std::vector<Axis> to = ours;
  std::vector<Axis> from = to;
  std::sort(from.begin(), from.end());
  std::vector<Axis> own = x.ours;
  std::sort(own.begin(), own.end());
  const bool plain = own == from && ours.size() <= kMostPermuted &&
                     std::count(ours.begin(), ours.end(), Axis{}) <= 1;
  if (plain) {
    from = x.ours;
  } else {
    to = {{0}};
    for (size_t i = 1; i < flat.size(); ++i) {
      if (i > 1 && flat[i] == flat[i - 1] + 1)
        to.back().push_back(flat[i]);
      else
        to.push_back({flat[i]});
    }
    from = to;
    std::sort(from.begin(), from.end());
  }
  if (to.size() > kMostPermuted) lacks(node, "it moves more axes than five");
  OnnxView out = from == x.ours ? x : reshaped_layer(node, x, from);
  Json axes = Json::array();
  for (const Axis& axis : to)
    axes.push_back(std::find(from.begin(), from.end(), axis) - from.begin());
  out.layer = add(node, "permute", {out.layer}, {{"axes", axes}});
  // The atoms get the numbers of their new places.
  std::vector<size_t> place(flat.size());
  std::vector<Atom> atoms;
  for (size_t i = 0; i < flat.size(); ++i) {
    place[flat[i]] = i;
    atoms.push_back(x.atoms[flat[i]]);
  }
  std::vector<Axis> wanted = ours;
  out.ours = to;
  for (auto* list : {&out.ours, &out.axes, &wanted})
    for (Axis& axis : *list)
      for (size_t& atom : axis) atom = place[atom];
  out.atoms = atoms;
  return out.ours == wanted ? out : reshaped_layer(node, out, wanted);
}

// Returns x with the file's axes, the batch first; images with channels last.
OnnxView OnnxImporter::plain(const OnnxNode& node, const OnnxView& x) {
  const auto batch = std::find(x.axes.begin(), x.axes.end(), Axis{0});
  if (batch == x.axes.end()) return x;  // joined with others, and apart in ours
  const bool is_image = x.axes.size() == 4 && batch == x.axes.begin() && !channels_last_;
  std::vector<Axis> ours = is_image ? x.images() : x.axes;
  if (batch != x.axes.begin()) {
    ours.erase(ours.begin() + (batch - x.axes.begin()));
    ours.insert(ours.begin(), Axis{0});
  }
  return arranged(node, x, ours);
}

OnnxView OnnxImporter::image(const OnnxNode& node, const OnnxView& x) {
  if (x.axes.size() != 4)
    lacks(node, cat("its input has ", x.axes.size(), " axes, not [N, C, H, W]"));
  return arranged(node, x, x.images());
}

// Returns x with the atoms of `axis` as its layer's last axis, in our order.
OnnxView OnnxImporter::with_last(const OnnxNode& node, const OnnxView& x, const Axis& axis) {
  Axis last = axis;
  std::sort(last.begin(), last.end());
  if (!last.empty() && last[0] == 0) lacks(node, "it works across the samples of a batch");
  if (x.ours.back() == last && x.ours.size() > 1) return x;
  std::vector<Axis> ours;
  const size_t begin = x.atoms.size() - last.size();
  if (last.empty() || (is_run(last) && last[0] == begin)) {
    for (const Axis& each : x.ours) {
      Axis kept;
      for (const size_t atom : each)
        if (atom < begin) kept.push_back(atom);
      if (!kept.empty()) ours.push_back(kept);
    }
    ours.push_back(last);
    return arranged(node, x, ours);
  }
  ours = {{0}};
  for (const Axis& each : x.axes) {
    Axis kept;
    for (const size_t atom : each)
      if (atom != 0 && std::find(axis.begin(), axis.end(), atom) == axis.end())
        kept.push_back(atom);
    if (!kept.empty()) ours.push_back(kept);
  }
  ours.push_back(axis);
  return arranged(node, x, ours);
}

// Returns x with a layer's axis that begins with the file's `axis`, and that axis's number.
std::pair<OnnxView, size_t> OnnxImporter::with_axis(const OnnxNode& node, const OnnxView& x,
                                                    size_t axis) {
  const auto find = [&](const OnnxView& in) {
    const Axis& wanted = in.axes[axis];
    return static_cast<size_t>(std::find_if(in.ours.begin(), in.ours.end(),
                                            [&](const Axis& each) {
                                              return each.size() >= wanted.size() &&
                                                     std::equal(wanted.begin(), wanted.end(),
                                                                each.begin());
                                            }) -
                               in.ours.begin());
  };
  if (const size_t at = find(x); at < x.ours.size()) return {x, at};
  const OnnxView out = plain(node, x);
  const size_t at = find(out);
  if (at == out.ours.size()) lacks(node, "it joins samples of the batch with each other");
  return {out, at};
}

// Returns the file's axes in the order of the layer's; none if they are not the same axes.
std::optional<std::vector<size_t>> OnnxImporter::order_of(const OnnxView& x) const {
  std::vector<size_t> out;
  std::vector<bool> used(x.axes.size(), false);
  const auto take = [&](const Axis& wanted) {
    for (size_t i = 0; i < x.axes.size(); ++i)
      if (!used[i] && x.axes[i] == wanted) {
        used[i] = true;
        out.push_back(i);
        return true;
      }
    return false;
  };
  for (const Axis& axis : x.ours)
    if (!take(axis)) return std::nullopt;
  while (take({})) continue;
  return out.size() == x.axes.size() ? std::optional(out) : std::nullopt;
}

// Returns the values with their axes in one order, each an axis of the layer.
std::vector<OnnxView> OnnxImporter::aligned(const OnnxNode& node, std::vector<OnnxView> views,
                                            std::vector<size_t>& order) {
  size_t rank = 0;
  for (const OnnxView& x : views) rank = std::max(rank, x.axes.size());
  for (OnnxView& x : views) {
    std::vector<size_t> missing(rank - x.axes.size());
    std::iota(missing.begin(), missing.end(), size_t{0});
    x = x.unsqueezed(missing);
  }
  const auto leader = std::max_element(
      views.begin(), views.end(),
      [](const OnnxView& a, const OnnxView& b) { return a.ours.size() < b.ours.size(); });
  auto found = order_of(*leader);
  if (!found) found = order_of(*leader = plain(node, *leader));
  if (!found) lacks(node, "it joins samples of the batch with each other");
  order = *found;
  for (OnnxView& x : views) {
    std::vector<Axis> ours;
    for (const size_t axis : order) ours.push_back(x.axes[axis]);
    x = arranged(node, x, ours);
  }
  return views;
}

// Returns constants that are broadcast to x, for the layer's axes without the batch and without
// leading axes of length 1.
Tensor OnnxImporter::in_our_order(const OnnxNode& node, const OnnxTensor& values,
                                  const OnnxView& x) {
  const auto misfit = [&] {
    lacks(node,
          cat("its constant has other axes than the value that it is combined with", advice_));
  };
  std::vector<int64_t> dims = values.dims;
  while (dims.size() > x.axes.size() && dims[0] == 1) dims.erase(dims.begin());
  if (dims.size() > x.axes.size()) misfit();
  dims.insert(dims.begin(), x.axes.size() - dims.size(), 1);
  std::vector<size_t> strides(x.atoms.size(), 0);
  size_t stride = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] == 1) continue;
    const bool whole = dims[i] == x.size(x.axes[i]);
    const bool of_sample =
        !x.axes[i].empty() && x.axes[i][0] == 0 && dims[i] == x.size(x.axes[i]) / x.atoms[0].size;
    if (!whole && !of_sample) misfit();
    for (size_t a = x.axes[i].size(); a-- > 0;) {
      const size_t atom = x.axes[i][a];
      if (atom == 0 && !whole) continue;
      strides[atom] = stride;
      stride *= static_cast<size_t>(x.atoms[atom].size);
    }
  }
  if (stride != values.count()) misfit();
  const auto samples = static_cast<size_t>(x.atoms[0].size);
  if (strides[0] > 0)
    for (size_t i = 0; i < values.count(); ++i)
      if (values.number(i) != values.number(i - i / strides[0] % samples * strides[0]))
        lacks(node,
              "its constant differs from sample to sample: export the model with a free "
              "batch axis");
  Shape shape;
  std::vector<size_t> offsets{0};
  for (size_t i = 1; i < x.ours.size(); ++i) {
    const Axis& axis = x.ours[i];
    if (std::none_of(axis.begin(), axis.end(), [&](size_t atom) { return strides[atom] > 0; })) {
      if (shape.size() > 0) shape.push_back(1);
      continue;
    }
    shape.push_back(x.size(axis));
    for (const size_t atom : axis) {
      const auto size = static_cast<size_t>(x.atoms[atom].size);
      if (offsets.size() > (size_t{1} << 28) / size) lacks(node, "its constant is too large");
      budget_.take(offsets.size() * size, node);
      std::vector<size_t> longer;
      longer.reserve(offsets.size() * size);
      for (const size_t offset : offsets)
        for (size_t k = 0; k < size; ++k) longer.push_back(offset + k * strides[atom]);
      offsets = std::move(longer);
    }
  }
  if (shape.empty()) shape.push_back(1);
  Tensor out(DType::f32, shape);
  for (size_t i = 0; i < offsets.size(); ++i)
    out.mutable_view<float>()[i] = static_cast<float>(values.number(offsets[i]));
  return out;
}

}  // namespace etr::nn

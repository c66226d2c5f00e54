// What the importer makes of constants, and of operators that move axes.
#include <algorithm>

#include "nn/onnx_importer.h"

namespace etr::nn {
namespace {

// Longer axes overflow products of several.
constexpr int64_t kMostLength = int64_t{1} << 40;
constexpr size_t kMostJoined = 16;  // inputs of a layer

std::vector<size_t> permutation(const OnnxNode& node, size_t rank) {
  std::vector<size_t> out;
  for (const int64_t axis : node.integers("perm")) out.push_back(onnx_axes(node, {axis}, rank)[0]);
  if (!node.has("perm"))
    for (size_t i = rank; i-- > 0;) out.push_back(i);
  onnx_axes(node, {out.begin(), out.end()}, rank);  // refuses those that are named twice
  return out;
}

}  // namespace

void OnnxImporter::convert(const OnnxNode& node) {
  if (!node.domain.empty())
    lacks(node, cat("it is not one of ONNX's own operators, but of '", node.domain, "'"));
  if (node.outputs.empty() || node.outputs[0].empty()) lacks(node, "it has no first output");
  if (convert_known(node) || convert_rotary(node) || convert_scores(node) || convert_axes(node) ||
      convert_elements(node) || convert_image(node) || convert_rows(node))
    return;
  lacks(node, "this operator is not supported");
}

void OnnxImporter::constant_node(const OnnxNode& node) {
  auto made = std::make_shared<OnnxTensor>();
  if (node.has("value") && node.attributes.at("value").tensor)
    return set(node, OnnxValue{.constant = node.attributes.at("value").tensor});
  const auto attribute = [&](const char* name) -> const OnnxAttribute* {
    return node.has(name) ? &node.attributes.at(name) : nullptr;
  };
  if (const auto* a = attribute("value_float")) {
    made->is_real = true;
    made->reals = {static_cast<float>(a->real)};
  } else if (const auto* b = attribute("value_int")) {
    made->integers = {b->integer};
  } else if (const auto* c = attribute("value_floats")) {
    made->is_real = true;
    made->reals.assign(c->reals.begin(), c->reals.end());
    made->dims = {static_cast<int64_t>(c->reals.size())};
  } else if (const auto* d = attribute("value_ints")) {
    made->integers = d->integers;
    made->dims = {static_cast<int64_t>(d->integers.size())};
  } else {
    lacks(node, "it has no value of a supported kind: a tensor, or numbers");
  }
  set(node, OnnxValue{.constant = made});
}

void OnnxImporter::shape_node(const OnnxNode& node) {
  const OnnxValue& of = value(node, 0);
  if (!of.constant && !of.view)
    lacks(node, "it reads the shape of an intermediate value of attention");
  auto dims = of.constant ? of.constant->dims : of.view->dims();
  const auto rank = static_cast<int64_t>(dims.size());
  const auto bound = [&](const char* name, int64_t otherwise) {
    const int64_t at = node.integer(name, otherwise);
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t begin = bound("start", 0), end = std::max(begin, bound("end", rank));
  auto made = std::make_shared<OnnxTensor>();
  made->integers.assign(dims.begin() + begin, dims.begin() + end);
  made->dims = {end - begin};
  if (node.op == "Size") {
    int64_t count = 1;
    for (const int64_t dim : dims)
      if (__builtin_mul_overflow(count, dim, &count))
        lacks(node, "the size of its input is too large");
    made->integers = {count};
    made->dims.clear();
  }
  set(node, OnnxValue{.constant = made});
}

// Constants, and what is computed from constants and shapes.
bool OnnxImporter::convert_known(const OnnxNode& node) {
  if (node.op == "Constant") return constant_node(node), true;
  if ((node.op == "Shape" || node.op == "Size") && node.has_input(0)) return shape_node(node), true;
  std::vector<OnnxConstant> inputs;
  bool all = true, any = false;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    inputs.push_back(node.has_input(i) ? value(node, i).constant : nullptr);
    all = all && (!node.has_input(i) || inputs.back());
    any = any || inputs.back();
  }
  if (!all || !any) return false;
  const auto made = fold(node, inputs, free_batch_ ? batch_ : 1, budget_);
  if (!made) return false;
  OnnxValue out{.constant = (*made)[0]};
  // It is still the file's weight if only its shape has changed.
  const OnnxValue& from = value(node, 0);
  const bool transposes = node.op == "Transpose" && from.constant->dims.size() == 2;
  if (transposes || node.op == "Identity" || node.op == "Cast" || node.op == "Reshape" ||
      node.op == "Unsqueeze" || node.op == "Squeeze" || node.op == "Expand") {
    out.source = from.source;
    out.flipped = from.flipped != transposes;
    // A table is that of a layer if its values and its axes are.
    const bool is_equal = out.constant == from.constant ||
                          (node.op != "Cast" && out.constant->dims == from.constant->dims);
    if (transposes || is_equal) out.origin = from.origin;
    if (node.op == "Cast" && !is_equal && from.constant->is_real) out.source.clear();
    // Exporters write equal weights once, and name them again here.
    if (node.op == "Identity" && node.outputs[0].find("::") == std::string::npos)
      out.source = node.outputs[0];
  }
  set(node, std::move(out));
  return true;
}

// Axes ----------------------------------------------------------------------------------------

bool OnnxImporter::convert_axes(const OnnxNode& node) {
  const std::string& op = node.op;
  if (op == "Cast") return cast(node), true;
  if (op == "Identity") {
    set(node, value(node, 0));
    return true;
  }
  if (op == "Pad") {  // PyTorch's older exporter writes one of 0 in front of poolings
    const std::vector<int64_t> pads =
        node.has_input(1) ? constant(node, 1, "pads").integers : node.integers("pads");
    if (std::any_of(pads.begin(), pads.end(), [](int64_t pad) { return pad != 0; }))
      lacks(node, "it pads by other than 0; only convolutions and windows can");
    set(node, value(node, 0));
    return true;
  }
  if (op == "Gather") return gather(node), true;
  if (op == "GatherND") return gather_rows(node), true;
  if (op == "Slice") return slice(node), true;
  if (op == "Split") return split(node), true;
  if (op == "Concat") return concat(node), true;
  return convert_reshapes(node);
}

bool OnnxImporter::convert_reshapes(const OnnxNode& node) {
  const std::string& op = node.op;
  if (op != "Reshape" && op != "Flatten" && op != "Transpose" && op != "Squeeze" &&
      op != "Unsqueeze" && op != "Expand")
    return false;
  const OnnxValue& x = value(node, 0);
  if (!x.view) settled(node, x);  // throws
  const OnnxView& view = *x.view;
  const size_t rank = view.axes.size();
  const auto numbers = [&](size_t input, const char* attribute) -> std::vector<int64_t> {
    return node.has_input(input) ? constant(node, input, attribute).integers
                                 : node.integers(attribute);
  };
  if (op == "Reshape") reshape(node, onnx_reshape(node, view.dims(), numbers(1, "shape")));
  if (op == "Flatten") {
    int64_t at = node.integer("axis", 1);
    if (at < 0) at += static_cast<int64_t>(rank);
    if (at < 0 || at > static_cast<int64_t>(rank)) damaged(node, "there is no such axis");
    std::vector<int64_t> dims{1, -1};
    for (size_t i = 0; i < static_cast<size_t>(at); ++i) dims[0] *= view.size(view.axes[i]);
    reshape(node, onnx_reshape(node, view.dims(), dims));
  }
  if (op == "Transpose") {
    const auto order = permutation(node, rank);
    if (order.size() != rank) damaged(node, "'perm' does not name each axis once");
    set(node, view.transposed(order), x.factor);
  }
  if (op == "Squeeze") {
    std::vector<size_t> axes = onnx_axes(node, numbers(1, "axes"), rank);
    if (axes.empty())
      for (size_t i = 0; i < rank; ++i)
        if (view.axes[i].empty()) axes.push_back(i);
    for (const size_t axis : axes)
      if (!view.axes[axis].empty())
        lacks(node, view.axes[axis] == Axis{0}
                        ? "it removes the batch axis: export the model with a free batch axis"
                        : "it removes an axis that is longer than 1");
    set(node, view.squeezed(axes), x.factor);
  }
  if (op == "Unsqueeze") {
    const auto given = numbers(1, "axes");
    set(node, view.unsqueezed(onnx_unsqueezed(node, given, rank)), x.factor);
  }
  if (op == "Expand") {
    auto out = view.expanded(numbers(1, "shape"));
    if (!out) damaged(node, "its shape does not fit its input's");
    set(node, std::move(*out), x.factor);
  }
  return true;
}

// Values are real numbers here. Rounding would change them, unless they are the batch's own numbers
// of rows or positions.
void OnnxImporter::cast(const OnnxNode& node) {
  const OnnxValue& x = value(node, 0);
  const bool is_field = x.view && x.factor == 1 && layer(x.view->layer).kind.empty();
  if (!onnx_is_real(node.integer("to", 1)) &&
      (!is_field || computed_with_.contains(node.outputs[0]) || node.integer("to", 1) == 9))
    lacks(node,
          "it converts computed values to integers or booleans, which is supported only "
          "for inputs that are indices of Gather");
  set(node, x);
}

void OnnxImporter::reshape(const OnnxNode& node, std::vector<int64_t> wanted) {
  const OnnxValue& x = value(node, 0);
  if (wanted.size() > Shape::kMaxRank) lacks(node, "its result has too many axes");
  if (auto out = x.view->reshaped(wanted)) return set(node, std::move(*out), x.factor);
  // The new axes run across the old ones: the elements must lie as they do in the file.
  const OnnxView view = plain(node, settled(node, x));
  std::vector<Axis> ours = view.axes;
  if (ours.empty() || ours[0] != Axis{0} || wanted.empty() || wanted[0] != batch_)
    lacks(node, "it joins samples of the batch with each other");
  const OnnxView rows = arranged(node, view, ours);
  Json shape = Json::array();
  std::vector<std::vector<Atom>> made{{rows.atoms[0]}};
  std::vector<size_t> order{0};
  for (size_t i = 1; i < ours.size(); ++i)
    if (!rows.fixed(rows.ours[i])) lacks(node, "the file leaves the length of an axis free");
  for (size_t i = 1; i < wanted.size(); ++i) {
    shape.push_back(wanted[i]);
    made.push_back({{wanted[i], true}});
    order.push_back(i);
  }
  set(node, OnnxView::of(add(node, "reshape", {rows.layer}, {{"shape", shape}}), made, order));
}

// Returns elements of the file's axis.
OnnxView OnnxImporter::range(const OnnxNode& node, const OnnxView& x, size_t axis, int64_t begin,
                             int64_t length) {
  const int64_t size = x.size(x.axes[axis]);
  if (length < 1) lacks(node, "it takes nothing");
  if (begin < 0 || begin > size - length) damaged(node, "it takes what lies outside an axis");
  if (length == size) return x;
  const auto [view, at] = with_axis(node, x, axis);
  const Axis wanted = view.axes[axis];
  if (wanted[0] == 0) lacks(node, "it takes a part of the batch");
  const Axis rest(view.ours[at].begin() + static_cast<ptrdiff_t>(wanted.size()),
                  view.ours[at].end());
  if (!view.fixed(view.ours[at]) && begin + length < size)
    lacks(node, "the file leaves the length of the axis free");
  const int64_t inner = view.size(rest);
  const bool to_end = begin + length == size;
  // The last elements of an axis whose length is not known are counted from its end.
  const bool from_end = !view.fixed(wanted) && begin > size / 2;
  OnnxView out = same(view, add(node, "slice", {view.layer},
                                {{"axis", at},
                                 {"begin", (from_end ? begin - size : begin) * inner},
                                 {"length", to_end ? 0 : length * inner}}));
  // One atom, or none, takes the place of the axis's.
  const size_t first = wanted[0], kept = length > 1 ? 1 : 0;
  if (kept) out.atoms[first] = {length, from_end || view.fixed(wanted)};
  out.atoms.erase(out.atoms.begin() + static_cast<ptrdiff_t>(first + kept),
                  out.atoms.begin() + static_cast<ptrdiff_t>(first + wanted.size()));
  for (auto* list : {&out.ours, &out.axes})
    for (Axis& each : *list) {
      std::erase_if(
          each, [&](size_t atom) { return atom >= first + kept && atom < first + wanted.size(); });
      for (size_t& atom : each)
        if (atom > first) atom -= wanted.size() - kept;
    }
  return out;
}

void OnnxImporter::gather(const OnnxNode& node) {
  const int64_t given = node.integer("axis", 0);
  if (is_constant(node, 0)) {  // rows of a table
    const OnnxValue& table = value(node, 0);
    const OnnxView ids = view(node, 1);
    if (table.constant->dims.size() != 2 || !table.constant->is_real || given != 0)
      lacks(node, "it looks up in a constant that is not a table of rows");
    const int64_t width = table.constant->dims[1];
    if (table.constant->count() == 0) damaged(node, "its table is empty");
    const int made = add(node, "embedding", {ids.layer},
                         {{"entries", table.constant->dims[0]}, {"width", width}});
    Tensor rows(DType::f32, {table.constant->dims[0], width});
    std::copy(table.constant->reals.begin(), table.constant->reals.end(),
              rows.mutable_view<float>().begin());
    give(made, "weight", std::move(rows), table);
    if (!table.flipped && table.origin) tables_[table.origin] = made;
    OnnxView out = same(ids, made);
    out.ours.emplace_back();
    out.axes.emplace_back();
    if (width > 1) {
      out.ours.back() = out.axes.back() = {out.atoms.size()};
      out.atoms.push_back({width, true});
    }
    return set(node, std::move(out));
  }
  const OnnxView x = view(node, 0);
  const OnnxTensor& ids = constant(node, 1, "indices");
  const size_t axis = onnx_axes(node, {given}, x.axes.size())[0];
  const int64_t size = x.size(x.axes[axis]);
  if (ids.is_real || ids.dims.size() > 1 || ids.count() == 0)
    lacks(node, "its indices are not a row of numbers");
  std::vector<int64_t> rows = ids.integers;
  for (int64_t& row : rows) {
    row += row < 0 ? size : 0;
    if (row < 0 || row >= size) damaged(node, "it takes what lies outside an axis");
  }
  for (size_t i = 1; i < rows.size(); ++i)
    if (rows[i] != rows[i - 1] + 1) lacks(node, "its indices are not consecutive");
  const OnnxView out = range(node, x, axis, rows[0], static_cast<int64_t>(rows.size()));
  set(node, ids.dims.empty() ? out.squeezed({axis}) : out);
}

// The layer `gather`: rows of each sample by the numbers of another value.
void OnnxImporter::gather_rows(const OnnxNode& node) {
  const OnnxView x = plain(node, view(node, 0)), ids = view(node, 1);
  if (node.integer("batch_dims", 0) != 1 || ids.axes.size() != 3 || !ids.axes[2].empty() ||
      ids.axes[0] != Axis{0} || x.axes.size() < 2 || x.axes[0] != Axis{0} || x.axes.size() == 4)
    lacks(node,
          "it is supported only for rows of each sample (batch_dims 1, one number for each "
          "row)");
  const OnnxView picks = arranged(node, ids, {ids.axes[0], ids.axes[1]});
  std::vector<std::vector<Atom>> made{{x.atoms[0]}, {{picks.size(picks.axes[1]), true}}};
  std::vector<size_t> order{0, 1};
  for (size_t i = 2; i < x.ours.size(); ++i) {
    made.push_back({{x.size(x.ours[i]), x.fixed(x.ours[i])}});
    order.push_back(i);
  }
  set(node, OnnxView::of(add(node, "gather", {x.layer, picks.layer}), made, order));
}

void OnnxImporter::slice(const OnnxNode& node) {
  OnnxView x = view(node, 0);
  std::vector<OnnxConstant> inputs(1);
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (node.has_input(i)) constant(node, i, "range");
    inputs.push_back(node.has_input(i) ? value(node, i).constant : nullptr);
  }
  for (const OnnxRange& part : onnx_ranges(node, x.dims(), inputs)) {
    if (part.step != 1 && part.length > 1)
      lacks(node, cat("its step is ", part.step, "; only 1 is supported"));
    x = range(node, x, part.axis, part.begin, part.length);
  }
  set(node, std::move(x));
}

void OnnxImporter::split(const OnnxNode& node) {
  const OnnxView x = view(node, 0);
  const size_t axis = onnx_axes(node, {node.integer("axis", 0)}, x.axes.size())[0];
  const int64_t size = x.size(x.axes[axis]);
  std::vector<int64_t> lengths =
      node.has_input(1) ? constant(node, 1, "lengths").integers : node.integers("split");
  const auto parts = static_cast<int64_t>(node.outputs.size());
  if (lengths.empty() && parts > 0)
    for (int64_t left = size, each = (size + parts - 1) / parts; left > 0; left -= each)
      lengths.push_back(std::min(each, left));
  if (lengths.size() != node.outputs.size())
    damaged(node, "its lengths and outputs differ in number");
  int64_t begin = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0 || lengths[i] > size) damaged(node, "it takes what lies outside an axis");
    set(node, range(node, x, axis, begin, lengths[i]), 1, i);
    begin += lengths[i];
  }
}

void OnnxImporter::concat(const OnnxNode& node) {
  if (node.inputs.size() > kMostJoined)
    lacks(node,
          cat("it joins ", node.inputs.size(), " values; at most ", kMostJoined, " are supported"));
  std::vector<OnnxView> views;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (!is_constant(node, i)) views.push_back(view(node, i));
  if (views.empty()) damaged(node, "it has no inputs");
  for (const OnnxView& x : views)
    if (x.axes.size() != views[0].axes.size()) damaged(node, "its inputs differ in rank");
  std::vector<size_t> order;
  views = aligned(node, std::move(views), order);
  const size_t axis = onnx_axes(node, {node.integer("axis", 0)}, order.size())[0];
  const auto at = static_cast<size_t>(std::find(order.begin(), order.end(), axis) - order.begin());
  if (at == 0) lacks(node, "it joins batches");
  std::vector<std::vector<Atom>> made;
  for (const Axis& each : views[0].ours)
    made.push_back({{views[0].size(each), views[0].fixed(each)}});
  made[at][0] = {0, true};
  std::vector<int> inputs;
  size_t next = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    int64_t length = 0;
    if (!is_constant(node, i)) {
      const OnnxView& x = views[next++];
      length = x.size(x.ours[at]);
      made[at][0].fixed = made[at][0].fixed && x.fixed(x.ours[at]);
      inputs.push_back(x.layer);
    } else {
      // It is the same for all samples.
      const OnnxValue& from = value(node, i);
      const OnnxTensor& of = *from.constant;
      if (of.dims.size() != order.size() || of.count() == 0)
        damaged(node, "its inputs differ in rank");
      length = of.dims[axis];
      OnnxNode move{
          .name = node.name, .op = "Transpose", .inputs = {node.inputs[i]}, .outputs = {}};
      for (const size_t each : order)
        move.attributes["perm"].integers.push_back(static_cast<int64_t>(each));
      const OnnxConstant moved = (*fold(move, {from.constant}, 1, budget_))[0];
      Shape shape(moved->dims.begin(), moved->dims.end());
      shape[0] = 1;
      Tensor values(DType::f32, shape);
      const auto each_sample = static_cast<size_t>(values.count());
      for (size_t k = 0; k < moved->count(); ++k) {
        if (moved->number(k) != moved->number(k % each_sample))
          lacks(node, "it joins a constant that differs from sample to sample with a value");
        if (k < each_sample) values.mutable_view<float>()[k] = static_cast<float>(moved->number(k));
      }
      inputs.push_back(parameter(node, values, from.source));
    }
    if (length > kMostLength) lacks(node, "its result is too large");
    made[at][0].size += length;
  }
  std::vector<size_t> places(order.size());
  for (size_t i = 0; i < order.size(); ++i) places[order[i]] = i;
  const int joined = inputs.size() == 1 ? inputs[0] : add(node, "concat", inputs, {{"axis", at}});
  set(node, OnnxView::of(joined, made, places));
}

}  // namespace etr::nn

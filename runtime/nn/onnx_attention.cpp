// Attention that a file has in pieces: scores = query key^T times a scale, a mask, softmax, a
// product with values, then the product that joins the heads. The pieces become the layer
// `attention`, together with the dense layers that make queries, keys and values.
#include <algorithm>
#include <cmath>
#include <limits>

#include "nn/onnx_importer.h"

namespace etr::nn {

struct OnnxScores {
  OnnxView queries, keys;        // [N, positions, width] with the heads side by side
  int64_t heads = 1, group = 1;  // heads of queries; how many share one of keys
  double scale = 1;
  bool causal = false, softmax = false;
  int lengths = -1;           // the layer that gives the keys of each sample
  std::vector<int64_t> dims;  // the file's shape
};

namespace {

constexpr double kNever = -1e3;  // masks add at least as much

Tensor columns(const Tensor& from, int64_t begin, int64_t count) {
  const bool matrix = from.shape().size() == 2;
  const auto all = static_cast<size_t>(from.shape().back()), n = static_cast<size_t>(count);
  const size_t rows = static_cast<size_t>(from.count()) / all;
  Tensor out(DType::f32, matrix ? Shape{from.shape()[0], count} : Shape{count});
  for (size_t r = 0; r < rows; ++r)
    std::copy_n(
        from.view<float>().begin() + static_cast<ptrdiff_t>(r * all + static_cast<size_t>(begin)),
        n, out.mutable_view<float>().begin() + static_cast<ptrdiff_t>(r * n));
  return out;
}

Tensor zeros(int64_t count) {
  Tensor out(DType::f32, {count});
  std::fill_n(out.mutable_view<float>().begin(), static_cast<size_t>(count), 0.f);
  return out;
}

// Multiplies the first `count` columns.
Tensor with_scale(const Tensor& from, int64_t count, double by) {
  Tensor out(DType::f32, from.shape());
  const auto all = static_cast<size_t>(from.shape().back());
  for (size_t i = 0; i < static_cast<size_t>(from.count()); ++i) {
    const auto value = static_cast<double>(from.view<float>()[i]);
    out.mutable_view<float>()[i] =
        static_cast<float>(i % all < static_cast<size_t>(count) ? value * by : value);
  }
  return out;
}

// Returns keys or values with as many samples and heads as queries of shape `dims`; none if they do
// not fit.
std::optional<OnnxView> with_heads_of(std::vector<int64_t> dims, const OnnxView& x) {
  std::fill(dims.end() - 2, dims.end(), 1);
  return x.expanded(dims);
}

}  // namespace

bool OnnxImporter::convert_scores(const OnnxNode& node) {
  const std::string& op = node.op;
  const auto scores_in = [&](size_t i) {
    return node.has_input(i) ? value(node, i).scores : nullptr;
  };
  if (op == "MatMul" && node.inputs.size() == 2 && !is_constant(node, 0) && !is_constant(node, 1)) {
    if (scores_in(0))
      end_scores(node);
    else
      begin_scores(node);
    return true;
  }
  // Positions before the end of each sample, as our own files have it: Less(0 1 2 ..., lengths).
  if (op == "Less" && is_constant(node, 0) && !is_constant(node, 1)) {
    const OnnxView lengths = view(node, 1);
    const OnnxTensor& places = constant(node, 0, "positions");
    bool counts = lengths.atoms.size() == 1 && places.dims.size() == 1;
    for (size_t i = 0; i < places.count(); ++i)
      counts = counts && places.number(i) == static_cast<double>(i);
    if (!counts) lacks(node, "comparisons are supported only as masks of positions by length");
    OnnxValue mask;
    mask.lengths = arranged(node, lengths, {{0}}).layer;
    return set(node, std::move(mask)), true;
  }
  if (op == "Cast" && value(node, 0).lengths >= 0) return set(node, value(node, 0)), true;
  const bool where = op == "Where" && node.inputs.size() == 3;
  const size_t first = where || !scores_in(0) ? 1 : 0;
  const auto scores = scores_in(first);
  if (!scores) return false;
  auto out = std::make_shared<OnnxScores>(*scores);
  const size_t other = 1 - first;
  if (where) {
    const OnnxTensor& never = constant(node, 2, "value of masked scores");
    if (value(node, 0).lengths < 0 || never.count() != 1 || never.number(0) > kNever)
      lacks(node, "attention masks must be causal, or given by lengths");
    out->lengths = value(node, 0).lengths;
  } else if (op == "Mul" || op == "Div") {
    const OnnxValue& by = value(node, other);
    if (by.lengths >= 0 && op == "Mul" && out->softmax) {
      if (by.lengths != out->lengths) lacks(node, "it masks attention twice");
    } else {
      const OnnxTensor& number = constant(node, other, "scale");
      if (number.count() != 1 || out->softmax ||
          (op == "Div" && (first != 0 || number.number(0) == 0)))
        lacks(node, "attention scores may have only one scale");
      out->scale *= op == "Mul" ? number.number(0) : 1 / number.number(0);
    }
  } else if (op == "Add" && !out->softmax) {
    mask_scores(node, *out, constant(node, other, "mask"));
  } else if (op == "Softmax" && !out->softmax) {
    const auto rank = static_cast<int64_t>(out->dims.size());
    const int64_t axis = node.integer("axis", graph_.opset < 13 ? 1 : -1);
    if (axis != -1 && axis != rank - 1)
      lacks(node, "the softmax of attention must be over the keys");
    out->softmax = true;
  } else if (op == "Reshape" && node.has_input(1)) {
    const auto dims = onnx_reshape(node, out->dims, constant(node, 1, "shape").integers);
    if (dims.size() < 2 || !std::equal(dims.end() - 2, dims.end(), out->dims.end() - 2))
      lacks(node, "the last axes of attention scores must be queries and keys");
    out->dims = dims;
  } else if (op != "Identity" && op != "Dropout" &&
             (op != "Cast" || !onnx_is_real(node.integer("to", 1)))) {
    lacks(node, "it changes scores of attention in a way that is not supported");
  }
  OnnxValue made;
  made.scores = out;
  set(node, std::move(made));
  return true;
}

// A mask that is added: nothing, or causal.
void OnnxImporter::mask_scores(const OnnxNode& node, OnnxScores& scores, const OnnxTensor& mask) {
  budget_.take(mask.count(), node);
  const int64_t rows = scores.dims[scores.dims.size() - 2], keys = scores.dims.back();
  bool none = true, causal = mask.dims.size() >= 2 && mask.dims.back() == keys &&
                             mask.dims[mask.dims.size() - 2] == rows;
  for (size_t i = 0; i < mask.count(); ++i) {
    const double added = mask.number(i);
    none = none && added == 0;
    if (!causal) continue;
    const auto key = static_cast<int64_t>(i) % keys, row = static_cast<int64_t>(i) / keys % rows;
    causal = key > row + keys - rows ? added <= kNever : added == 0;
  }
  if (!none && !causal) lacks(node, "attention masks must be causal, or given by lengths");
  scores.causal = scores.causal || !none;
}

// Returns x, whose file axes are samples and heads, then `positions` and `features`, as
// [N, positions, width] with the heads side by side.
OnnxImporter::Heads OnnxImporter::heads(const OnnxNode& node, const OnnxView& x, size_t positions,
                                        size_t features) {
  Axis lead;
  for (size_t i = 0; i + 2 < x.axes.size(); ++i)
    lead.insert(lead.end(), x.axes[i].begin(), x.axes[i].end());
  if (lead.empty() || lead[0] != 0)
    lacks(node,
          "products of two values are supported only as parts of attention: with samples, "
          "heads, positions and features");
  Axis width(lead.begin() + 1, lead.end());
  const int64_t count = x.size(width);
  const OnnxView own = x.without_repeats();
  while (!width.empty() && x.atoms[width.back()].repeated) width.pop_back();
  const int64_t group = count / x.size(width);
  width.insert(width.end(), x.axes[features].begin(), x.axes[features].end());
  if (width.size() + x.axes[positions].size() + 1 != own.atoms.size())
    lacks(node, "repeated heads must lie side by side, and all must be repeated equally often");
  return {arranged(node, own, {{0}, own.axes[positions], width}), count, group};
}

void OnnxImporter::begin_scores(const OnnxNode& node) {
  const OnnxValue &a = value(node, 0), &b = value(node, 1);
  if (!a.view || !b.view || a.view->axes.size() < 3 || b.view->axes.size() != a.view->axes.size())
    lacks(node, "products of two values are supported only as parts of attention");
  const size_t rank = a.view->axes.size();
  const auto dims = a.view->dims();
  const auto shared = with_heads_of(dims, *b.view);
  const auto other = shared ? shared->dims() : dims;
  if (!shared || dims[rank - 1] != other[rank - 2] ||
      !std::equal(dims.begin(), dims.end() - 2, other.begin()))
    damaged(node, "the shapes of its inputs do not fit each other");
  auto out = std::make_shared<OnnxScores>();
  const Heads queries = heads(node, *a.view, rank - 2, rank - 1),
              keys = heads(node, *shared, rank - 1, rank - 2);
  if (keys.count != queries.count || queries.group != 1)
    lacks(node, "queries and keys have different heads");
  out->queries = queries.view;
  out->keys = keys.view;
  out->heads = queries.count;
  out->group = keys.group;
  out->scale = a.factor * b.factor;
  out->dims = dims;
  out->dims.back() = other.back();
  OnnxValue made;
  made.scores = out;
  set(node, std::move(made));
}

// Returns how long axis `last`, the layer's last one, is; 0 if that is not known.
int64_t OnnxImporter::columns_of(int i, size_t last) const {
  int64_t before = 0;
  while (true) {
    const OnnxLayer& of = layer(i);
    if (of.kind == "dense" && of.tied < 0) return of.weights.at("weight").shape()[1] - before;
    if (of.kind == "slice" && of.options["axis"].get<size_t>() == last) {
      const auto length = of.options["length"].get<int64_t>();
      if (length > 0) return length - before;
      before += of.options["begin"].get<int64_t>();
    } else if (of.kind != "rotary_core") {
      return 0;
    }
    i = of.inputs[0];
  }
}

// Returns how the queries, keys or values are made: by a dense layer, or a part of one, and a
// rotation of its heads.
OnnxImporter::Projection OnnxImporter::projection(const OnnxNode& node, const OnnxView& x) {
  const size_t last = x.ours.size() - 1;
  const int64_t count = x.size(x.ours.back());
  int64_t begin = 0;
  int dense = x.layer, rotary = -1;
  const OnnxLayer* of = &layer(dense);
  const auto is = [&](const char* kind) {
    return of->kind == kind && of->options["axis"].get<size_t>() == last;
  };
  while (true) {
    if (is("slice")) {
      begin += of->options["begin"].get<int64_t>();
      dense = of->inputs[0];
    } else if (of->kind == "rotary_core" && rotary < 0 &&
               begin % of->options["head"].get<int64_t>() == 0) {
      rotary = dense;
      dense = of->inputs[0];
    } else if (is("concat")) {
      size_t part = 0;
      int64_t columns = columns_of(of->inputs[0], last);
      while (columns > 0 && begin >= columns && part + 1 < of->inputs.size()) {
        begin -= columns;
        columns = columns_of(of->inputs[++part], last);
      }
      if (begin + count > columns) break;
      dense = of->inputs[part];
    } else {
      break;
    }
    of = &layer(dense);
  }
  if (of->kind != "dense" || of->tied >= 0)
    lacks(node, cat("the queries, keys and values of attention must be products with weights, but "
                    "one comes from '",
                    of->node ? of->node->name : of->name, "'"));
  Projection out{of->inputs[0], of->weights.at("weight"), {}, of->sources, dense, begin, rotary};
  const bool whole = out.weight.shape()[1] == count;
  if (!whole) out.weight = columns(out.weight, begin, count);
  if (const auto bias = of->weights.find("bias"); bias != of->weights.end())
    out.bias = whole ? bias->second : columns(bias->second, begin, count);
  return out;
}

// Returns the layer's options for how queries and keys are rotated.
Json OnnxImporter::rotary_options(const OnnxNode& node, const Projection (&parts)[3],
                                  int64_t head) const {
  Json found[3];
  for (size_t i = 0; i < 3; ++i)
    found[i] = parts[i].rotary >= 0 ? layer(parts[i].rotary).options : Json{{"head", head}};
  if (found[0] != found[1] || found[0]["head"] != head || parts[2].rotary >= 0)
    lacks(node,
          "rotary positions must rotate queries and keys alike, over the whole of each "
          "head, and must not rotate values");
  remove_member(found[0], "head");
  return found[0];
}

// Makes the layer, as yet without the product behind it.
int OnnxImporter::attention_core(const OnnxNode& node, const OnnxScores& scores,
                                 const OnnxView& values) {
  Projection parts[] = {projection(node, scores.queries), projection(node, scores.keys),
                        projection(node, values)};
  const int64_t width = scores.queries.size(scores.queries.ours.back()),
                kv_width = width / scores.group, head = width / scores.heads;
  const double usual = 1 / std::sqrt(static_cast<double>(head));
  OnnxLayer made;
  made.kind = "attention_core";
  made.options = {{"heads", scores.heads}};
  if (scores.group > 1) made.options["kv_heads"] = scores.heads / scores.group;
  if (parts[0].weight.shape()[0] != width) made.options["head_dim"] = head;
  if (scores.causal) made.options["causal"] = true;
  made.options.update(rotary_options(node, parts, head));
  made.node = &node;
  const bool biased = std::any_of(std::begin(parts), std::end(parts),
                                  [](const Projection& part) { return !part.bias.empty(); });
  // The layer has the usual scale; another one becomes a part of the queries' weights.
  const double by = scores.scale / usual;
  const bool differs = std::abs(by - 1) > 1e-5;
  for (const Projection& part : parts)
    made.sources.insert(made.sources.end(), part.sources.begin(), part.sources.end());
  for (const Projection& part : parts) budget_.take(static_cast<size_t>(part.weight.count()), node);
  const OnnxLayer& dense = layer(parts[0].packed);
  const bool packed = parts[1].packed == parts[0].packed && parts[2].packed == parts[0].packed &&
                      dense.weights.at("weight").shape()[1] == width + 2 * kv_width &&
                      parts[0].begin == 0 && parts[1].begin == width &&
                      parts[2].begin == width + kv_width && scores.lengths < 0;
  if (packed) {
    made.inputs = {parts[0].input};
    made.weights = {{"qkv.weight", dense.weights.at("weight")}};
    if (biased) made.weights["qkv.bias"] = dense.weights.at("bias");
    if (differs)
      for (auto& [name, weight] : made.weights) weight = with_scale(weight, width, by);
  } else {
    if (parts[1].input != parts[2].input)
      lacks(node, "keys and values of attention are made from different values");
    made.inputs = {parts[0].input};
    if (parts[1].input != parts[0].input || scores.lengths >= 0)
      made.inputs.push_back(parts[1].input);
    else
      made.options["separate"] = true;
    if (scores.lengths >= 0) made.inputs.push_back(scores.lengths);
    const char* const names[] = {"query", "key", "value"};
    for (size_t i = 0; i < 3; ++i) {
      Tensor weight = parts[i].weight;
      Tensor bias = parts[i].bias.empty() ? zeros(i == 0 ? width : kv_width) : parts[i].bias;
      if (i == 0 && differs) {
        weight = with_scale(weight, width, by);
        bias = with_scale(bias, width, by);
      }
      made.weights[cat(names[i], ".weight")] = weight;
      if (biased) made.weights[cat(names[i], ".bias")] = bias;
    }
  }
  return add(std::move(made));
}

void OnnxImporter::end_scores(const OnnxNode& node) {
  const auto scores = value(node, 0).scores;
  const OnnxValue& of = value(node, 1);
  const OnnxView v = of.view && of.factor == 1 ? *of.view : settled(node, of);
  const size_t rank = v.axes.size();
  if (!scores->softmax || rank < 3)
    lacks(node, "attention is supported only with a softmax of its scores");
  const auto shared = with_heads_of(scores->dims, v);
  if (!shared || rank != scores->dims.size() || shared->dims()[rank - 2] != scores->dims.back())
    damaged(node, "the shapes of its inputs do not fit each other");
  const Heads values = heads(node, *shared, rank - 2, rank - 1);
  const OnnxView& q = scores->queries;
  const int64_t width = q.size(q.ours.back()), kv_width = values.view.size(values.view.ours.back());
  if (values.count != scores->heads || values.group != scores->group ||
      kv_width * values.group != width || kv_width != scores->keys.size(scores->keys.ours.back()))
    lacks(node, "queries, keys and values of attention have different widths");
  const int made = attention_core(node, *scores, values.view);
  OnnxView out = OnnxView::of(made,
                              {{q.atoms[0]},
                               {{q.size(q.ours[1]), q.fixed(q.ours[1])}},
                               {{scores->heads, true}, {width / scores->heads, true}}},
                              {0, 1, 2});
  // The file has samples and heads first, joined or not.
  std::vector<Axis> axes;
  const Axis joint = out.ours[2];
  const size_t features = width / scores->heads > 1 ? 1 : 0;
  const Axis heads_axis(joint.begin(), joint.end() - static_cast<ptrdiff_t>(features));
  const Axis features_axis(joint.end() - static_cast<ptrdiff_t>(features), joint.end());
  out.axes = {{0}, heads_axis, out.ours[1], features_axis};
  std::vector<int64_t> wanted(scores->dims.begin(), scores->dims.end() - 1);
  wanted.push_back(width / scores->heads);
  const auto apart = out.reshaped(wanted);
  if (!apart) lacks(node, "its heads are split in a way that is not supported");
  set(node, *apart);
}

}  // namespace etr::nn

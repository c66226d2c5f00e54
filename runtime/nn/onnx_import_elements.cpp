// What the importer makes of operators that work on each element.
#include <algorithm>
#include <cmath>
#include <limits>

#include "nn/onnx_importer.h"
#include "nn/onnx_patterns.h"

namespace etr::nn {

bool OnnxImporter::convert_elements(const OnnxNode& node) {
  const std::string& op = node.op;
  static const std::map<std::string, const char*> kUnary{
      {"Relu", "relu"},  {"Sigmoid", "sigmoid"}, {"Tanh", "tanh"}, {"Softplus", "softplus"},
      {"Exp", "exp"},    {"Log", "log"},         {"Sqrt", "sqrt"}, {"Abs", "abs"},
      {"Neg", "negate"}, {kOnnxSilu, "silu"}};
  static const std::map<std::string, const char*> kBinary{
      {"Add", "add"},     {"Sub", "subtract"}, {"Mul", "multiply"}, {"Div", "divide"},
      {"Max", "maximum"}, {"Min", "minimum"},  {"Pow", ""}};
  if (const auto it = kUnary.find(op); it != kUnary.end()) return unary(node, it->second), true;
  if (op == "LeakyRelu") return unary(node, "leaky_relu", node.real("alpha", 0.01)), true;
  if (op == "Elu") return unary(node, "elu", node.real("alpha", 1)), true;
  if (op == "Gelu")
    return unary(node, node.text("approximate", "none") == "tanh" ? "gelu_tanh" : "gelu"), true;
  if (op == "Erf") {
    const OnnxView x = view(node, 0);
    return set(node, applied(node, x, "erf")), true;
  }
  if (op == "Dropout") {
    const OnnxView x = view(node, 0);
    double rate = node.real("ratio", 0.5);
    if (node.has_input(1)) {
      const OnnxTensor& given = constant(node, 1, "ratio");
      if (given.count() != 1) damaged(node, "its ratio is not one number");
      rate = given.number(0);
    }
    return set(node, rate > 0 ? applied(node, x, "dropout", {{"rate", rate}}) : x), true;
  }
  if (op == "Clip") return clip(node), true;
  if (op == "Reciprocal") {
    const OnnxView x = view(node, 0);
    Tensor one(DType::f32, {1});
    one.mutable_view<float>()[0] = 1;
    set(node, same(x, add(node, "divide", {parameter(node, one, ""), x.layer})));
    return true;
  }
  const auto layer = kBinary.find(op);
  if (layer == kBinary.end()) return false;
  if (node.inputs.size() != 2) lacks(node, "it is supported only for two values");
  for (const size_t i : {0, 1})
    if (is_constant(node, i)) return with_constant(node, i), true;
  if (op == "Pow") lacks(node, "its exponent must be known");
  binary(node, layer->second);
  return true;
}

void OnnxImporter::unary(const OnnxNode& node, const std::string& function,
                         std::optional<double> alpha) {
  const OnnxView x = view(node, 0);
  if (alpha && *alpha < 0) lacks(node, cat("its alpha is ", *alpha, ", and must not be negative"));
  if (function == "relu") return set(node, applied(node, x, "relu"));
  Json options{{"function", function}};
  if (alpha) options["alpha"] = *alpha;
  set(node, applied(node, x, "activation", options));
}

void OnnxImporter::clip(const OnnxNode& node) {
  OnnxView x = view(node, 0);
  const auto bound = [&](size_t input, const char* name, double otherwise) {
    if (!node.has_input(input)) return node.real(name, otherwise);
    const OnnxTensor& given = constant(node, input, "bound");
    if (given.count() != 1) damaged(node, "its bounds are not single numbers");
    return given.number(0);
  };
  constexpr double kFar = std::numeric_limits<float>::max();
  const double low = bound(1, "min", -kFar), high = bound(2, "max", kFar);
  const auto limit = [&](const char* kind, double at) {
    Tensor number(DType::f32, {1});
    number.mutable_view<float>()[0] = static_cast<float>(at);
    x = same(x, add(node, kind, {x.layer, parameter(node, number, "")}));
  };
  if (low == 0) x = applied(node, x, "relu");
  if (low != 0 && low > -kFar) limit("maximum", low);
  if (high < kFar) limit("minimum", high);
  set(node, std::move(x));
}

void OnnxImporter::binary(const OnnxNode& node, const std::string& kind) {
  const OnnxView a = view(node, 0), b = view(node, 1);
  if (a.axes == b.axes && a.ours == b.ours && a.dims() == b.dims() &&
      std::equal(a.atoms.begin(), a.atoms.end(), b.atoms.begin(), b.atoms.end(),
                 [](const Atom& x, const Atom& y) { return x.size == y.size; }))
    return set(node, same(a, add(node, kind, {a.layer, b.layer})));
  std::vector<size_t> order;
  const std::vector<OnnxView> both = aligned(node, {a, b}, order);
  std::vector<std::vector<Atom>> made;
  for (size_t i = 0; i < both[0].ours.size(); ++i) {
    const Axis &x = both[0].ours[i], &y = both[1].ours[i];
    const int64_t p = both[0].size(x), q = both[1].size(y);
    if (p != q && p != 1 && q != 1) damaged(node, "the shapes of its inputs do not broadcast");
    made.push_back({p == 1 ? Atom{q, both[1].fixed(y)} : Atom{p, both[0].fixed(x)}});
  }
  std::vector<size_t> places(order.size());
  for (size_t i = 0; i < order.size(); ++i) places[order[i]] = i;
  set(node, OnnxView::of(add(node, kind, {both[0].layer, both[1].layer}), made, places));
}

// A product with a number waits: attention has such scales, and then needs no layer for it.
bool OnnxImporter::scaled(const OnnxNode& node, size_t known, double by) {
  const OnnxValue& x = value(node, 1 - known);
  const bool divides = node.op == "Div" && known == 1;
  if ((node.op != "Mul" && !divides) || !x.view || !std::isfinite(by) || (divides && by == 0))
    return false;
  set(node, *x.view, divides ? x.factor / by : x.factor * by);
  return true;
}

// One of the two inputs is a constant.
void OnnxImporter::with_constant(const OnnxNode& node, size_t known) {
  const OnnxValue& from = value(node, known);
  const OnnxTensor& of = *from.constant;
  const std::string& op = node.op;
  if (of.count() == 1 && scaled(node, known, of.number(0))) return;
  const OnnxView x = view(node, 1 - known);
  if (of.count() == 1 && of.number(0) == 0 && from.source.empty() &&
      (op == "Add" || (op == "Sub" && known == 1)))
    return set(node, x);
  if (op == "Pow") {
    const double by = known == 1 && of.count() == 1 ? of.number(0) : 0;
    const OnnxView square =
        by == 2 || by == 3 ? applied(node, x, "activation", {{"function", "square"}}) : x;
    if (by == 2) return set(node, square);
    if (by == 3) return set(node, same(x, add(node, "multiply", {square.layer, x.layer})));
    if (by == 0.5) return set(node, applied(node, x, "activation", {{"function", "sqrt"}}));
    lacks(node, "powers of 2, 3 and 0.5 are supported");
  }
  Tensor values = in_our_order(node, of, x);
  const bool vector = values.shape().size() == 1 && x.ours.size() > 1 &&
                      values.count() == x.size(x.ours.back()) &&
                      (values.count() > 1 || !from.source.empty());
  const bool negative = op == "Sub" && known == 1, inverse = op == "Div" && known == 1;
  if (negative || inverse)
    for (float& each : values.mutable_view<float>()) each = negative ? -each : 1 / each;
  const bool adds = op == "Add" || op == "Sub";
  if (vector && adds) {
    const OnnxView base =
        op == "Sub" && known == 0 ? applied(node, x, "activation", {{"function", "negate"}}) : x;
    const bool is_own = base.layer == x.layer && is_only_use(node, 1 - known);
    return set(node, is_own ? add_vector(node, base, values, from)
                            : add_vector(node, applied(node, base, "bias"), values, from));
  }
  if (op == "Mul" && vector && is_only_use(node, 1 - known)) {
    const OnnxLayer& last = layer(x.layer);
    const bool normalizes =
        last.kind == "layer_norm" || last.kind == "rms_norm" || last.kind == "group_norm";
    if (normalizes && !last.weights.contains("gamma") && !last.weights.contains("beta"))
      return set(node, with_weight(x, "gamma", values, from));
  }
  if (op == "Add" && values.shape().size() == 2 && x.ours.size() == 3 && !from.source.empty() &&
      values.shape()[0] == x.size(x.ours[1]) && values.shape()[1] == x.size(x.ours[2])) {
    const OnnxView out = applied(node, x, "position_embedding");
    give(out.layer, "weight", values, from);
    return set(node, out);
  }
  const int held = parameter(node, values, from.source);
  const char* kind = op == "Add" || negative  ? "add"
                     : op == "Sub"            ? "subtract"
                     : op == "Mul" || inverse ? "multiply"
                     : op == "Div"            ? "divide"
                     : op == "Max"            ? "maximum"
                                              : "minimum";
  const bool swapped = known == 0 && (op == "Sub" || op == "Div");
  set(node,
      same(x, add(node, kind, swapped ? std::vector{held, x.layer} : std::vector{x.layer, held})));
}

// Adds a vector along the last axis of x's layer: as its bias, if it can have one and has none.
OnnxView OnnxImporter::add_vector(const OnnxNode& node, const OnnxView& x, Tensor vector,
                                  const OnnxValue& from) {
  static const std::map<std::string, const char*> kParts{
      {"dense", "bias"},      {"conv1d", "bias"},           {"conv2d", "bias"},
      {"bias", "bias"},       {"conv2d_transpose", "bias"}, {"attention", "output.bias"},
      {"layer_norm", "beta"}, {"group_norm", "beta"}};
  const auto part = kParts.find(layer(x.layer).kind);
  if (part != kParts.end() && !layer(x.layer).weights.contains(part->second))
    return with_weight(x, part->second, std::move(vector), from);
  const OnnxView out = applied(node, x, "bias");
  give(out.layer, "bias", std::move(vector), from);
  return out;
}

}  // namespace etr::nn

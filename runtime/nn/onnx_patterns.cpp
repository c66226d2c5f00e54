#include "nn/onnx_patterns.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

namespace etr::nn {
namespace {

bool near(double a, double b) { return std::abs(a - b) <= 1e-3 * std::abs(b); }

class Patterns {
 public:
  explicit Patterns(OnnxGraph& graph) : graph_(graph) {
    for (size_t n = 0; n < graph.nodes.size(); ++n)
      for (const std::string& output : graph.nodes[n].outputs) producers_.emplace(output, n);
  }

  void run() {
    for (OnnxNode& node : graph_.nodes) {
      if (!node.domain.empty() || node.outputs.size() != 1) continue;
      if (node.op == "Mul") gated(node);
      if (node.op == "Div" || node.op == "Mul") normalized(node);
      if (node.op == "Where") shares(node);
    }
  }

 private:
  // A product of values and a number.
  struct Product {
    double scale = 1;
    std::vector<std::string> factors;
  };

  const OnnxNode* producer(const std::string& value, const char* op = nullptr) const {
    const auto it = producers_.find(value);
    if (it == producers_.end()) return nullptr;
    const OnnxNode& node = graph_.nodes[it->second];
    return node.domain.empty() && (!op || node.op == op) ? &node : nullptr;
  }
  OnnxConstant constant(const std::string& value) const {
    if (const auto it = graph_.initializers.find(value); it != graph_.initializers.end())
      return it->second;
    const OnnxNode* node = producer(value, "Constant");
    if (!node || !node->has("value")) return nullptr;
    return node->attributes.at("value").tensor;
  }
  std::optional<double> number(const std::string& value) const {
    if (const OnnxNode* node = producer(value, "Constant"); node && node->has("value_float"))
      return node->real("value_float", 0);
    const OnnxConstant of = constant(value);
    return of && of->count() == 1 ? std::optional(of->number(0)) : std::nullopt;
  }

  // `whole`: a value that stays a factor, even if it is a product itself.
  void multiply(const std::string& value, const std::string& whole, Product& into, int depth) const;
  Product product(const std::string& value, const std::string& whole = "") const {
    Product out;
    multiply(value, whole, out, 0);
    return out;
  }
  // A node of two inputs, of which one is a number.
  std::optional<std::pair<std::string, double>> with_number(const OnnxNode* node) const;

  void gated(OnnxNode& node) const;
  std::string erf_input(const std::string& argument) const;
  std::string tanh_input(const std::string& argument) const;
  void normalized(OnnxNode& node) const;
  void shares(OnnxNode& node) const;
  std::optional<std::pair<std::string, double>> deviation(const std::string& value,
                                                          std::vector<int64_t>& axes) const;
  std::optional<std::vector<int64_t>> mean_axes(const OnnxNode* node) const;

  OnnxGraph& graph_;
  std::map<std::string, size_t> producers_;
};

constexpr int kMostDepth = 4;

void Patterns::multiply(const std::string& value, const std::string& whole, Product& into,
                        int depth) const {
  if (value == whole) {
    into.factors.push_back(value);
    return;
  }
  if (const auto by = number(value)) {
    into.scale *= *by;
    return;
  }
  const OnnxNode* node = depth < kMostDepth ? producer(value) : nullptr;
  if (node && node->op == "Mul" && node->inputs.size() == 2) {
    for (const std::string& input : node->inputs) multiply(input, whole, into, depth + 1);
    return;
  }
  if (node && node->inputs.size() == 2 && (node->op == "Div" || node->op == "Pow"))
    if (const auto by = number(node->inputs[1])) {
      if (node->op == "Div") {
        into.scale /= *by;
        return multiply(node->inputs[0], whole, into, depth + 1);
      }
      if (*by == 2 || *by == 3) {
        into.factors.insert(into.factors.end(), static_cast<size_t>(*by), node->inputs[0]);
        return;
      }
    }
  into.factors.push_back(value);
}

std::optional<std::pair<std::string, double>> Patterns::with_number(const OnnxNode* node) const {
  if (!node || node->inputs.size() != 2) return std::nullopt;
  for (const size_t i : {0, 1})
    if (const auto by = number(node->inputs[i])) return std::pair(node->inputs[1 - i], *by);
  return std::nullopt;
}

// Returns x if `argument` is x / sqrt(2), otherwise "".
std::string Patterns::erf_input(const std::string& argument) const {
  auto by = with_number(producer(argument));
  for (int depth = 0; by && depth < kMostDepth; ++depth) {
    const std::string x = by->first;
    const Product of = product(argument, x);
    if (near(of.scale, std::sqrt(0.5)) && of.factors == std::vector{x}) return x;
    by = with_number(producer(x));
  }
  return "";
}

// Returns x if `argument` is sqrt(2 / pi) (x + 0.044715 x^3), otherwise "".
std::string Patterns::tanh_input(const std::string& argument) const {
  const Product scaled = product(argument);
  if (scaled.factors.size() != 1 || !near(scaled.scale, std::sqrt(2 / std::numbers::pi))) return "";
  const OnnxNode* sum = producer(scaled.factors[0], "Add");
  if (!sum || sum->inputs.size() != 2) return "";
  for (const size_t i : {0, 1}) {
    const std::string x = sum->inputs[1 - i];
    const Product cube = product(sum->inputs[i], x);
    if (near(cube.scale, 0.044715) && cube.factors == std::vector<std::string>(3, x)) return x;
  }
  return "";
}

// x sigmoid(x), and x (1 + erf(x / sqrt(2))) / 2 or its approximation by tanh. The gate says what x
// is, which may be a product itself.
void Patterns::gated(OnnxNode& node) const {
  const Product all = product(node.outputs[0]);
  for (const std::string& gate : all.factors) {
    const auto scale_of = [&](const std::string& x) {  // 0: not x times the gate
      const Product of = product(node.outputs[0], x);
      const bool is_gated =
          of.factors == std::vector{x, gate} || of.factors == std::vector{gate, x};
      return is_gated ? of.scale : 0;
    };
    const OnnxNode* sigmoid = producer(gate, "Sigmoid");
    if (sigmoid && sigmoid->inputs.size() == 1 && scale_of(sigmoid->inputs[0]) == 1) {
      node.op = kOnnxSilu;
      node.inputs = sigmoid->inputs;
      return;
    }
    const auto sum = with_number(producer(gate, "Add"));
    if (!sum || sum->second != 1) continue;
    const OnnxNode* inner = producer(sum->first);
    if (!inner || inner->inputs.size() != 1) continue;
    const bool tanh = inner->op == "Tanh";
    const std::string x = tanh                 ? tanh_input(inner->inputs[0])
                          : inner->op == "Erf" ? erf_input(inner->inputs[0])
                                               : "";
    if (x.empty() || !near(scale_of(x), 0.5)) continue;
    node.op = "Gelu";
    node.inputs = {x};
    node.attributes["approximate"].text = tanh ? "tanh" : "none";
    return;
  }
}

std::optional<std::vector<int64_t>> Patterns::mean_axes(const OnnxNode* node) const {
  if (!node || node->inputs.empty() || node->integer("keepdims", 1) == 0) return std::nullopt;
  std::vector<int64_t> axes = node->integers("axes");
  if (node->has_input(1)) {
    const OnnxConstant given = constant(node->inputs[1]);
    if (!given) return std::nullopt;
    axes = given->integers;
  }
  return axes.empty() ? std::nullopt : std::optional(axes);
}

// sqrt(mean(x^2) + epsilon), as x and epsilon.
std::optional<std::pair<std::string, double>> Patterns::deviation(
    const std::string& value, std::vector<int64_t>& axes) const {
  const OnnxNode* root = producer(value, "Sqrt");
  if (!root || root->inputs.size() != 1) return std::nullopt;
  const auto sum = with_number(producer(root->inputs[0], "Add"));
  if (!sum) return std::nullopt;
  const OnnxNode* mean = producer(sum->first, "ReduceMean");
  const auto over = mean_axes(mean);
  if (!over) return std::nullopt;
  const Product square = product(mean->inputs[0]);
  if (square.scale != 1 || square.factors.size() != 2 || square.factors[0] != square.factors[1])
    return std::nullopt;
  axes = *over;
  return std::pair(square.factors[0], sum->second);
}

void Patterns::normalized(OnnxNode& node) const {
  if (node.inputs.size() != 2) return;
  for (const size_t i : {1, 0}) {  // x / deviation, or x and 1 / deviation in either order
    std::string by = node.inputs[i];
    if (node.op == "Div" && i == 0) return;
    if (node.op == "Mul") {
      const OnnxNode* inverse = producer(by, "Reciprocal");
      const OnnxNode* quotient = producer(by, "Div");
      if (inverse && inverse->inputs.size() == 1)
        by = inverse->inputs[0];
      else if (quotient && quotient->inputs.size() == 2 && number(quotient->inputs[0]) == 1.0)
        by = quotient->inputs[1];
      else
        continue;
    }
    std::vector<int64_t> axes;
    const auto found = deviation(by, axes);
    const std::string x = node.inputs[1 - i];
    if (!found || found->first != x) continue;
    const OnnxNode* centred = producer(x, "Sub");
    const OnnxNode* mean = centred && centred->inputs.size() == 2
                               ? producer(centred->inputs[1], "ReduceMean")
                               : nullptr;
    const bool is_centred =
        mean && mean_axes(mean) == std::optional(axes) && mean->inputs[0] == centred->inputs[0];
    node.inputs = {is_centred ? centred->inputs[0] : x};
    node.op = kOnnxNormalize;
    node.attributes["axes"].integers = axes;
    node.attributes["epsilon"].real = found->second;
    node.attributes["centred"].integer = is_centred;
    return;
  }
}

// 0 where a softmax is no number, as it is where all is masked. Here it always is a number.
void Patterns::shares(OnnxNode& node) const {
  if (node.inputs.size() != 3 || number(node.inputs[1]) != 0.0) return;
  const OnnxNode* condition = producer(node.inputs[0], "IsNaN");
  const std::string share = node.inputs[2];
  if (!condition || condition->inputs != std::vector{share} || !producer(share, "Softmax")) return;
  node.op = "Identity";
  node.inputs = {share};
}

}  // namespace

void combine_patterns(OnnxGraph& graph) { Patterns(graph).run(); }

}  // namespace etr::nn

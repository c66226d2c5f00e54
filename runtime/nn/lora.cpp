#include "nn/lora.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "core/options.h"
#include "graph/patterns.h"
#include "nn/init.h"

namespace etr::nn {
namespace {

constexpr OptionSpec kLoraOptions[] = {
    {"layers", OptionType::strings, nullptr,
     "names of dense layers, and of the projections of attention layers (LAYER.query, LAYER.key, "
     "LAYER.value, or LAYER.qkv, and LAYER.output), that get an adapter; * matches any characters"},
    {"rank", OptionType::integer, "8", "rank of the adapters", 1, 4096},
    {"alpha", OptionType::number, "16", "the output of an adapter is multiplied by alpha / rank",
     1e-6, 1e6},
    {"dropout", OptionType::number, "0",
     "probability that an element of an adapter's input is set to zero in training", 0, 0.99},
    {"train", OptionType::strings, "[]",
     "names of parameters that are trained as usual, such as those of a new last layer; * matches "
     "any characters"},
};

// Returns the names of the products that could have an adapter, in the model's order.
std::vector<std::string> products_of(const graph::Graph& graph) {
  constexpr std::string_view kWeight = ".weight";
  std::vector<std::string> out;
  for (const graph::Node& node : graph.nodes()) {
    if (node.op->slices != ops::SliceRule::product || node.options.boolean("transposed")) continue;
    const std::string& weight = graph.value(node.inputs[1]).name;
    if (weight.ends_with(kWeight)) out.push_back(weight.substr(0, weight.size() - kWeight.size()));
  }
  return out;
}

}  // namespace

Schema lora_schema() { return kLoraOptions; }

Lora::Lora(const Json& spec) {
  const Options options(kLoraOptions, "model: 'lora'", spec);
  layers_ = options.strings("layers");
  train_ = options.strings("train");
  rank_ = options.integer("rank");
  alpha_ = options.number("alpha");
  dropout_ = options.number("dropout");
  if (layers_.empty()) fail(Code::invalid_argument, "model: 'lora.layers' is empty");
}

bool Lora::adapts(const std::string& product) const { return graph::any_matches(layers_, product); }

graph::ValueId Lora::add_adapter(graph::Graph& graph, const std::string& product, graph::ValueId x,
                                 graph::ValueId base, bool relu, const std::string& label) const {
  const int64_t features = graph.shape(x).back(), units = graph.shape(base).back();
  const float bound = 1 / std::sqrt(static_cast<float>(features));
  const auto a =
      graph.add_parameter(name_of_a(product), {features, rank_}, /*decay=*/true, uniform(bound));
  const auto b =
      graph.add_parameter(name_of_b(product), {rank_, units}, /*decay=*/true, constant(0));
  if (dropout_ > 0) x = graph.add("dropout", {{"rate", dropout_}}, {x}, label);
  graph::ValueId low = graph.add("dense", Json::object(), {x, a}, label);
  // The factor is applied where the rows are shortest.
  const auto factor =
      graph.add_constant(product + ".lora_scale", {1}, constant(static_cast<float>(scale())));
  low = graph.add("binary", {{"function", "multiply"}}, {low, factor}, label);
  const auto high = graph.add("dense", Json::object(), {low, b}, label);
  return graph.add("binary", {{"function", "add"}, {"relu", relu}}, {base, high}, label);
}

void Lora::freeze_base(graph::Graph& graph) const {
  std::vector<std::string> parameters;
  for (const graph::Value& value : graph.values())
    if (value.kind == graph::ValueKind::parameter && !is_adapter(value.name))
      parameters.push_back(value.name);
  graph::check_patterns("lora.layers", layers_, products_of(graph), "product");
  graph::check_patterns("lora.train", train_, parameters, "parameter");
  graph.freeze_if([&](const std::string& name) {
    return !is_adapter(name) && !graph::any_matches(train_, name);
  });
}

Tensor Lora::merged(const Tensor& weight, const Tensor& a, const Tensor& b) const {
  const auto rank = static_cast<size_t>(rank_), units = static_cast<size_t>(b.shape()[1]);
  const auto w = weight.view<float>(), low = a.view<float>(), high = b.view<float>();
  Tensor out(DType::f32, weight.shape());
  std::vector<double> row(units);
  for (size_t f = 0; f < low.size() / rank; ++f) {
    std::fill(row.begin(), row.end(), 0.0);
    for (size_t k = 0; k < rank; ++k)
      for (size_t u = 0; u < units; ++u)
        row[u] += double{low[f * rank + k]} * double{high[k * units + u]};
    for (size_t u = 0; u < units; ++u)
      out.mutable_view<float>()[f * units + u] =
          static_cast<float>(double{w[f * units + u]} + scale() * row[u]);
  }
  return out;
}

}  // namespace etr::nn

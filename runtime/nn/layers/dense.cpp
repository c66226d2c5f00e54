// Layers that multiply by weights, and layers that look up rows.
#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "nn/layers/common.h"

namespace etr::nn {

graph::ValueId activate(const LayerCall& call, graph::ValueId value) {
  return fused_relu(call) ? value : activate_unfused(call, value);
}

graph::ValueId activate_unfused(const LayerCall& call, graph::ValueId value) {
  const std::string function = call.options.string("activation");
  if (function == "none") return value;
  return call.graph.add("unary", {{"function", function}}, {value}, call.name);
}

std::vector<graph::ValueId> with_bias(const LayerCall& call, graph::ValueId input,
                                      graph::ValueId weight, int64_t channels) {
  std::vector<graph::ValueId> inputs{input, weight};
  if (call.options.boolean("bias"))
    inputs.push_back(
        call.graph.add_parameter(call.name + ".bias", {channels}, /*decay=*/false, constant(0)));
  return inputs;
}

graph::ValueId add_product(const LayerCall& call, const std::string& name, Json options,
                           std::vector<graph::ValueId> inputs) {
  if (!call.lora || !call.lora->adapts(name))
    return call.graph.add("dense", options, std::move(inputs), call.name);
  const bool relu = options.value("relu", false);
  options["relu"] = false;
  const graph::ValueId x = inputs[0];
  const auto base = call.graph.add("dense", options, std::move(inputs), call.name);
  return call.lora->add_adapter(call.graph, name, x, base, relu, call.name);
}

namespace {

// dense ---------------------------------------------------------------------------------------

constexpr OptionSpec kDense[] = {
    {"units", OptionType::integer, nullptr, "length of the output", 1, 1 << 24},
    kUseBias,
    kActivation,
    kInit,
    {"tied_to", OptionType::string, "\"\"",
     "embedding layer whose table is used as the weight (units must be its number of entries)"},
};

graph::ValueId build_dense(const LayerCall& call) {
  graph::Graph& g = call.graph;
  const Shape& x = call.shape();
  if (x.size() < 2)
    fail(Code::invalid_argument, call.name, ": dense takes [N, ..., features], not ",
         shape_text(x));
  const int64_t units = call.options.integer("units");
  const std::string tied = call.options.string("tied_to");
  for (const ServedTable& served : call.served ? *call.served : std::vector<ServedTable>{})
    if (served.name == tied + ".weight")
      fail(Code::invalid_argument, call.name, ": the table of '", tied,
           "' is sparse: a product with the whole table would have to fetch all of its rows");
  const auto weight =
      tied.empty()
          ? g.add_parameter(call.name + ".weight", {x.back(), units}, /*decay=*/true,
                            weight_initializer(call.options.string("init"), x.back(), units))
          : g.parameter(tied + ".weight");
  if (!tied.empty() && g.shape(weight) != Shape{units, x.back()})
    fail(Code::invalid_argument, call.name, ": the table of '", tied, "' is ",
         shape_text(g.shape(weight)), "; ", counted(units, "unit"), " on ", shape_text(x),
         " need [", units, ", ", x.back(), "]");
  if (!tied.empty() && call.lora && call.lora->adapts(call.name))
    fail(Code::unsupported, call.name, ": 'lora' cannot adapt a layer that is tied to '", tied,
         "', because merging would change that layer, too");
  const Json options{{"relu", fused_relu(call)}, {"transposed", !tied.empty()}};
  return activate(
      call, add_product(call, call.name, options, with_bias(call, call.input(), weight, units)));
}

// embedding -----------------------------------------------------------------------------------

constexpr OptionSpec kEmbedding[] = {
    {"entries", OptionType::integer, nullptr, "rows of the table: the number of different indices",
     1, 2147483647},
    {"width", OptionType::integer, nullptr, "length of a row", 1, 1 << 20},
    {"sparse", OptionType::boolean, "false",
     "with parallel.algorithm 'downpour', keep the table only on the servers and exchange in each "
     "step only the rows that the batch uses; otherwise it is a table like any other"},
};

constexpr float kDeviation = 0.02f;

// The device holds only as many rows as a batch can name.
graph::ValueId build_served(const LayerCall& call, int64_t entries, int64_t width) {
  graph::Graph& g = call.graph;
  const graph::Value ids = g.value(call.input());
  if (ids.kind != graph::ValueKind::input || ids.dtype != DType::i32)
    fail(Code::invalid_argument, call.name,
         ": the ids of a sparse embedding are a field of the batch, i32 [N, ...], and not ",
         ids.kind == graph::ValueKind::input
             ? cat("'", ids.name, "', which is ", dtype_name(ids.dtype))
             : std::string("another layer's result"));
  ServedTable served{call.name + ".weight", call.input(), -1, -1, entries, width, kDeviation};
  const int64_t most = std::min(entries, element_count(ids.shape));
  served.table = g.add_input(call.name + ".table", {most, width}, DType::f32);
  served.rows = g.add_input(call.name + ".rows", ids.shape, DType::i32);
  call.served->push_back(served);
  return g.add("embedding", Json::object(), {served.table, served.rows}, call.name);
}

graph::ValueId build_embedding(const LayerCall& call) {
  const int64_t entries = call.options.integer("entries"), width = call.options.integer("width");
  if (call.served && call.options.boolean("sparse")) return build_served(call, entries, width);
  const auto weight = call.graph.add_parameter(call.name + ".weight", {entries, width},
                                               /*decay=*/false, normal(kDeviation));
  return call.graph.add("embedding", Json::object(), {weight, call.input()}, call.name);
}

// position_embedding --------------------------------------------------------------------------

constexpr OptionSpec kPosition[] = {
    {"kind", OptionType::string, "\"learned\"",
     "learned rows, or sines and cosines of decreasing frequency (Vaswani et al. 2017)", 0, 0, "",
     "learned|sinusoidal"},
};

graph::Initializer sinusoids(int64_t width) {
  return [width](std::span<float> out, Rng&) {
    for (size_t i = 0; i < out.size(); ++i) {
      const auto position = static_cast<double>(i / static_cast<size_t>(width));
      const auto k = static_cast<int64_t>(i % static_cast<size_t>(width));
      const double angle =
          position / std::pow(10000.0, static_cast<double>(k / 2 * 2) / static_cast<double>(width));
      out[i] = static_cast<float>(k % 2 ? std::cos(angle) : std::sin(angle));
    }
  };
}

graph::ValueId build_position(const LayerCall& call) {
  graph::Graph& g = call.graph;
  const Shape& x = call.shape();
  if (x.size() != 3)
    fail(Code::invalid_argument, call.name,
         ": position_embedding takes [N, positions, width], not ", shape_text(x));
  const Shape shape{x[1], x[2]};
  const auto table =
      call.options.string("kind") == "learned"
          ? g.add_parameter(call.name + ".weight", shape, /*decay=*/false, normal(0.02f))
          : g.add_constant(call.name + ".table", shape, sinusoids(x[2]));
  return g.add("binary", {{"function", "add"}}, {call.input(), table}, call.name);
}

}  // namespace

extern const LayerSpec dense_layer, embedding_layer, position_embedding_layer;
const LayerSpec dense_layer{"dense", "fully connected layer over the last axis", kDense,
                            build_dense};
const LayerSpec embedding_layer{
    "embedding", "looks up a trainable row for each index: i32 [N, ...] to [N, ..., width]",
    kEmbedding, build_embedding};
const LayerSpec position_embedding_layer{"position_embedding",
                                         "adds a row to each position of [N, positions, width]",
                                         kPosition, build_position};

}  // namespace etr::nn

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

namespace {

// dense ---------------------------------------------------------------------------------------

constexpr OptionSpec kDense[] = {
    {"units", OptionType::integer, nullptr, "length of the output", 1, 1 << 24},
    kUseBias,
    kActivation,
    kInit,
    {"tied_to", OptionType::string, "\"\"",
     "embedding layer whose table is the weight (units are its entries)"},
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
           "' is sparse: a product with all of it would fetch all of it");
  const auto weight =
      tied.empty()
          ? g.add_parameter(call.name + ".weight", {x.back(), units}, /*decay=*/true,
                            weight_initializer(call.options.string("init"), x.back(), units))
          : g.parameter(tied + ".weight");
  if (!tied.empty() && g.shape(weight) != Shape{units, x.back()})
    fail(Code::invalid_argument, call.name, ": the table of '", tied, "' is ",
         shape_text(g.shape(weight)), "; ", counted(units, "unit"), " on ", shape_text(x),
         " need [", units, ", ", x.back(), "]");
  const Json options{{"relu", fused_relu(call)}, {"transposed", !tied.empty()}};
  return activate(call,
                  g.add("dense", options, with_bias(call, call.input(), weight, units), call.name));
}

// embedding -----------------------------------------------------------------------------------

constexpr OptionSpec kEmbedding[] = {
    {"entries", OptionType::integer, nullptr, "rows of the table: how many symbols there are", 1,
     2147483647},
    {"width", OptionType::integer, nullptr, "length of a row", 1, 1 << 20},
    {"sparse", OptionType::boolean, "false",
     "with parallel.algorithm 'downpour' the table lies on the servers alone, and a step exchanges "
     "the "
     "rows that its batch names; without it is a table like any other"},
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
     "learned, or sine and cosine of falling frequencies (Vaswani et al. 2017)", 0, 0, "",
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

// attention -----------------------------------------------------------------------------------

constexpr OptionSpec kAttention[] = {
    {"heads", OptionType::integer, nullptr, "heads into which the width is split", 1, 1024},
    {"causal", OptionType::boolean, "false", "a position sees itself and what lies before it"},
    kUseBias,
    kInit,
};

// Adds x W (+ b) with parameters NAME.PART.weight and .bias.
graph::ValueId project(const LayerCall& call, const char* part, graph::ValueId x, int64_t units) {
  graph::Graph& g = call.graph;
  const std::string name = cat(call.name, ".", part);
  const int64_t features = g.shape(x).back();
  const auto weight =
      g.add_parameter(name + ".weight", {features, units}, /*decay=*/true,
                      weight_initializer(call.options.string("init"), features, units));
  std::vector<graph::ValueId> inputs{x, weight};
  if (call.options.boolean("bias"))
    inputs.push_back(g.add_parameter(name + ".bias", {units}, /*decay=*/false, constant(0)));
  return g.add("dense", Json::object(), inputs, call.name);
}

// Inputs: x (self-attention); x and memory; or x, memory and the memory's lengths.
graph::ValueId build_attention(const LayerCall& call) {
  const Shape& x = call.shape();
  if (x.size() != 3)
    fail(Code::invalid_argument, call.name, ": attention takes [N, positions, width], not ",
         shape_text(x));
  const Json options{{"heads", call.options.integer("heads")},
                     {"causal", call.options.boolean("causal")}};
  std::vector<graph::ValueId> parts;
  if (call.inputs.size() == 1) {
    parts = {project(call, "qkv", call.input(), 3 * x[2])};
  } else {
    const graph::ValueId memory = call.inputs[1];
    parts = {project(call, "query", call.input(), x[2]), project(call, "key", memory, x[2]),
             project(call, "value", memory, x[2])};
    if (call.inputs.size() == 3) parts.push_back(call.inputs[2]);
  }
  return project(call, "output", call.graph.add("attention", options, parts, call.name), x[2]);
}

}  // namespace

extern const LayerSpec dense_layer, embedding_layer, position_embedding_layer, attention_layer;
const LayerSpec dense_layer{"dense", "fully connected layer on the last axis", kDense, build_dense};
const LayerSpec embedding_layer{"embedding",
                                "a trained row for each symbol: i32 [N, ...] to [N, ..., width]",
                                kEmbedding, build_embedding};
const LayerSpec position_embedding_layer{"position_embedding",
                                         "adds a row for each position of [N, positions, width]",
                                         kPosition, build_position};
const LayerSpec attention_layer{
    "attention",
    "multi-head attention with its projections, on itself or on a second input (memory); a third "
    "gives the memory's lengths, i32 [N]",
    kAttention,
    build_attention,
    1,
    3};

}  // namespace etr::nn

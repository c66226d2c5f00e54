// Attention with its projections.
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "nn/layers/common.h"
#include "nn/rotary.h"

namespace etr::nn {
namespace {

constexpr OptionSpec kAttention[] = {
    {"heads", OptionType::integer, nullptr,
     "number of heads; they share the width equally unless head_dim is given", 1, 1024},
    {"causal", OptionType::boolean, "false",
     "each position attends only to itself and earlier positions"},
    kUseBias,
    kInit,
    {"kv_heads", OptionType::integer, "0",
     "number of heads for keys and values; each serves a group of adjacent query heads "
     "(grouped-query attention, Ainslie et al. 2023); 0: as many as heads",
     0, 1024},
    {"head_dim", OptionType::integer, "0", "features of a head; 0: width / heads", 0, 256, "", "",
     "head_width"},
    {"separate", OptionType::boolean, "false",
     "self-attention has separate parameters query, key and value instead of a joint qkv"},
    {"rotary_base", OptionType::number, "0",
     "base of the rotary position embedding (Su et al. 2021) of queries and keys, usually 10000; "
     "0: none",
     0, 1e12},
    {"rotary_scaling", OptionType::numbers, "[]",
     "scales down the slow rotations for longer contexts, as Llama 3.1 does: scale factor, low- "
     "and high-frequency factor, and the context length of the original training, such as [8, 1, "
     "4, 8192]",
     1e-6, 1e9},
};

struct Heads {
  int64_t queries, keys, width;
};

Heads heads_of(const LayerCall& call) {
  const int64_t heads = call.options.integer("heads"), kv = call.options.integer("kv_heads"),
                width = call.options.integer("head_dim"), features = call.shape()[2];
  if (width == 0 && features % heads != 0)
    fail(Code::invalid_argument, call.name, ": a width of ", features, " does not split into ",
         counted(heads, "head"), "; give 'head_dim' to choose the size of a head freely");
  return {heads, kv ? kv : heads, width ? width : features / heads};
}

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
  return add_product(call, name, Json::object(), std::move(inputs));
}

// Returns the table of the op `rotary`, [positions, head]: cosines, then sines.
graph::Initializer rotations(Rotary rotary, int64_t head) {
  return [=](std::span<float> out, Rng&) {
    const auto width = static_cast<size_t>(head);
    for (size_t i = 0; i < width / 2; ++i) {
      const double step = rotary_frequency(rotary, head, static_cast<int64_t>(i));
      for (size_t t = 0; t < out.size() / width; ++t) {
        out[t * width + i] = static_cast<float>(std::cos(static_cast<double>(t) * step));
        out[t * width + width / 2 + i] =
            static_cast<float>(std::sin(static_cast<double>(t) * step));
      }
    }
  };
}

// Rotates the first `heads` heads of x, if the options ask for it.
graph::ValueId rotate(const LayerCall& call, const char* part, graph::ValueId x, int64_t heads,
                      int64_t head) {
  const double base = call.options.number("rotary_base");
  const std::vector<double> scaling = call.options.numbers("rotary_scaling");
  if (!scaling.empty() && (base == 0 || scaling.size() != 4 || scaling[2] <= scaling[1]))
    fail(Code::invalid_argument, call.name,
         ": 'rotary_scaling' takes 4 numbers, the second below the third, beside a 'rotary_base'");
  if (base == 0) return x;
  if (head % 2 != 0)
    fail(Code::invalid_argument, call.name, ": heads of ", head,
         " elements cannot be rotated in pairs");
  graph::Graph& g = call.graph;
  const auto table = g.add_constant(cat(call.name, ".", part, ".rotations"), {g.shape(x)[1], head},
                                    rotations({base, scaling}, head));
  return g.add("rotary", {{"heads", heads}}, {x, table}, call.name);
}

// Inputs: x (self-attention); x and memory; or x, memory and the memory's lengths.
graph::ValueId build_attention(const LayerCall& call) {
  const Shape& x = call.shape();
  if (x.size() != 3)
    fail(Code::invalid_argument, call.name, ": attention takes [N, positions, width], not ",
         shape_text(x));
  const Heads heads = heads_of(call);
  const int64_t width = heads.queries * heads.width, kv_width = heads.keys * heads.width;
  Json options{{"heads", heads.queries}, {"causal", call.options.boolean("causal")}};
  if (heads.keys != heads.queries) options["kv_heads"] = heads.keys;
  std::vector<graph::ValueId> parts;
  if (call.inputs.size() == 1 && !call.options.boolean("separate")) {
    const auto qkv = project(call, "qkv", call.input(), width + 2 * kv_width);
    parts = {rotate(call, "qkv", qkv, heads.queries + heads.keys, heads.width)};
  } else {
    const graph::ValueId memory = call.inputs[call.inputs.size() > 1 ? 1 : 0];
    const auto query = project(call, "query", call.input(), width),
               key = project(call, "key", memory, kv_width),
               value = project(call, "value", memory, kv_width);
    parts = {rotate(call, "query", query, heads.queries, heads.width),
             rotate(call, "key", key, heads.keys, heads.width), value};
    if (call.inputs.size() == 3) parts.push_back(call.inputs[2]);
  }
  return project(call, "output", call.graph.add("attention", options, parts, call.name), x[2]);
}

}  // namespace

extern const LayerSpec attention_layer;
const LayerSpec attention_layer{
    "attention",
    "multi-head attention with its projections: self-attention, or with a second input (memory) "
    "cross-attention; a third input holds the lengths of the memory, i32 [N]",
    kAttention,
    build_attention,
    1,
    3};

}  // namespace etr::nn

// Options and functions that several layers share.
#pragma once

#include "core/json.h"
#include "nn/init.h"
#include "nn/layer.h"
#include "nn/lora.h"
#include "ops/unary.h"

namespace etr::nn {

inline constexpr OptionSpec kInit{"init",
                                  OptionType::string,
                                  "\"he\"",
                                  "initial weights: he: He normal; glorot: Glorot uniform; normal: "
                                  "standard deviation 0.02; zeros",
                                  0,
                                  0,
                                  "",
                                  "he|glorot|normal|zeros"};
inline constexpr OptionSpec kUseBias{"bias", OptionType::boolean, "true", "add a bias (fused)"};

inline constexpr OptionSpec kActivation{
    "activation",
    OptionType::string,
    "\"none\"",
    "activation applied to the result; relu is fused into the layer's kernel",
    0,
    0,
    "",
    ops::kUnaryOrNone};

// Returns whether the layer's own op applies the activation; otherwise activate() does.
inline bool fused_relu(const LayerCall& call) {
  return call.options.string("activation") == "relu";
}

// Returns `value` after the activation, unless the layer's op applies it.
graph::ValueId activate(const LayerCall& call, graph::ValueId value);
// Returns `value` after the activation, for layers whose op cannot apply it.
graph::ValueId activate_unfused(const LayerCall& call, graph::ValueId value);

// Returns {input, weight} and, if the options ask for it, a new bias.
std::vector<graph::ValueId> with_bias(const LayerCall& call, graph::ValueId input,
                                      graph::ValueId weight, int64_t channels);

// Adds an op `dense` on `inputs` (x, weight and perhaps a bias), and the adapter of the product
// `name` if the model's `lora` names it.
graph::ValueId add_product(const LayerCall& call, const std::string& name, Json options,
                           std::vector<graph::ValueId> inputs);

// Builds a layer that is a single op with the layer's options.
template <const char* const& op>
graph::ValueId build_plain(const LayerCall& call) {
  return call.graph.add(op, call.options.json(), call.inputs, call.name);
}

}  // namespace etr::nn

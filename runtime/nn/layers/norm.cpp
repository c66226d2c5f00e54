// Normalisations, dropout, bias.
#include "core/error.h"
#include "nn/layers/common.h"

namespace etr::nn {
namespace {

constexpr OptionSpec kEpsilon{"epsilon", OptionType::number, "1e-5", "added to the variance", 1e-12,
                              1};
constexpr OptionSpec kBatchNorm[] = {
    kEpsilon,
    {"momentum", OptionType::number, "0.9",
     "fraction of the running statistics that is kept in each step", 0, 1},
    {"gamma", OptionType::number, "1",
     "initial scale; 0 makes a residual branch start as the identity", -10, 10},
    kActivation,
};
constexpr OptionSpec kLayerNorm[] = {kEpsilon};
constexpr OptionSpec kGroupNorm[] = {
    {"groups", OptionType::integer, "32", "number of groups", 1, 1 << 16},
    kEpsilon,
    kActivation,
};

int64_t channels_of(const LayerCall& call) {
  if (call.shape().empty())  // a parameter of shape []
    fail(Code::invalid_argument, call.name, ": takes [..., channels], not a single number");
  return call.shape().back();
}

graph::ValueId parameter(const LayerCall& call, const char* name, double value) {
  return call.graph.add_parameter(cat(call.name, ".", name), {channels_of(call)},
                                  /*decay=*/false, constant(static_cast<float>(value)));
}

graph::ValueId build_batch_norm(const LayerCall& call) {
  graph::Graph& g = call.graph;
  const int64_t c = channels_of(call);
  const std::vector<graph::ValueId> inputs{
      call.input(), parameter(call, "gamma", call.options.number("gamma")),
      parameter(call, "beta", 0), g.add_state(call.name + ".running_mean", {c}, constant(0)),
      g.add_state(call.name + ".running_var", {c}, constant(1))};
  const Json options{{"epsilon", call.options.number("epsilon")},
                     {"momentum", call.options.number("momentum")},
                     {"relu", fused_relu(call)}};
  return activate(call, g.add("batch_norm", options, inputs, call.name));
}

graph::ValueId build_layer_norm(const LayerCall& call) {
  return call.graph.add("layer_norm", call.options.json(),
                        {call.input(), parameter(call, "gamma", 1), parameter(call, "beta", 0)},
                        call.name);
}

graph::ValueId build_rms_norm(const LayerCall& call) {
  return call.graph.add("layer_norm", call.options.json(),
                        {call.input(), parameter(call, "gamma", 1)}, call.name);
}

graph::ValueId build_group_norm(const LayerCall& call) {
  const Json options{{"groups", call.options.integer("groups")},
                     {"epsilon", call.options.number("epsilon")}};
  const auto y = call.graph.add(
      "group_norm", options,
      {call.input(), parameter(call, "gamma", 1), parameter(call, "beta", 0)}, call.name);
  return activate_unfused(call, y);
}

graph::ValueId build_bias(const LayerCall& call) {
  return call.graph.add("bias", Json::object(), {call.input(), parameter(call, "bias", 0)},
                        call.name);
}

constexpr OptionSpec kDropout[] = {
    {"rate", OptionType::number, "0.5", "probability that an element is set to zero", 0, 0.99},
};
const char* const kDropoutOp = "dropout";

}  // namespace

extern const LayerSpec batch_norm_layer, layer_norm_layer, rms_norm_layer, group_norm_layer,
    bias_layer, dropout_layer;
const LayerSpec batch_norm_layer{"batch_norm", "batch normalisation over the last axis", kBatchNorm,
                                 build_batch_norm};
const LayerSpec layer_norm_layer{"layer_norm", "layer normalisation over the last axis", kLayerNorm,
                                 build_layer_norm};
const LayerSpec rms_norm_layer{"rms_norm", "normalisation of the last axis by its root mean square",
                               kLayerNorm, build_rms_norm};
const LayerSpec group_norm_layer{"group_norm",
                                 "normalisation over groups of channels (last axis) of each sample",
                                 kGroupNorm, build_group_norm};
const LayerSpec bias_layer{"bias", "adds a trainable vector along the last axis", {}, build_bias};
const LayerSpec dropout_layer{"dropout", "sets random elements to zero in training", kDropout,
                              build_plain<kDropoutOp>};

}  // namespace etr::nn

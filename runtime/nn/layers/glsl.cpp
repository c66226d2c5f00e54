// A layer whose function and gradients the user writes in GLSL.
#include "core/error.h"
#include "nn/layers/common.h"

namespace etr::nn {
namespace {

constexpr OptionSpec kGlsl[] = {
    {"source", OptionType::string, nullptr,
     "GLSL: float forward(uint i) returns element i of the output; float gradient0(uint i), "
     "gradient1, ... return element i of the loss's gradient with respect to that input. They read "
     "x0[], x1[], ... (the gradients also y[] and dy[]) and the constants COUNT (elements to "
     "write), COUNT_x0, ..., BATCH and WIDTH (last axis of x0)"},
    {"shape", OptionType::integers, "[]",
     "shape of the output without the batch axis; empty: that of x0", 1, 1e9},
    {"weight", OptionType::integers, "[]",
     "shape of a trainable weight, which follows the other inputs; empty: none", 1, 1e9},
    kInit,
};

graph::ValueId build_glsl(const LayerCall& call) {
  std::vector<graph::ValueId> inputs = call.inputs;
  const std::vector<int64_t> weight = call.options.integers("weight");
  if (!weight.empty()) {
    const Shape shape(weight.begin(), weight.end());
    const int64_t fan_in = element_count(shape) / shape.back();
    inputs.push_back(call.graph.add_parameter(
        call.name + ".weight", shape, /*decay=*/true,
        weight_initializer(call.options.string("init"), fan_in, shape.back())));
  }
  if (inputs.size() > 4)
    fail(Code::invalid_argument, call.name, ": a glsl layer takes four inputs, its weight counted");
  return call.graph.add(
      "glsl",
      {{"source", call.options.string("source")}, {"shape", call.options.integers("shape")}},
      inputs, call.name);
}

}  // namespace

extern const LayerSpec glsl_layer;
const LayerSpec glsl_layer{
    "glsl", "a function of your own in GLSL, with its gradients", kGlsl, build_glsl, 1, 4};

}  // namespace etr::nn

// A layer whose function and gradients the user writes in GLSL.
#include "core/error.h"
#include "nn/layers/common.h"

namespace etr::nn {
namespace {

constexpr OptionSpec kGlsl[] = {
    {"source", OptionType::string, nullptr,
     "GLSL: float forward(uint i) gives element i of the output; float gradient0(uint i), "
     "gradient1, "
     "... element i of the loss' gradient by that input. They read x0[], x1[], ... (the gradients "
     "also "
     "y[], dy[]), and COUNT (of what is written), COUNT_x0, ..., BATCH and WIDTH (x0's last axis)"},
    {"shape", OptionType::integers, "[]", "shape of the output without the batch axis; empty: x0's",
     1, 1e9},
    {"weight", OptionType::integers, "[]",
     "shape of a trained weight, the input after the last; empty: none", 1, 1e9},
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
    "glsl", "a function of one's own, in GLSL, with its gradients", kGlsl, build_glsl, 1, 4};

}  // namespace etr::nn

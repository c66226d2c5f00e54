// A tensor of its own, for other layers to read.
#include "nn/layers/common.h"

namespace etr::nn {
namespace {

constexpr OptionSpec kParameter[] = {
    {"shape", OptionType::integers, nullptr,
     "shape of the tensor; has no batch axis unless another layer needs one of length 1", 1, 1e9},
    {"value", OptionType::number, "0", "initial value of each element", -1e30, 1e30},
    {"trainable", OptionType::boolean, "true",
     "whether training changes it; otherwise it is a constant, which is part of checkpoints", 0, 0,
     "", "", "trained"},
};

graph::ValueId build_parameter(const LayerCall& call) {
  const std::vector<int64_t> extents = call.options.integers("shape");
  const Shape shape(extents.begin(), extents.end());
  const auto value = constant(static_cast<float>(call.options.number("value")));
  const std::string name = call.name + ".weight";
  return call.options.boolean("trainable")
             ? call.graph.add_parameter(name, shape, /*decay=*/false, value)
             : call.graph.add_state(name, shape, value);
}

}  // namespace

extern const LayerSpec parameter_layer;
const LayerSpec parameter_layer{
    "parameter",
    "a tensor that does not depend on the input, for layers that read it by name, such as add, "
    "multiply and concat; it does not read the layer before it",
    kParameter, build_parameter};

}  // namespace etr::nn

// Functions of one element: y = f(x). The formulas stand in shaders/unary.comp.
#include "core/error.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}};
constexpr OptionSpec kOptions[] = {
    {"function", OptionType::string, nullptr, "what is computed of each element", 0, 0, "",
     "relu|leaky_relu|elu|gelu|gelu_tanh|silu|sigmoid|tanh|softplus|exp|log|sqrt|square|abs|"
     "negate"},
    {"alpha", OptionType::number, "0.01", "slope of leaky_relu, scale of elu", 0, 100},
};

// In the order of the shader's constants.
uint32_t kind_of(const OpCall& call) {
  const std::string names = kOptions[0].choices, name = call.options.string("function");
  uint32_t kind = 0;
  for (size_t at = 0; names.substr(at, names.find('|', at) - at) != name; ++kind)
    at = names.find('|', at) + 1;
  return kind;
}

struct Push {
  uint32_t count;
  float alpha;
};

Push push_of(const OpCall& call) {
  return {call.output.count(), static_cast<float>(call.options.number("alpha"))};
}

OpShapes shapes(const Options&, const std::vector<Shape>& in) { return {in[0], {}}; }

void forward(const OpCall& call, Emitter& emit) {
  emit.for_each("unary", {reads(call.inputs[0]), writes(call.output)}, push_of(call),
                call.output.count(), {kind_of(call)});
}

void backward(const OpCall& call, Emitter& emit) {
  emit.for_each("unary_grad",
                {reads(call.inputs[0]), reads(call.output), reads(call.output_grad),
                 writes(call.input_grads[0])},
                push_of(call), call.output.count(), {kind_of(call)});
}

}  // namespace

extern const OpSpec unary_op;
const OpSpec unary_op{"unary",  "a function of each element", kInputs, kOptions, shapes,
                      forward, backward};

}  // namespace etr::ops

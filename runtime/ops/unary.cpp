// Functions of one element: y = f(x). Formulas in shaders/unary.comp.
#include "ops/unary.h"

#include <cmath>
#include <map>
#include <numbers>

#include "core/error.h"
#include "ops/onnx_node.h"
#include "ops/pointwise.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}};
constexpr OptionSpec kOptions[] = {
    {"function", OptionType::string, nullptr, "the function", 0, 0, "", kUnaryFunctions},
    {"alpha", OptionType::number, "0.01", "slope of leaky_relu for negative inputs, scale of elu",
     0, 100},
};

// Attaches to the last dispatch what it computes. Exponentials and the like are not worth computing
// twice.
void set_fusible(Emitter& emit, const OpCall& call, const char* name, uint32_t operands,
                 std::string body) {
  const std::string function = call.options.string("function");
  auto note =
      std::make_shared<Pointwise>(*pointwise(name, call.output.count(), operands, std::move(body)));
  note->cheap = function == "relu" || function == "leaky_relu" || function == "square" ||
                function == "abs" || function == "negate";
  emit.set_fusible(note);
}

uint32_t kind_of(const OpCall& call) {
  static constexpr const char* kNames[] = {
#define ETR_UNARY(name) #name,
#include "ops/unary_list.inc"
#undef ETR_UNARY
  };
  const std::string name = call.options.string("function");
  return static_cast<uint32_t>(std::find(std::begin(kNames), std::end(kNames), name) - kNames);
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
  set_fusible(emit, call, "unary", 1,
              cat("$r = unary(", kind_of(call), "u, ", glsl(push_of(call).alpha), ", $0);"));
}

void backward(const OpCall& call, Emitter& emit) {
  emit.for_each("unary_grad",
                {reads(call.inputs[0]), reads(call.output), reads(call.output_grad),
                 writes(call.input_grads[0])},
                push_of(call), call.output.count(), {kind_of(call)});
  set_fusible(
      emit, call, "unary_grad", 3,
      cat("$r = unary_slope(", kind_of(call), "u, ", glsl(push_of(call).alpha), ", $0, $1) * $2;"));
}

std::string to_onnx(OnnxNode& node) {
  const std::string f = node.options().string("function");
  const OnnxName x = node.in(0);
  const double alpha = node.options().number("alpha");
  const std::map<std::string, const char*> plain{
      {"relu", "Relu"},         {"sigmoid", "Sigmoid"}, {"tanh", "Tanh"},
      {"softplus", "Softplus"}, {"exp", "Exp"},         {"log", "Log"},
      {"sqrt", "Sqrt"},         {"abs", "Abs"},         {"negate", "Neg"}};
  if (const auto it = plain.find(f); it != plain.end()) return node.emit(it->second, {x});
  if (f == "leaky_relu") return node.emit("LeakyRelu", {x}, OnnxAttributes().real("alpha", alpha));
  if (f == "elu") return node.emit("Elu", {x}, OnnxAttributes().real("alpha", alpha));
  if (f == "square") return node.emit("Mul", {x, x});
  if (f == "silu") return node.emit("Mul", {x, node.emit("Sigmoid", {x})});
  // x times a factor between 0 and 1.
  OnnxName inner;
  if (f == "gelu") {
    inner = node.emit("Erf", {node.emit("Mul", {x, node.number(std::sqrt(0.5))})});
  } else {  // gelu_tanh
    const OnnxName cube =
        node.emit("Mul", {node.emit("Mul", {x, x}), node.emit("Mul", {x, node.number(0.044715)})});
    inner = node.emit("Tanh", {node.emit("Mul", {node.emit("Add", {x, cube}),
                                                 node.number(std::sqrt(2 / std::numbers::pi))})});
  }
  return node.emit(
      "Mul", {node.emit("Mul", {x, node.number(0.5)}), node.emit("Add", {inner, node.number(1)})});
}

}  // namespace

extern const OpSpec unary_op;
const OpSpec unary_op{
    .name = "unary",
    .doc = "applies a function to each element",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .axes = AxesRule::elements,
    .slices = SliceRule::elements,
};

}  // namespace etr::ops

// An operation that its user writes in GLSL: a function of the place of one element, and its gradients.
//
//   float forward(uint i) { return x0[i] * x1[i % WIDTH]; }        y[i]
//   float gradient0(uint i) { return dy[i] * x1[i % WIDTH]; }      dloss / dx0[i]
//
// Each becomes a kernel with one invocation an element, so results are the same from run to run.
#include <array>

#include "core/error.h"
#include "gpu/glsl.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x0"},
                               {"x1", InputRole::differentiable, true},
                               {"x2", InputRole::differentiable, true},
                               {"x3", InputRole::differentiable, true}};
constexpr OptionSpec kOptions[] = {
    {"source", OptionType::string, nullptr,
     "GLSL: float forward(uint i), and float gradient0(uint i), gradient1, ... for the inputs that "
     "shall be differentiated"},
    {"shape", OptionType::integers, "[]", "shape of the output without the batch axis; empty: x0's",
     1, 1e9},
};

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  const std::vector<int64_t> shape = options.integers("shape");
  if (in[0].empty()) fail(Code::invalid_argument, "glsl: x0 has no batch axis");
  Shape out{in[0][0]};
  for (const int64_t extent : shape) out.push_back(extent);
  return {shape.empty() ? in[0] : out, {}};
}

// The shader around the user's functions. Which of them is called, and what it reads: x0 .. and y for all,
// dy for gradients; the last buffer is written.
std::string shader_of(const OpCall& call, const std::string& function, const Shape& written) {
  std::string text = "#version 450\nlayout(local_size_x = 64) in;\n";
  const auto constant = [&](const std::string& name, int64_t value) {
    text += cat("const uint ", name, " = ", value, "u;\n");
  };
  int binding = 0;
  const auto buffer = [&](const std::string& name, const char* access, const DeviceTensor& of) {
    text += cat("layout(std430, binding = ", binding++, ") ", access, " buffer ", name,
                "_block_ { float ", name, "[]; };\n");
    constant("COUNT_" + name, of.count());
  };
  for (size_t i = 0; i < call.inputs.size(); ++i) buffer(cat("x", i), "readonly", call.inputs[i]);
  if (function != "forward") {
    buffer("y", "readonly", call.output);
    buffer("dy", "readonly", call.output_grad);
  } else {  // what gradients read has to be there when they are not called
    text += "float y[1], dy[1];\n";
    constant("COUNT_y", call.output.count());
    constant("COUNT_dy", call.output.count());
  }
  text += cat("layout(std430, binding = ", binding,
              ") writeonly buffer out_block_ { float out_[]; };\n");
  constant("BATCH", call.inputs[0].shape[0]);
  constant("WIDTH", call.inputs[0].shape.back());
  constant("COUNT", element_count(written));
  text += cat("#line 1\n", call.options.string("source"), "\n");
  text +=
      cat("void main() {\n  for (uint i_ = gl_GlobalInvocationID.x; i_ < COUNT; i_ += 64u * "
          "gl_NumWorkGroups.x) out_[i_] = ",
          function, "(i_);\n}\n");
  return text;
}

void emit_function(Emitter& emit, const OpCall& call, const std::string& function,
                   const DeviceTensor& target) {
  std::vector<gpu::Binding> bindings;
  for (const DeviceTensor& input : call.inputs) bindings.push_back(reads(input));
  if (function != "forward") {
    bindings.push_back(reads(call.output));
    bindings.push_back(reads(call.output_grad));
  }
  bindings.push_back(writes(target));
  emit.for_each_from_source(shader_of(call, function, target.shape), std::move(bindings),
                            target.count());
}

// Whether the source defines a function of that name; a mention in a comment only makes the compiler say so.
bool defines(const OpCall& call, const std::string& function) {
  return call.options.string("source").find(function) != std::string::npos;
}

void forward(const OpCall& call, Emitter& emit) {
  emit_function(emit, call, "forward", call.output);
}

void backward(const OpCall& call, Emitter& emit) {
  for (size_t i = 0; i < call.input_grads.size(); ++i) {
    if (!call.input_grads[i]) continue;
    const std::string function = cat("gradient", i);
    if (!defines(call, function))
      fail(Code::invalid_argument, "glsl: the source has no 'float ", function,
           "(uint i)', and what stands before this layer is trained");
    emit_function(emit, call, function, call.input_grads[i]);
  }
}

}  // namespace

extern const OpSpec glsl_op;
const OpSpec glsl_op{
    "glsl",  "an operation written in GLSL, with its gradients", kInputs, kOptions, shapes, forward,
    backward};

}  // namespace etr::ops

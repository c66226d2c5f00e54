// An operation that the user writes in GLSL: a function of the index of one element, and its
// gradients.
//
//   float forward(uint i) { return x0[i] * x1[i % WIDTH]; }        y[i]
//   float gradient0(uint i) { return dy[i] * x1[i % WIDTH]; }      dloss / dx0[i]
//
// Each becomes a kernel with one invocation per element, so results are the same from run to run.
#include "core/error.h"
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
     "need gradients"},
    {"shape", OptionType::integers, "[]",
     "shape of the output without the batch axis; empty: that of x0", 1, 1e9},
};

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  const std::vector<int64_t> shape = options.integers("shape");
  if (in[0].empty()) fail(Code::invalid_argument, "glsl: x0 has no batch axis");
  Shape out{in[0][0]};
  for (const int64_t extent : shape) out.push_back(extent);
  return {shape.empty() ? in[0] : out, {}};
}

struct Named {
  std::string name;
  DeviceTensor tensor;
};

// Returns the tensors that a function reads, in the order of its bindings: the inputs, and for a
// gradient also y and dy.
std::vector<Named> read_by(const OpCall& call, bool is_gradient) {
  std::vector<Named> out;
  for (size_t i = 0; i < call.inputs.size(); ++i) out.push_back({cat("x", i), call.inputs[i]});
  if (is_gradient) {
    out.push_back({"y", call.output});
    out.push_back({"dy", call.output_grad});
  }
  return out;
}

// Returns the shader around the user's functions. It calls `function` and writes the last buffer.
std::string shader_of(const OpCall& call, const std::string& function,
                      const std::vector<Named>& read, bool is_gradient, const Shape& written) {
  std::string text = "#version 450\nlayout(local_size_x = 64) in;\n";
  const auto constant = [&](const std::string& name, int64_t value) {
    text += cat("const uint ", name, " = ", value, "u;\n");
  };
  for (size_t i = 0; i < read.size(); ++i) {
    text += cat("layout(std430, binding = ", i, ") readonly buffer ", read[i].name,
                "_block_ { float ", read[i].name, "[]; };\n");
    constant("COUNT_" + read[i].name, read[i].tensor.count());
  }
  if (!is_gradient) {  // gradient functions must compile even if they are not called
    text += "float y[1], dy[1];\n";
    constant("COUNT_y", call.output.count());
    constant("COUNT_dy", call.output.count());
  }
  text += cat("layout(std430, binding = ", read.size(),
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

void emit_function(Emitter& emit, const OpCall& call, const std::string& function, bool is_gradient,
                   const DeviceTensor& target) {
  const std::vector<Named> read = read_by(call, is_gradient);
  std::vector<gpu::Binding> bindings;
  for (const Named& one : read) bindings.push_back(reads(one.tensor));
  bindings.push_back(writes(target));
  emit.for_each_from_source(shader_of(call, function, read, is_gradient, target.shape),
                            std::move(bindings), target.count());
}

// Returns whether the source defines such a function. If only a comment mentions the name, the
// compiler reports it.
bool defines(const OpCall& call, const std::string& function) {
  return call.options.string("source").find(function) != std::string::npos;
}

void forward(const OpCall& call, Emitter& emit) {
  emit_function(emit, call, "forward", /*is_gradient=*/false, call.output);
}

void backward(const OpCall& call, Emitter& emit) {
  for (size_t i = 0; i < call.input_grads.size(); ++i) {
    if (!call.input_grads[i]) continue;
    const std::string function = cat("gradient", i);
    if (!defines(call, function))
      fail(Code::invalid_argument, "glsl: the source has no 'float ", function,
           "(uint i)', and layers before this one are trained, which needs it");
    emit_function(emit, call, function, /*is_gradient=*/true, call.input_grads[i]);
  }
}

}  // namespace

extern const OpSpec glsl_op;
const OpSpec glsl_op{
    .name = "glsl",
    .doc = "an operation written in GLSL, with its gradients",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .axes = AxesRule::parts,
};

}  // namespace etr::ops

// Arithmetic on two tensors, with broadcasting by NumPy's rules.
#include "core/error.h"
#include "ops/gemm.h"
#include "ops/onnx_node.h"
#include "ops/pointwise.h"
#include "ops/reduction.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"a"}, {"b"}};
constexpr OptionSpec kOptions[] = {
    {"function", OptionType::string, nullptr, "the function", 0, 0, "",
     "add|subtract|multiply|divide|maximum|minimum"},
    {"relu", OptionType::boolean, "false", "apply ReLU to the result, fused"},
};

// Same order as the shader's constants.
uint32_t kind_of(const OpCall& call) {
  const std::string name = call.options.string("function");
  return name == "add"        ? 0
         : name == "subtract" ? 1
         : name == "multiply" ? 2
         : name == "divide"   ? 3
         : name == "maximum"  ? 4
                              : 5;
}

int64_t extent(const Shape& shape, size_t rank, size_t axis) {
  const size_t missing = rank - shape.size();
  return axis < missing ? 1 : shape[axis - missing];
}

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  const size_t rank = std::max(in[0].size(), in[1].size());
  Shape out;
  for (size_t i = 0; i < rank; ++i) {
    const int64_t a = extent(in[0], rank, i), b = extent(in[1], rank, i);
    if (a != b && a != 1 && b != 1)
      fail(Code::invalid_argument, options.string("function"), ": shapes ", shape_text(in[0]),
           " and ", shape_text(in[1]), " do not broadcast: ", a, " against ", b);
    out.push_back(std::max(a, b));
  }
  return {out, {}};
}

struct Push {
  uint32_t rows, d1, d2, d3, slices, count;
  uint32_t a[4], b[4];
};

// Neighbouring axes that are broadcast alike are merged into one; at most four may remain.
Push push_of(const OpCall& call, const Emitter& emit) {
  const Shape &a = call.inputs[0].shape, &b = call.inputs[1].shape, &y = call.output.shape;
  struct Axis {
    int64_t size;
    bool in_a, in_b;
  };
  std::vector<Axis> axes;
  for (size_t i = 0; i < y.size(); ++i) {
    if (y[i] == 1) continue;
    const Axis axis{y[i], extent(a, y.size(), i) != 1, extent(b, y.size(), i) != 1};
    if (!axes.empty() && axes.back().in_a == axis.in_a && axes.back().in_b == axis.in_b)
      axes.back().size *= axis.size;
    else
      axes.push_back(axis);
  }
  if (axes.size() > 4)
    fail(Code::unsupported, "shapes ", shape_text(a), " and ", shape_text(b),
         " broadcast along too many separate axes (", axes.size(), "; at most 4)");
  // Cut one long axis into rows, to split them among workgroups; the last row may be incomplete.
  if (axes.size() == 1) {
    const Axis whole = axes[0];
    axes = {{(whole.size + 63) / 64, whole.in_a, whole.in_b}, {64, whole.in_a, whole.in_b}};
  }
  while (axes.size() < 4) axes.insert(axes.begin(), {1, false, false});
  Push push{};
  uint32_t stride_a = 1, stride_b = 1;
  for (size_t i = 4; i-- > 0;) {
    push.a[i] = axes[i].in_a ? stride_a : 0;
    push.b[i] = axes[i].in_b ? stride_b : 0;
    if (axes[i].in_a) stride_a *= static_cast<uint32_t>(axes[i].size);
    if (axes[i].in_b) stride_b *= static_cast<uint32_t>(axes[i].size);
  }
  push.d1 = static_cast<uint32_t>(axes[1].size);
  push.d2 = static_cast<uint32_t>(axes[2].size);
  push.d3 = static_cast<uint32_t>(axes[3].size);
  push.rows = static_cast<uint32_t>(axes[0].size) * push.d1 * push.d2;
  push.slices = row_slices(*emit.device(), push.rows, push.d3);
  push.count = call.output.count();
  return push;
}

// Returns how an input lies along the result; nothing if it is neither whole, repeated along whole
// rows, nor one number.
std::optional<Pointwise::Along> along(const DeviceTensor& input, const uint32_t (&strides)[4],
                                      const Push& push) {
  if (input.count() == push.count) return Pointwise::Along::elements;
  if (input.count() == 1) return Pointwise::Along::nothing;
  if (input.count() == push.d3 && strides[3] == 1) return Pointwise::Along::columns;
  return std::nullopt;
}

// Attaches to the last dispatch what it computes from a, b and, in a gradient, dy.
void set_fusible(Emitter& emit, const OpCall& call, const Push& push, const char* name,
                 uint32_t operands, std::string body,
                 Pointwise::Form form = Pointwise::Form::other) {
  const auto a = along(call.inputs[0], push.a, push), b = along(call.inputs[1], push.b, push);
  if (!a || !b) return;
  const bool columns = *a == Pointwise::Along::columns || *b == Pointwise::Along::columns;
  auto note =
      std::make_shared<Pointwise>(*pointwise(name, push.count, operands, std::move(body), form));
  note->operands[0].along = *a, note->operands[1].along = *b;
  note->columns = columns ? push.d3 : 0;
  if (columns || call.inputs[0].shape != call.inputs[1].shape) note->form = Pointwise::Form::other;
  emit.set_fusible(note);
}

void forward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call, emit);
  const uint32_t relu = call.options.boolean("relu");
  if (call.inputs[0].shape == call.inputs[1].shape)
    emit.for_each("binary_same",
                  {reads(call.inputs[0]), reads(call.inputs[1]), writes(call.output)}, push,
                  push.count, {0, kind_of(call), relu});
  else
    emit.for_channels("binary", {reads(call.inputs[0]), reads(call.inputs[1]), writes(call.output)},
                      push, push.d3, push.slices, 1, {kind_of(call), relu});
  const bool sum = kind_of(call) == 0;
  if (relu)
    set_fusible(emit, call, push, "binary", 2,
                cat("$r = relu_of(binary(", kind_of(call), "u, $0, $1));"),
                sum ? Pointwise::Form::add_relu : Pointwise::Form::other);
  else
    set_fusible(emit, call, push, "binary", 2, cat("$r = binary(", kind_of(call), "u, $0, $1);"),
                sum ? Pointwise::Form::add : Pointwise::Form::other);
}

void backward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call, emit);
  const uint32_t kind = kind_of(call);
  const char* shaders[] = {"binary_grad_a", "binary_grad_b"};
  const DeviceTensor dy = emit_linear_grad(emit, call);
  for (size_t i = 0; i < 2; ++i) {
    const DeviceTensor& target = call.input_grads[i];
    if (!target) continue;
    const bool passes_through = kind == 0 || (kind == 1 && i == 0);
    if (passes_through) {
      emit_sum_to(emit, dy, target);
      continue;
    }
    const bool whole = target.shape == call.output.shape;
    const DeviceTensor full = whole ? target : emit.scratch(call.output.shape);
    emit.for_channels(shaders[i],
                      {reads(call.inputs[0]), reads(call.inputs[1]), reads(dy), writes(full)}, push,
                      push.d3, push.slices, 1, {kind});
    set_fusible(emit, call, push, shaders[i], 3,
                cat("$r = binary_slope_", i == 0 ? "a" : "b", "(", kind, "u, $0, $1) * $2;"));
    if (!whole) emit_sum_to(emit, full, target);
  }
}

std::string to_onnx(OnnxNode& node) {
  const std::string f = node.options().string("function");
  const char* op = f == "add"        ? "Add"
                   : f == "subtract" ? "Sub"
                   : f == "multiply" ? "Mul"
                   : f == "divide"   ? "Div"
                   : f == "maximum"  ? "Max"
                                     : "Min";
  return node.relu_where(node.emit(op, {node.in(0), node.in(1)}));
}

}  // namespace

extern const OpSpec binary_op;
const OpSpec binary_op{
    .name = "binary",
    .doc = "arithmetic on two tensors",
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

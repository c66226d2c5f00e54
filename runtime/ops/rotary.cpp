// Rotary position embedding; see shaders/rotary.comp for the formulas.
#include "core/error.h"
#include "core/text.h"
#include "ops/gemm.h"
#include "ops/onnx_node.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}, {"table", InputRole::constant}};
constexpr OptionSpec kOptions[] = {
    {"heads", OptionType::integer, nullptr,
     "number of heads to rotate, from the start of each row; the rest is copied", 1, 4096},
};

struct Push {
  uint32_t rows, channels, slices, positions, rotated;
  float direction;  // 1; for the gradient -1
};

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  require_rank("rotary", "x", in[0], 3, "[N, positions, width]");
  require_rank("rotary", "table", in[1], 2, "[positions, head]");
  const int64_t heads = options.integer("heads"), head = in[1][1];
  if (in[1][0] != in[0][1])
    fail(Code::invalid_argument, "rotary: the table has ", counted(in[1][0], "position"),
         ", and x is ", shape_text(in[0]));
  if (head % 2 != 0 || heads * head > in[0][2])
    fail(Code::invalid_argument, "rotary: a width of ", in[0][2], " does not hold ", heads,
         " heads of ", head, ", which must be even");
  return {in[0], {}};
}

void emit_rotation(const OpCall& call, Emitter& emit, const DeviceTensor& from,
                   const DeviceTensor& to, float direction) {
  const Shape &shape = call.output.shape, &table = call.inputs[1].shape;
  Push push{};
  push.rows = static_cast<uint32_t>(shape[0] * shape[1]);
  push.channels = static_cast<uint32_t>(shape[2]);
  push.slices = row_slices(*emit.device(), push.rows, push.channels);
  push.positions = static_cast<uint32_t>(shape[1]);
  push.rotated = static_cast<uint32_t>(call.options.integer("heads") * table[1]);
  push.direction = direction;
  emit.for_channels("rotary", {reads(from), reads(call.inputs[1]), writes(to)}, push, push.channels,
                    push.slices, 1, {static_cast<uint32_t>(table[1])});
}

void forward(const OpCall& call, Emitter& emit) {
  emit_rotation(call, emit, call.inputs[0], call.output, 1);
}

void backward(const OpCall& call, Emitter& emit) {
  if (call.input_grads[0]) emit_rotation(call, emit, call.output_grad, call.input_grads[0], -1);
}

std::string to_onnx(OnnxNode& node) {
  const Shape x = node.shape_in(0), table = node.shape_in(1);
  const int64_t heads = node.options().integer("heads"), head = table[1], half = head / 2;
  const auto columns = [&](const OnnxName& of, int64_t begin, int64_t end, int64_t axis) {
    return node.emit("Slice",
                     {of, node.integers({begin}), node.integers({end}), node.integers({axis})});
  };
  const auto angles = [&](int64_t begin) {
    return node.reshape(columns(node.in(1), begin, begin + half, 1), {x[1], 1, half});
  };
  const OnnxName cosines = angles(0), sines = angles(half);
  const OnnxName by_head =
      node.reshape(columns(node.in(0), 0, heads * head, 2), {0, 0, heads, head});
  const OnnxName a = columns(by_head, 0, half, 3), b = columns(by_head, half, head, 3);
  const auto product = [&](const OnnxName& of, const OnnxName& by) {
    return node.emit("Mul", {of, by});
  };
  const OnnxName turned =
      node.reshape(node.emit("Concat",
                             {node.emit("Sub", {product(a, cosines), product(b, sines)}),
                              node.emit("Add", {product(b, cosines), product(a, sines)})},
                             OnnxAttributes().integer("axis", -1)),
                   {0, x[1], heads * head});
  if (heads * head == x[2]) return turned;
  return node.emit("Concat", {turned, columns(node.in(0), heads * head, x[2], 2)},
                   OnnxAttributes().integer("axis", -1));
}

}  // namespace

extern const OpSpec rotary_op;
const OpSpec rotary_op{
    .name = "rotary",
    .doc = "rotary position embedding of heads",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .axes = AxesRule::new_rows,
};

}  // namespace etr::ops

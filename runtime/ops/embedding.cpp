// Looks up rows of a table: y[..., k] = w[ids[...], k].
#include "core/error.h"
#include "ops/onnx_node.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"w"}, {"ids", InputRole::constant, false, DType::i32}};

constexpr OptionSpec kOptions[] = {
    {"all", OptionType::integer, "0",
     "entries of the table that w is a slice of; 0: w is the whole table", 0, 1e9},
    {"begin", OptionType::integer, "0", "first entry of the slice; indices outside it give 0", 0,
     1e9},
};

struct Push {
  uint32_t rows, entries, c, first, all;
};

OpShapes shapes(const Options&, const std::vector<Shape>& in) {
  require_rank("embedding", "w", in[0], 2, "[entries, width]");
  Shape out = in[1];
  out.push_back(in[0][1]);
  return {out, {}};
}

Push push_of(const OpCall& call) {
  const Shape& w = call.inputs[0].shape;
  const auto all = static_cast<uint32_t>(call.options.integer("all"));
  const auto entries = static_cast<uint32_t>(w[0]);
  return {call.inputs[1].count(), entries, static_cast<uint32_t>(w[1]),
          static_cast<uint32_t>(call.options.integer("begin")), all ? all : entries};
}

void forward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  emit.for_channels("embedding",
                    {reads(call.inputs[0]), reads(call.inputs[1]), writes(call.output)}, push,
                    push.c, std::min(push.rows, kMostGroups));
}

void backward(const OpCall& call, Emitter& emit) {
  if (!call.input_grads[0]) return;
  const Push push = push_of(call);
  const DeviceTensor order = emit.scratch({push.rows}), begin = emit.scratch({push.entries + 1});
  const DeviceTensor& ids = call.inputs[1];
  // Of embedding_grad, if all rows have ids of the same invocation.
  emit.require_iterations(uint64_t{push.rows} + 2 * gpu::div_up(push.entries, kMostGroups));
  if (emit.device()->family() == gpu::KernelFamily::cpu) {
    const uint32_t most = std::max(push.rows, push.entries + 1);
    emit.require_iterations(Emitter::in_turn(most) * (uint64_t{2} + push.rows));
    emit.for_each("embedding_order", {reads(ids), writes(order)}, push, push.rows);
    emit.for_each("embedding_begin", {reads(ids), writes(begin)}, push, push.entries + 1);
  } else {
    emit.dispatch("embedding_order", {reads(ids), writes(order)}, push,
                  {std::min(gpu::div_up(push.rows, 8), kMostGroups), 1, 1});
    emit.for_each("embedding_begin", {reads(ids), reads(order), writes(begin)}, push,
                  push.entries + 1);
  }
  emit.for_channels(
      "embedding_grad",
      {reads(call.output_grad), reads(order), reads(begin), writes(call.input_grads[0])}, push,
      push.c, std::min(push.entries, kMostGroups));
}

std::string to_onnx(OnnxNode& node) {
  return node.emit("Gather", {node.in(0), node.in(1)}, OnnxAttributes().integer("axis", 0));
}

double operations(const Shape&) { return 0; }

}  // namespace

extern const OpSpec embedding_op;
const OpSpec embedding_op{
    .name = "embedding",
    .doc = "rows of a table by number",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .slices = SliceRule::entries,
    .operations = operations,
};

}  // namespace etr::ops

// Group normalisation; see shaders/group_norm.comp for the formulas.
#include "core/error.h"
#include "core/text.h"
#include "ops/gemm.h"
#include "ops/onnx_node.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"}, {"gamma"}, {"beta"}};
constexpr OptionSpec kOptions[] = {
    {"groups", OptionType::integer, "32", "number of groups", 1, 1 << 16},
    {"epsilon", OptionType::number, "1e-5", "added to the variance", 1e-12, 1},
};

struct Push {
  uint32_t n, pixels, c;
  float epsilon;
};

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  if (in[0].size() < 2) fail(Code::invalid_argument, "group_norm: x must have at least two axes");
  const int64_t c = in[0].back(), groups = options.integer("groups");
  if (c % groups != 0)
    fail(Code::invalid_argument, "group_norm: ", counted(c, "channel"), " do not split into ",
         groups, " groups");
  for (size_t i = 1; i < 3; ++i)
    if (in[i] != Shape{c})
      fail(Code::invalid_argument, "group_norm: ", kInputs[i].name, " is ", shape_text(in[i]),
           " but x ", shape_text(in[0]), " has ", counted(c, "channel"));
  return {in[0], {{in[0][0], groups, 2}}};
}

Push push_of(const OpCall& call) {
  const Shape& x = call.output.shape;
  const auto n = static_cast<uint32_t>(x[0]), c = static_cast<uint32_t>(x.back());
  return {n, call.output.count() / (n * c), c, static_cast<float>(call.options.number("epsilon"))};
}

uint32_t width_of(const OpCall& call) {
  return static_cast<uint32_t>(call.output.shape.back() / call.options.integer("groups"));
}

void forward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  const uint32_t width = width_of(call);
  emit.for_rows("group_norm",
                {reads(call.inputs[0]), reads(call.inputs[1]), reads(call.inputs[2]),
                 writes(call.output), writes(call.saved[0])},
                push, push.n * push.c / width, push.pixels * width, {width});
}

void backward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  const uint32_t width = width_of(call);
  const DeviceTensor &x = call.inputs[0], &dy = call.output_grad, &moments = call.saved[0];
  if (call.input_grads[0])
    emit.for_rows(
        "group_norm_grad_x",
        {reads(x), reads(call.inputs[1]), reads(dy), reads(moments), writes(call.input_grads[0])},
        push, push.n * push.c / width, push.pixels * width, {width});
  if (!call.input_grads[1] && !call.input_grads[2]) return;
  const DeviceTensor partial = emit.scratch({push.n, 2, push.c});
  const DeviceTensor sums = emit.scratch({2, push.c});  // dgamma, dbeta
  emit.require_iterations(gpu::div_up(push.pixels, 8) + 7);
  for_sample_runs(push.n, 1, [&](uint32_t first, uint32_t count) {
    const auto part = [&](const DeviceTensor& whole) { return samples_of(whole, first, count); };
    emit.for_channels(
        "group_norm_grad_sums",
        {reads(part(x)), reads(part(dy)), reads(part(moments)), writes(part(partial))}, push,
        push.c, count, 1, {width});
  });
  emit_sum_halves(emit, partial, sums, push.n, call.input_grads[1], call.input_grads[2]);
}

std::string to_onnx(OnnxNode& node) {
  const Shape x = node.shape_in(0);
  const int64_t groups = node.options().integer("groups"), c = x.back(),
                pixels = element_count(x) / (x[0] * c);
  const OnnxName split = node.reshape(node.in(0), {0, pixels, groups, c / groups});
  const auto mean_of = [&](const OnnxName& v) {
    return node.emit("ReduceMean", {v},
                     OnnxAttributes().integers("axes", {1, 3}).integer("keepdims", 1));
  };
  const OnnxName centred = node.emit("Sub", {split, mean_of(split)});
  const OnnxName variance = node.emit("Add", {mean_of(node.emit("Mul", {centred, centred})),
                                              node.number(node.options().number("epsilon"))});
  const OnnxName h =
      node.reshape(node.emit("Div", {centred, node.emit("Sqrt", {variance})}), with_free_batch(x));
  return node.emit("Add", {node.emit("Mul", {h, node.in(1)}), node.in(2)});
}

}  // namespace

extern const OpSpec group_norm_op;
const OpSpec group_norm_op{
    .name = "group_norm",
    .doc = "normalisation of each sample's groups of channels",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .axes = AxesRule::parts,
};

}  // namespace etr::ops

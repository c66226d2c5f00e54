// Batch normalisation over all axes but the last; see shaders/batch_norm.comp for the formulas.
#include "core/error.h"
#include "ops/gemm.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"},
                               {"gamma"},
                               {"beta"},
                               {"running_mean", InputRole::state},
                               {"running_var", InputRole::state}};
constexpr OptionSpec kOptions[] = {
    {"epsilon", OptionType::number, "1e-5", "added to the variance", 1e-12, 1},
    {"momentum", OptionType::number, "0.9", "share of the old running statistics kept each step", 0,
     1},
    {"relu", OptionType::boolean, "false", "apply ReLU to the result, fused"},
};

struct Push {
  uint32_t rows, c, slices, relu;
  float epsilon, momentum;
};

OpShapes shapes(const Options&, const std::vector<Shape>& in) {
  if (in[0].size() < 2) fail(Code::invalid_argument, "batch_norm: x must have at least two axes");
  const int64_t c = in[0].back();
  for (size_t i = 1; i < in.size(); ++i)
    if (in[i] != Shape{c})
      fail(Code::invalid_argument, "batch_norm: ", kInputs[i].name, " is ", shape_text(in[i]),
           " but x ", shape_text(in[0]), " has ", c, " channels");
  return {in[0], {{2, c}}};  // mean and inverse standard deviation
}

Push push_of(const OpCall& call) {
  const auto c = static_cast<uint32_t>(call.inputs[0].shape.back());
  const uint32_t rows = call.inputs[0].count() / c;
  return {rows,
          c,
          row_slices(rows),
          call.options.boolean("relu"),
          static_cast<float>(call.options.number("epsilon")),
          static_cast<float>(call.options.number("momentum"))};
}

void forward(const OpCall& call, Emitter& emit) {
  const DeviceTensor &x = call.inputs[0], &mean = call.inputs[3], &var = call.inputs[4];
  const Push push = push_of(call);
  if (call.recomputed) {  // saved[0] is still there
  } else if (call.training) {
    const DeviceTensor partial = emit.scratch({push.slices, 2, push.c});
    emit.for_channels("batch_norm_stats", {reads(x), writes(partial)}, push, push.c, push.slices);
    emit.for_each("batch_norm_merge",
                  {reads(partial), writes(call.saved[0]), updates(mean), updates(var)}, push,
                  push.c);
  } else {
    emit.for_each("batch_norm_fixed", {reads(mean), reads(var), writes(call.saved[0])}, push,
                  push.c);
  }
  emit.for_channels("batch_norm_apply",
                    {reads(x), reads(call.saved[0]), reads(call.inputs[1]), reads(call.inputs[2]),
                     writes(call.output)},
                    push, push.c, push.slices);
}

void backward(const OpCall& call, Emitter& emit) {
  const DeviceTensor &x = call.inputs[0], &gamma = call.inputs[1], &beta = call.inputs[2];
  const DeviceTensor& dy = call.output_grad;
  const Push push = push_of(call);
  const DeviceTensor partial = emit.scratch({push.slices, 2, push.c});
  const DeviceTensor sums = emit.scratch({2, push.c});  // dbeta, dgamma
  emit.for_channels(
      "batch_norm_grad_sums",
      {reads(x), reads(dy), reads(call.saved[0]), reads(gamma), reads(beta), writes(partial)}, push,
      push.c, push.slices);
  emit_sum_slices(emit, partial, sums, push.slices, 2 * push.c);
  emit_halves(emit, sums, call.input_grads[2], call.input_grads[1]);
  if (call.input_grads[0])
    emit.for_channels("batch_norm_grad_x",
                      {reads(x), reads(dy), reads(call.saved[0]), reads(gamma), reads(beta),
                       reads(sums), writes(call.input_grads[0])},
                      push, push.c, push.slices);
}

}  // namespace

extern const OpSpec batch_norm_op;
const OpSpec batch_norm_op{
    "batch_norm", "batch normalisation with optional ReLU", kInputs, kOptions, shapes, forward,
    backward};

}  // namespace etr::ops

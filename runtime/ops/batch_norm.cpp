// Batch normalisation over all axes but the last; see shaders/batch_norm.comp for the formulas.
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "ops/gemm.h"
#include "ops/onnx_node.h"
#include "ops/pointwise.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"x"},
                               {"gamma"},
                               {"beta"},
                               {"running_mean", InputRole::state},
                               {"running_var", InputRole::state}};
constexpr OptionSpec kOptions[] = {
    {"epsilon", OptionType::number, "1e-5", "added to the variance", 1e-12, 1},
    {"momentum", OptionType::number, "0.9",
     "fraction of the running statistics that is kept in each step", 0, 1},
    {"relu", OptionType::boolean, "false", "apply ReLU to the result, fused"},
};

struct Push {
  uint32_t rows, c, slices, relu;
  float epsilon, momentum;
  uint32_t slice_rows, parts;  // layout of partial moments or sums
};

OpShapes shapes(const Options&, const std::vector<Shape>& in) {
  if (in[0].size() < 2) fail(Code::invalid_argument, "batch_norm: x must have at least two axes");
  const int64_t c = in[0].back();
  for (size_t i = 1; i < in.size(); ++i)
    if (in[i] != Shape{c})
      fail(Code::invalid_argument, "batch_norm: ", kInputs[i].name, " is ", shape_text(in[i]),
           " but x ", shape_text(in[0]), " has ", counted(c, "channel"));
  return {in[0], {{2, c}}};  // mean and inverse standard deviation
}

Push push_of(const OpCall& call, const Emitter& emit) {
  const auto c = static_cast<uint32_t>(call.inputs[0].shape.back());
  const uint32_t rows = call.inputs[0].count() / c;
  return {rows,
          c,
          row_slices(*emit.device(), rows, c),
          call.options.boolean("relu"),
          static_cast<float>(call.options.number("epsilon")),
          static_cast<float>(call.options.number("momentum")),
          0,
          1};
}

// Returns the push constants for partial moments or partial sums.
Push partial_push(Push push, const Emitter& emit) {
  push.slices = tile_slices(*emit.device(), push.rows, push.c);
  push.slice_rows = gpu::div_up(push.rows, push.slices);
  return push;
}

// Emits the moments over the rows of all peers from this one's partial moments.
void emit_joined(const OpCall& call, Emitter& emit, RowPeers& peers, const DeviceTensor& partial,
                 const Push& merge, const Push& push) {
  const DeviceTensor joined = emit.scratch({2 * int64_t{push.c} + 1});
  emit.for_rows("batch_norm_join", {reads(partial), writes(joined)}, merge, push.c,
                gpu::div_up(merge.rows, merge.slice_rows) * merge.parts, {merge.parts == 1});
  peers.emit_moments(emit, call.step, joined.buffer);
  emit.for_each(
      "batch_norm_finish",
      {reads(joined), writes(call.saved[0]), updates(call.inputs[3]), updates(call.inputs[4])},
      push, push.c);
}

// Attaches to the last dispatch what it computes, from `tensors` tensors like x and from rows of
// the bindings after them.
void set_fusible(Emitter& emit, const OpCall& call, const char* name, uint32_t tensors,
                 std::initializer_list<Pointwise::Operand> rows, std::string body) {
  auto note = std::make_shared<Pointwise>(
      *pointwise(name, call.inputs[0].count(), tensors, std::move(body)));
  note->operands.insert(note->operands.end(), rows);
  note->columns = call.inputs[1].count();
  emit.set_fusible(note);
}

constexpr auto kColumns = Pointwise::Along::columns;

void forward(const OpCall& call, Emitter& emit) {
  const DeviceTensor &x = call.inputs[0], &mean = call.inputs[3], &var = call.inputs[4];
  const Push push = push_of(call, emit);
  if (call.recomputed) {  // saved[0] is still valid
  } else if (call.training) {
    Push merge = partial_push(push, emit);
    DeviceTensor partial;
    if (const auto moments = emit_moments(emit, x)) {
      partial = moments->partial;
      merge.rows = moments->rows, merge.slice_rows = moments->tile_rows;
      merge.parts = moments->parts;
    } else {
      partial = emit.scratch({merge.slices, 2, push.c});
      emit.for_tiles("batch_norm_stats", {reads(x), writes(partial)}, merge, push.c, merge.slices,
                     sum_tile(*emit.device(), push.c));
    }
    if (RowPeers* peers = emit.peers().rows)
      emit_joined(call, emit, *peers, partial, merge, push);
    else
      emit.for_rows("batch_norm_merge",
                    {reads(partial), writes(call.saved[0]), updates(mean), updates(var)}, merge,
                    push.c, gpu::div_up(merge.rows, merge.slice_rows) * merge.parts,
                    {merge.parts == 1});
  } else {
    emit.for_each("batch_norm_fixed", {reads(mean), reads(var), writes(call.saved[0])}, push,
                  push.c);
  }
  emit.for_channels("batch_norm_apply",
                    {reads(x), reads(call.saved[0]), reads(call.inputs[1]), reads(call.inputs[2]),
                     writes(call.output)},
                    push, push.c, push.slices);
  const char* result = "batch_norm($0, $1, $2, $3, $4)";
  set_fusible(emit, call, "batch_norm", 1,
              {{1, kColumns, 0}, {1, kColumns, 1}, {2, kColumns}, {3, kColumns}},
              push.relu ? cat("$r = relu_of(", result, ");") : cat("$r = ", result, ";"));
}

// Emits the sums over the rows, which the gradients of gamma, beta and x need. A CPU device takes
// pairs of columns, if it can.
void emit_grad_sums(const OpCall& call, Emitter& emit, Push push, const DeviceTensor& sums) {
  const DeviceTensor &x = call.inputs[0], &dy = call.output_grad;
  const gpu::Device& device = *emit.device();
  const uint32_t side_by_side = rows_side_by_side(device, push.c);
  const bool is_cpu = device.family() == gpu::KernelFamily::cpu;
  const bool pairs = is_cpu && push.rows % side_by_side == 0 && begins_with_a_pair(x.buffer) &&
                     begins_with_a_pair(dy.buffer);
  if (pairs) push.parts = side_by_side, push.rows /= side_by_side;
  push = partial_push(push, emit);
  // Each part of each slice leaves sums to add.
  if (pairs) push.slices = std::min(push.slices, std::max(256 / push.parts, 1u));
  const uint32_t lanes_needed = push.c * push.parts / (pairs ? 2 : 1);
  const SumTile tile = sum_tile(device, lanes_needed);
  const DeviceTensor partial = emit.scratch({push.slices * push.parts, 2, push.c});
  emit.dispatch("batch_norm_grad_sums",
                {reads(x), reads(dy), reads(call.saved[0]), reads(call.inputs[1]),
                 reads(call.inputs[2]), writes(partial)},
                push, {gpu::div_up(lanes_needed, tile.channels), push.slices, 1},
                {tile.channels, is_cpu ? pairs : tile.streams});
  emit_sum_halves(emit, partial, sums, push.slices * push.parts, call.input_grads[2],
                  call.input_grads[1]);
}

void backward(const OpCall& call, Emitter& emit) {
  const DeviceTensor &x = call.inputs[0], &gamma = call.inputs[1], &beta = call.inputs[2];
  const DeviceTensor& dy = call.output_grad;
  const Push push = push_of(call, emit);
  const DeviceTensor sums = emit.scratch({2, push.c});  // dbeta, dgamma
  emit_grad_sums(call, emit, push, sums);
  if (!call.input_grads[0]) return;
  // The moments depend on every row of every peer. The parameters' gradients, emitted above, are
  // only this peer's share.
  if (RowPeers* peers = emit.peers().rows) peers->emit_means(emit, call.step, sums.buffer);
  emit.for_channels("batch_norm_grad_x",
                    {reads(x), reads(dy), reads(call.saved[0]), reads(gamma), reads(beta),
                     reads(sums), writes(call.input_grads[0])},
                    push, push.c, push.slices);
  // Operands: x, dy, mean, inv_std, gamma, beta, the sums of g and of g * h.
  const char* g = push.relu ? "relu_grad(batch_norm($0, $2, $3, $4, $5), $1)" : "$1";
  set_fusible(emit, call, "batch_norm_grad_x", 2,
              {{2, kColumns, 0},
               {2, kColumns, 1},
               {3, kColumns},
               {4, kColumns},
               {5, kColumns, 0},
               {5, kColumns, 1}},
              cat("$r = batch_norm_dx($0, ", g, ", $2, $3, $4, $6, $7, column_length);"));
}

// Folded: y = x scale + shift with the running moments.
std::string to_onnx(OnnxNode& node) {
  const auto gamma = node.floats(1), beta = node.floats(2);
  const auto mean = node.floats(3), var = node.floats(4);
  std::vector<float> scale(gamma.size()), shift(gamma.size());
  for (size_t i = 0; i < gamma.size(); ++i) {
    const double s = static_cast<double>(gamma[i]) /
                     std::sqrt(static_cast<double>(var[i]) + node.options().number("epsilon"));
    scale[i] = static_cast<float>(s);
    shift[i] = static_cast<float>(static_cast<double>(beta[i]) - s * static_cast<double>(mean[i]));
  }
  const std::vector<int64_t> dims{static_cast<int64_t>(gamma.size())};
  const OnnxName y =
      node.emit("Add", {node.emit("Mul", {node.in(0), node.parameter(1, dims, scale)}),
                        node.parameter(2, dims, shift)});
  return node.relu_where(y);
}

}  // namespace

extern const OpSpec batch_norm_op;
const OpSpec batch_norm_op{
    .name = "batch_norm",
    .doc = "batch normalisation with optional ReLU",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .is_foldable = true,
    .axes = AxesRule::elements,
};

}  // namespace etr::ops

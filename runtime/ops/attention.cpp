// Fused multi-head attention; see shaders/attention.comp for formulas and layouts.
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "ops/onnx_node.h"
#include "ops/op.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {{"q"},
                               {"k", InputRole::differentiable, true},
                               {"v", InputRole::differentiable, true},
                               {"lengths", InputRole::constant, true, DType::i32}};
constexpr OptionSpec kOptions[] = {
    {"heads", OptionType::integer, nullptr,
     "number of heads; they share the width equally unless head_dim is given", 1, 1024},
    {"causal", OptionType::boolean, "false",
     "each position attends only to itself and earlier positions"},
    {"kv_heads", OptionType::integer, "0",
     "number of heads for keys and values, each serving a group of adjacent query heads; 0: as "
     "many as heads",
     0, 1024},
};

struct Push {
  uint32_t tq, tk, heads, causal, masked;
  float scale;
  uint32_t q_stride, q_offset, k_stride, k_offset, v_stride, v_offset;
  uint32_t group;  // heads that share one of keys and values
};

bool packed(size_t inputs) { return inputs == 1; }

int64_t kv_heads_of(const Options& options) {
  const int64_t given = options.integer("kv_heads");
  return given ? given : options.integer("heads");
}

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  for (size_t i = 0; i < std::min<size_t>(in.size(), 3); ++i)
    require_rank("attention", kInputs[i].name, in[i], 3, "[N, positions, width]");
  const int64_t heads = options.integer("heads"), kv_heads = kv_heads_of(options);
  const bool one = packed(in.size());
  if (in.size() == 2) fail(Code::invalid_argument, "attention: takes q alone, or q, k and v");
  if (heads % kv_heads != 0)
    fail(Code::invalid_argument, "attention: ", counted(heads, "head"), " cannot share ", kv_heads,
         " of keys and values evenly");
  const int64_t all = one ? heads + 2 * kv_heads : heads, head = in[0][2] / all;
  if (in[0][2] % all != 0 || head % 4 != 0)
    fail(Code::invalid_argument, "attention: a width of ", in[0][2], one ? " (q, k, v)" : "",
         " does not split into ", all, " heads of a multiple of 4");
  if (head > 256) fail(Code::unsupported, "attention: a head of ", head, " is wider than 256");
  if (in.size() >= 3) {
    const Shape expected{in[0][0], in[1][1], kv_heads * head};
    if (in[1] != expected || in[2] != expected)
      fail(Code::invalid_argument, "attention: k ", shape_text(in[1]), " and v ", shape_text(in[2]),
           " do not fit q ", shape_text(in[0]), "; they should be ", shape_text(expected));
    if (options.boolean("causal") && in[1][1] < in[0][1])
      fail(Code::invalid_argument, "attention: causal with fewer keys (", in[1][1],
           ") than queries (", in[0][1], ")");
  }
  if (in.size() == 4 && in[3] != Shape{in[0][0]})
    fail(Code::invalid_argument, "attention: lengths must be [", in[0][0], "], not ",
         shape_text(in[3]));
  // log-sum-exp of each query
  return {{in[0][0], in[0][1], heads * head}, {{in[0][0], heads, in[0][1]}}};
}

Push push_of(const OpCall& call) {
  const Shape& q = call.inputs[0].shape;
  const auto width = static_cast<uint32_t>(call.output.shape[2]);
  const auto heads = static_cast<uint32_t>(call.options.integer("heads"));
  const bool one = packed(call.inputs.size());
  const auto kv_heads = static_cast<uint32_t>(kv_heads_of(call.options));
  const uint32_t kv_width = width / heads * kv_heads, all = width + 2 * kv_width;
  return {static_cast<uint32_t>(q[1]),
          static_cast<uint32_t>(one ? q[1] : call.inputs[1].shape[1]),
          heads,
          call.options.boolean("causal"),
          call.inputs.size() == 4,
          1 / std::sqrt(static_cast<float>(width / heads)),
          one ? all : width,
          0,
          one ? all : kv_width,
          one ? width : 0,
          one ? all : kv_width,
          one ? width + kv_width : 0,
          heads / kv_heads};
}

struct Tensors {
  const DeviceTensor &q, &k, &v, &lengths;
};

Tensors tensors_of(const OpCall& call) {
  const bool one = packed(call.inputs.size());
  const DeviceTensor& q = call.inputs[0];
  return {q, one ? q : call.inputs[1], one ? q : call.inputs[2],
          call.inputs.size() == 4 ? call.inputs[3] : q};
}

uint32_t head_of(const OpCall& call) {
  return static_cast<uint32_t>(call.output.shape[2] / call.options.integer("heads"));
}

// Returns the operations of `products` products over all pairs of queries and keys; half as many if
// causal.
double flops_of(const OpCall& call, const Push& push, double products) {
  const double pairs = static_cast<double>(push.tq) * push.tk * (push.causal ? 0.5 : 1);
  return products * 2 * pairs * static_cast<double>(call.output.shape[0] * call.output.shape[2]);
}

// On a CPU each lane owns a query or a key; on a GPU each workgroup owns tiles of both.
bool is_tiled(const Emitter& emit) { return emit.device()->family() != gpu::KernelFamily::cpu; }

// A tile's edge (shaders/attention_tiled.comp).
uint32_t tile_of(const Emitter& emit, const Push& push, uint32_t head) {
  constexpr uint32_t kSharedBytes = 38400;  // of tiles of 64
  const gpu::DeviceInfo& info = emit.device()->info();
  // CPU devices may take these kernels, too, but their compilers take minutes for wide heads.
  const bool fits =
      info.max_shared_bytes >= kSharedBytes && (info.kind != gpu::DeviceKind::cpu || head <= 8);
  return fits && push.tq > 32 && push.tk > 32 ? 64 : 32;
}

struct Operand {
  const DeviceTensor& tensor;  // [N, ...]
  gpu::Access access;
};

void emit_attention(Emitter& emit, const std::string& variant, const std::vector<Operand>& operands,
                    const Push& push, uint32_t rows, uint32_t heads, uint32_t head, double flops,
                    bool apart = false) {
  const uint32_t tile = tile_of(emit, push, head);
  // An invocation owns 4 rows of a tile; of tiles of 64 with wide heads 2, so that the sums fit in
  // registers.
  const uint32_t lanes = tile == 64 && head > 128 ? 256 : tile * 2;
  const auto samples = static_cast<uint32_t>(operands[0].tensor.shape[0]);
  for_sample_runs(samples, heads, [&](uint32_t first, uint32_t count) {
    std::vector<gpu::Binding> bindings;
    for (const auto& [tensor, access] : operands)
      bindings.push_back({samples_of(tensor, first, count).buffer, access});
    if (is_tiled(emit))
      emit.dispatch("attention_tiled" + variant, std::move(bindings), push,
                    {gpu::div_up(rows, tile), count * heads, apart ? 2u : 1u},
                    {lanes, head, apart ? 1u : 0u, tile});
    else {
      // Lanes walk keys, or the queries of all heads that share them. Within, two loops go over a
      // position's numbers in sixteens, and before and after, up to three in fours. Lavapipe
      // unrolls them up to 64 numbers.
      const bool unrolled = head <= 64, is_kv = variant == "_grad_kv";
      const uint64_t around = unrolled ? 1 : 3 * (head / 4 + 1),
                     each = unrolled ? 1 : 1 + 2 * (gpu::div_up(head, 16) + 1);
      emit.require_iterations(around +
                              (is_kv ? push.group * (2 + push.tq * each) : push.tk * each));
      for (const gpu::Binding& binding : bindings)
        if (!begins_with_a_pair(binding.buffer))
          fail(Code::internal, "attention needs tensors at multiples of 8 bytes");
      emit.for_channels("attention" + variant, std::move(bindings), push, rows, count * heads, 1,
                        {head});
    }
    emit.count_flops(flops * count / samples);
  });
}

void forward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  const Tensors t = tensors_of(call);
  using gpu::Access;
  emit_attention(emit, "",
                 {{t.q, Access::read},
                  {t.k, Access::read},
                  {t.v, Access::read},
                  {t.lengths, Access::read},
                  {call.output, Access::write},
                  {call.saved[0], Access::write}},
                 push, push.tq, push.heads, head_of(call), flops_of(call, push, 2));
}

void backward(const OpCall& call, Emitter& emit) {
  const Push push = push_of(call);
  const Tensors t = tensors_of(call);
  const DeviceTensor &lse = call.saved[0], &dy = call.output_grad;
  const bool one = packed(call.inputs.size());
  const auto target = [&](size_t i) {
    const DeviceTensor& grad = call.input_grads[one ? 0 : i];
    return grad ? grad : emit.scratch(call.inputs[one ? 0 : i].shape);
  };
  const DeviceTensor dq = target(0), dk = one ? dq : target(1), dv = one ? dq : target(2);
  const DeviceTensor dots = emit.scratch(lse.shape);
  const uint32_t head = head_of(call);
  using gpu::Access;
  emit_attention(emit, "_grad_q",
                 {{t.q, Access::read},
                  {t.k, Access::read},
                  {t.v, Access::read},
                  {t.lengths, Access::read},
                  {call.output, Access::read},
                  {lse, Access::read},
                  {dy, Access::read},
                  {dots, Access::write},
                  {dq, Access::write}},
                 push, push.tq, push.heads, head, flops_of(call, push, 3));
  const bool apart = head > 64;  // more than fits in a GPU's registers at once
  emit_attention(emit, "_grad_kv",
                 {{t.q, Access::read},
                  {t.k, Access::read},
                  {t.v, Access::read},
                  {t.lengths, Access::read},
                  {lse, Access::read},
                  {dy, Access::read},
                  {dots, Access::read},
                  {dk, Access::write},
                  {dv, Access::write}},
                 push, push.tk, push.heads / push.group, head, flops_of(call, push, 4), apart);
}

std::string to_onnx(OnnxNode& node) {
  const Shape y = node.shape();
  const int64_t heads = node.options().integer("heads"), head = y[2] / heads;
  const int64_t given = node.options().integer("kv_heads"), kv_heads = given ? given : heads;
  const bool one = node.inputs() == 1;
  const int64_t keys = one ? y[1] : node.shape_in(1)[1];
  std::vector<OnnxName> parts;
  if (one) {
    const OnnxName first =
        node.emit("Split", {node.in(0), node.integers({y[2], kv_heads * head, kv_heads * head})},
                  OnnxAttributes().integer("axis", -1), 3);
    parts = {first, first + ".1", first + ".2"};
  } else {
    parts = {node.in(0), node.in(1), node.in(2)};
  }
  // Heads of keys and values are repeated for the heads of queries that share them.
  for (size_t i = 1; i < 3 && kv_heads != heads; ++i)
    parts[i] = node.reshape(node.emit("Expand", {node.reshape(parts[i], {0, 0, kv_heads, 1, head}),
                                                 node.integers({1, 1, 1, heads / kv_heads, 1})}),
                            {0, keys, heads * head});
  const auto by_head = [&](const OnnxName& x, const std::vector<int64_t>& axes) {
    return node.transpose(node.reshape(x, {0, 0, heads, head}), axes);
  };
  OnnxName scores =
      node.emit("MatMul", {by_head(parts[0], {0, 2, 1, 3}), by_head(parts[1], {0, 2, 3, 1})});
  scores = node.emit("Mul", {scores, node.number(1 / std::sqrt(static_cast<double>(head)))});
  constexpr float kNever = -1e30f;
  if (node.options().boolean("causal")) {
    std::vector<float> mask(static_cast<size_t>(y[1] * keys));
    for (int64_t i = 0; i < y[1]; ++i)
      for (int64_t j = i + keys - y[1] + 1; j < keys; ++j)
        mask[static_cast<size_t>(i * keys + j)] = kNever;
    scores = node.emit("Add", {scores, node.constant({y[1], keys}, mask)});
  }
  OnnxName seen;
  if (node.inputs() == 4) {
    std::vector<float> places;
    for (int64_t j = 0; j < keys; ++j) places.push_back(static_cast<float>(j));
    const OnnxName lengths = node.reshape(
        node.emit("Cast", {node.in(3)}, OnnxAttributes().integer("to", kOnnxFloat)), {0, 1, 1, 1});
    seen = node.emit("Less", {node.constant({keys}, places), lengths});
    scores = node.emit("Where", {seen, scores, node.number(static_cast<double>(kNever))});
  }
  OnnxName p = node.emit("Softmax", {scores}, OnnxAttributes().integer("axis", -1));
  // A sample without keys attends to nothing.
  if (!seen.empty())
    p = node.emit("Mul",
                  {p, node.emit("Cast", {seen}, OnnxAttributes().integer("to", kOnnxFloat))});
  const OnnxName mixed = node.emit("MatMul", {p, by_head(parts[2], {0, 2, 1, 3})});
  return node.reshape(node.transpose(mixed, {0, 2, 1, 3}), {0, y[1], y[2]});
}

// Every position is compared with every other one, and sums their values.
double operations(const Shape& output) {
  return 4 * static_cast<double>(element_count(output)) * static_cast<double>(output[1]);
}

}  // namespace

extern const OpSpec attention_op;
const OpSpec attention_op{
    .name = "attention",
    .doc = "fused multi-head attention, of q, k, v or of all in one",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .axes = AxesRule::new_rows,
    .slices = SliceRule::heads,
    .operations = operations,
};

}  // namespace etr::ops

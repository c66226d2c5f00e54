// y[n, t] = the state of an LSTM or GRU cell after position t; formulas in shaders/recurrent.comp.
//
// The part that does not depend on the state is one product over all positions, and so are the
// gradients of all weights. Only h Wh and the cell itself go position by position.
#include "core/error.h"
#include "ops/gemm.h"
#include "ops/onnx_node.h"

namespace etr::ops {
namespace {

constexpr OpInput kInputs[] = {
    {"x"}, {"input_weight"}, {"input_bias"}, {"recurrent_weight"}, {"recurrent_bias"}};
constexpr OptionSpec kOptions[] = {
    {"cell", OptionType::string, nullptr, "kind of cell", 0, 0, "", "lstm|gru"},
    {"reverse", OptionType::boolean, "false",
     "process the sequence from the last position to the first"},
};

bool is_lstm(const Options& options) { return options.string("cell") == "lstm"; }

struct Sizes {
  uint32_t batch, steps, features, width, gates;  // gates: width of all gates together
};

Sizes sizes_of(const Options& options, const std::vector<Shape>& in) {
  const auto u = [](int64_t v) { return static_cast<uint32_t>(v); };
  const uint32_t width = u(in[3][0]);
  return {u(in[0][0]), u(in[0][1]), u(in[0][2]), width, (is_lstm(options) ? 4 : 3) * width};
}

OpShapes shapes(const Options& options, const std::vector<Shape>& in) {
  require_rank("recurrent", "x", in[0], 3, "[N, positions, features]");
  require_rank("recurrent", "recurrent_weight", in[3], 2, "[width, parts * width]");
  const Sizes s = sizes_of(options, in);
  const Shape wanted[] = {{in[0][2], s.gates}, {s.gates}, {s.width, s.gates}, {s.gates}};
  for (size_t i = 0; i < 4; ++i)
    if (in[i + 1] != wanted[i])
      fail(Code::invalid_argument, "recurrent: ", kInputs[i + 1].name, " must be ",
           shape_text(wanted[i]), ", not ", shape_text(in[i + 1]));
  const Shape states{in[0][0], in[0][1], s.width};
  return {states, {{in[0][0], in[0][1], 4, s.width}, states, is_lstm(options) ? states : Shape{1}}};
}

struct Push {
  uint32_t count, width, steps, t, previous, next;
};

// Maps positions to the order of the recurrence.
Push push_of(const Sizes& s, bool reverse, uint32_t place) {
  const auto position = [&](uint32_t p) {
    return p >= s.steps ? s.steps : reverse ? s.steps - 1 - p : p;
  };
  return {s.batch * s.width,  s.width, s.steps, position(place), position(place - 1),
          position(place + 1)};
}

void forward(const OpCall& call, Emitter& emit) {
  const auto& in = call.inputs;
  const Sizes s = sizes_of(call.options, {in[0].shape, {}, {}, in[3].shape});
  const DeviceTensor xg = emit.scratch({s.batch, s.steps, s.gates});
  emit_gemm(emit, GemmMode::nn, product(s.batch * s.steps, s.gates, s.features), in[0], in[1],
            in[2], xg);
  DeviceTensor h = emit.scratch({s.batch, s.width});
  emit.add(gpu::Fill{h.buffer, 0});
  for (uint32_t place = 0; place < s.steps; ++place) {
    const Push push = push_of(s, call.options.boolean("reverse"), place);
    const DeviceTensor hg = emit.scratch({s.batch, s.gates}), next = emit.scratch(h.shape);
    emit_gemm(emit, GemmMode::nn, product(s.batch, s.gates, s.width), h, in[3], in[4], hg);
    emit.for_each(is_lstm(call.options) ? "recurrent_lstm" : "recurrent_gru",
                  {reads(xg), reads(hg), updates(call.saved[0]), updates(call.saved[1]),
                   updates(call.saved[2]), writes(next), updates(call.output)},
                  push, push.count);
    h = next;
  }
}

void backward(const OpCall& call, Emitter& emit) {
  const auto& in = call.inputs;
  const Sizes s = sizes_of(call.options, {in[0].shape, {}, {}, in[3].shape});
  const bool lstm = is_lstm(call.options);
  const uint32_t rows = s.batch * s.steps;
  const DeviceTensor dxg = emit.scratch({s.batch, s.steps, s.gates});
  const DeviceTensor dhg_all = lstm ? dxg : emit.scratch(dxg.shape);
  const DeviceTensor carry = emit.scratch({s.batch, s.width});
  const DeviceTensor back = emit.scratch({s.gates, s.width});
  emit_transpose(emit, in[3], back, 1, s.width, s.gates);
  DeviceTensor dh = emit.scratch(carry.shape);
  emit.add(gpu::Fill{carry.buffer, 0});
  emit.add(gpu::Fill{dh.buffer, 0});
  for (uint32_t place = s.steps; place-- > 0;) {
    const Push push = push_of(s, call.options.boolean("reverse"), place);
    const DeviceTensor dhg = emit.scratch({s.batch, s.gates});
    emit.for_each(
        lstm ? "recurrent_lstm_grad" : "recurrent_gru_grad",
        {reads(call.output_grad), reads(dh), updates(carry), reads(call.saved[0]),
         reads(call.saved[1]), reads(call.saved[2]), updates(dxg), writes(dhg), updates(dhg_all)},
        push, push.count);
    if (place == 0) break;
    dh = emit.scratch(carry.shape);
    emit_gemm(emit, GemmMode::nn, product(s.batch, s.width, s.gates), dhg, back, {}, dh);
  }
  const auto& grads = call.input_grads;
  if (grads[0]) {
    const DeviceTensor wt = emit.scratch({s.gates, s.features});
    emit_transpose(emit, in[1], wt, 1, s.features, s.gates);
    emit_gemm(emit, GemmMode::nn, product(rows, s.features, s.gates), dxg, wt, {}, grads[0]);
  }
  if (grads[1])
    emit_gemm(emit, GemmMode::tn, product(s.features, s.gates, rows), in[0], dxg, {}, grads[1]);
  if (grads[2]) emit_column_sum(emit, dxg, grads[2], rows, s.gates);
  if (grads[3])
    emit_gemm(emit, GemmMode::tn, product(s.width, s.gates, rows), call.saved[1], dhg_all, {},
              grads[3]);
  if (grads[4]) emit_column_sum(emit, dhg_all, grads[4], rows, s.gates);
}

bool quantizes(const Options&, size_t input) { return input == 1 || input == 3; }

WeightLayout layout(const Options&, size_t input) {
  return input == 1 || input == 3 ? WeightLayout::transposed : WeightLayout::same;
}

// ONNX stores gates as rows, in another order, and both biases in one tensor.
std::string to_onnx(OnnxNode& node) {
  const bool lstm = node.options().string("cell") == "lstm",
             reverse = node.options().boolean("reverse");
  const std::vector<size_t> order =
      lstm ? std::vector<size_t>{0, 3, 1, 2} : std::vector<size_t>{1, 0, 2};
  const int64_t width = node.shape_in(3)[0], gates = width * static_cast<int64_t>(order.size());
  // [rows, gates * width] -> [gates * width, rows] in ONNX's order of gates.
  const auto arranged = [&](size_t input, int64_t rows) {
    const std::vector<float> from = node.floats(input);
    std::vector<float> to;
    for (const size_t gate : order)
      for (size_t k = 0; k < static_cast<size_t>(width); ++k)
        for (size_t r = 0; r < static_cast<size_t>(rows); ++r)
          to.push_back(
              from[r * static_cast<size_t>(gates) + gate * static_cast<size_t>(width) + k]);
    return to;
  };
  const int64_t features = node.shape_in(0)[2];
  std::vector<float> biases = arranged(2, 1);
  const std::vector<float> recurrent_biases = arranged(4, 1);
  biases.insert(biases.end(), recurrent_biases.begin(), recurrent_biases.end());
  OnnxAttributes attributes;
  attributes.integer("hidden_size", width).text("direction", reverse ? "reverse" : "forward");
  if (!lstm) attributes.integer("linear_before_reset", 1);
  const OnnxName y = node.emit(lstm ? "LSTM" : "GRU",
                               {node.transpose(node.in(0), {1, 0, 2}),
                                node.parameter(1, {1, gates, features}, arranged(1, features)),
                                node.parameter(3, {1, gates, width}, arranged(3, width)),
                                node.constant({1, 2 * gates}, biases)},
                               attributes);
  return node.transpose(node.emit("Squeeze", {y, node.integers({1})}), {1, 0, 2});
}

}  // namespace

extern const OpSpec recurrent_op;
const OpSpec recurrent_op{
    .name = "recurrent",
    .doc = "a recurrent layer with LSTM or GRU cells",
    .inputs = kInputs,
    .options = kOptions,
    .shapes = shapes,
    .forward = forward,
    .backward = backward,
    .to_onnx = to_onnx,
    .layout = layout,
    .quantizes = quantizes,
    .axes = AxesRule::new_rows,
};

}  // namespace etr::ops

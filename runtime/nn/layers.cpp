// The layers that carry parameters or rename an op's options. Shapes are NHWC.
#include "core/error.h"
#include "core/json.h"
#include "nn/init.h"
#include "nn/layer.h"

namespace etr::nn {
namespace {

constexpr OptionSpec kInit{"init",   OptionType::string,
                           "\"he\"", "initial weights: He normal, Glorot uniform or zeros",
                           0,        0,
                           "",       "he|glorot|zeros"};
constexpr OptionSpec kUseBias{"bias", OptionType::boolean, "true", "add a bias, fused"};
constexpr OptionSpec kActivation{
    "activation", OptionType::string, "\"none\"", "activation fused into the layer", 0, 0,
    "",           "none|relu"};

bool fused_relu(const LayerCall& call) { return call.options.string("activation") == "relu"; }

std::vector<graph::ValueId> with_bias(const LayerCall& call, graph::ValueId weight,
                                      int64_t channels) {
  std::vector<graph::ValueId> inputs{call.input, weight};
  if (call.options.boolean("bias"))
    inputs.push_back(
        call.graph.add_parameter(call.name + ".bias", {channels}, /*decay=*/false, constant(0)));
  return inputs;
}

// dense ---------------------------------------------------------------------------------------

constexpr OptionSpec kDense[] = {
    {"units", OptionType::integer, nullptr, "length of the output", 1, 1 << 24},
    kUseBias,
    kActivation,
    kInit,
};

graph::ValueId build_dense(const LayerCall& call) {
  const Shape& x = call.graph.shape(call.input);
  if (x.size() != 2)
    fail(Code::invalid_argument, call.name, ": dense takes [N, features], not ", shape_text(x),
         "; put a flatten or global_avg_pool layer before it");
  const int64_t units = call.options.integer("units");
  const auto weight =
      call.graph.add_parameter(call.name + ".weight", {x[1], units}, /*decay=*/true,
                               weight_initializer(call.options.string("init"), x[1], units));
  return call.graph.add("dense", {{"relu", fused_relu(call)}}, with_bias(call, weight, units),
                        call.name);
}

// conv2d --------------------------------------------------------------------------------------

constexpr OptionSpec kConv2d[] = {
    {"filters", OptionType::integer, nullptr, "channels of the output", 1, 1 << 16},
    {"kernel", OptionType::integer, "3", "height and width of the kernel", 1, 64, "pixels"},
    {"stride", OptionType::integer, "1", "step of the kernel in both directions", 1, 64, "pixels"},
    {"pad", OptionType::integer, "-1", "zeros on each side; -1 is half the kernel ('same')", -1, 64,
     "pixels"},
    kUseBias,
    kActivation,
    kInit,
};

graph::ValueId build_conv2d(const LayerCall& call) {
  const Shape& x = call.graph.shape(call.input);
  if (x.size() != 4)
    fail(Code::invalid_argument, call.name, ": conv2d takes [N, H, W, C], not ", shape_text(x));
  const int64_t k = call.options.integer("kernel"), filters = call.options.integer("filters");
  const int64_t pad = call.options.integer("pad") < 0 ? k / 2 : call.options.integer("pad");
  const auto weight = call.graph.add_parameter(
      call.name + ".weight", {k, k, x[3], filters}, /*decay=*/true,
      weight_initializer(call.options.string("init"), k * k * x[3], k * k * filters));
  const Json options{
      {"stride", call.options.integer("stride")}, {"pad", pad}, {"relu", fused_relu(call)}};
  return call.graph.add("conv2d", options, with_bias(call, weight, filters), call.name);
}

// batch_norm ----------------------------------------------------------------------------------

constexpr OptionSpec kBatchNorm[] = {
    {"epsilon", OptionType::number, "1e-5", "added to the variance", 1e-12, 1},
    {"momentum", OptionType::number, "0.9", "share of the old running statistics kept each step", 0,
     1},
    kActivation,
};

graph::ValueId build_batch_norm(const LayerCall& call) {
  graph::Graph& g = call.graph;
  const int64_t c = g.shape(call.input).back();
  const std::vector<graph::ValueId> inputs{
      call.input, g.add_parameter(call.name + ".gamma", {c}, /*decay=*/false, constant(1)),
      g.add_parameter(call.name + ".beta", {c}, /*decay=*/false, constant(0)),
      g.add_state(call.name + ".running_mean", {c}, constant(0)),
      g.add_state(call.name + ".running_var", {c}, constant(1))};
  const Json options{{"epsilon", call.options.number("epsilon")},
                     {"momentum", call.options.number("momentum")},
                     {"relu", fused_relu(call)}};
  return g.add("batch_norm", options, inputs, call.name);
}

// bias ----------------------------------------------------------------------------------------

graph::ValueId build_bias(const LayerCall& call) {
  const int64_t c = call.graph.shape(call.input).back();
  const auto bias =
      call.graph.add_parameter(call.name + ".bias", {c}, /*decay=*/false, constant(0));
  return call.graph.add("bias", Json::object(), {call.input, bias}, call.name);
}

// Layers that are one op without parameters ------------------------------------------------------

constexpr OptionSpec kDropout[] = {
    {"rate", OptionType::number, "0.5", "probability that an element is zeroed", 0, 0.99},
};
constexpr OptionSpec kMaxPool[] = {
    {"window", OptionType::integer, "2", "height and width of the window", 1, 64, "pixels"},
    {"stride", OptionType::integer, "2", "step of the window in both directions", 1, 64, "pixels"},
    {"pad", OptionType::integer, "0", "border on each side that never wins", 0, 32, "pixels"},
};

template <const char* const& op>
graph::ValueId build_plain(const LayerCall& call) {
  return call.graph.add(op, call.options.json(), {call.input}, call.name);
}

const char* const kDropoutOp = "dropout";
const char* const kFlattenOp = "flatten";
const char* const kGlobalAvgPoolOp = "global_avg_pool";
const char* const kMaxPoolOp = "max_pool";
const char* const kReluOp = "relu";

}  // namespace

#define ETR_LAYER(name) extern const LayerSpec name##_layer;
#include "nn/layer_list.inc"
#undef ETR_LAYER

const LayerSpec dense_layer{"dense", "fully connected layer on [N, features]", kDense, build_dense};
const LayerSpec conv2d_layer{"conv2d", "2-D convolution on [N, H, W, C]", kConv2d, build_conv2d};
const LayerSpec batch_norm_layer{"batch_norm", "batch normalisation of the last axis", kBatchNorm,
                                 build_batch_norm};
const LayerSpec bias_layer{"bias", "adds a trainable vector along the last axis", {}, build_bias};
const LayerSpec dropout_layer{"dropout", "zeroes random elements in training", kDropout,
                              build_plain<kDropoutOp>};
const LayerSpec flatten_layer{
    "flatten", "joins all axes but the first", {}, build_plain<kFlattenOp>};
const LayerSpec global_avg_pool_layer{
    "global_avg_pool", "mean over all pixels: [N, C]", {}, build_plain<kGlobalAvgPoolOp>};
const LayerSpec max_pool_layer{"max_pool", "maximum over windows of [N, H, W, C]", kMaxPool,
                               build_plain<kMaxPoolOp>};
const LayerSpec relu_layer{"relu", "max(x, 0)", {}, build_plain<kReluOp>};

}  // namespace etr::nn

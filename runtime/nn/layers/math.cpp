// Functions of one or several values, and changes of shape.
#include <algorithm>

#include "core/error.h"
#include "nn/layers/common.h"

namespace etr::nn {
namespace {

constexpr OptionSpec kActivationOptions[] = {
    {"function", OptionType::string, nullptr, "the function", 0, 0, "", ops::kUnaryFunctions},
    {"alpha", OptionType::number, "0.01", "slope of leaky_relu for negative inputs, scale of elu",
     0, 100},
};
constexpr OptionSpec kReduce[] = {
    {"function", OptionType::string, "\"mean\"", "how elements are combined", 0, 0, "",
     "sum|mean|max|min"},
    {"axes", OptionType::integers, nullptr,
     "adjacent axes to reduce; negative values count from the end; not the batch axis (0)", -8, 7},
    {"keep_dims", OptionType::boolean, "false", "keep the reduced axes with length 1", 0, 0, "", "",
     "keep_axes"},
};
constexpr OptionSpec kReshape[] = {
    {"shape", OptionType::integers, nullptr,
     "new shape without the batch axis; one dimension may be -1 and is then inferred", -1, 1e9},
};
constexpr OptionSpec kPermute[] = {
    {"axes", OptionType::integers, nullptr,
     "for each axis of the result, the axis of the input that it takes; the batch axis (0) stays "
     "first",
     0, 4},
};
constexpr OptionSpec kAxis{
    "axis", OptionType::integer, "-1", "the axis; negative values count from the end", -8, 7};
constexpr OptionSpec kConcat[] = {kAxis};
constexpr OptionSpec kSlice[] = {
    kAxis,
    {"begin", OptionType::integer, "0", "first element; negative values count from the end", -1e9,
     1e9},
    {"length", OptionType::integer, "0", "number of elements; 0: all from 'begin' on", 0, 1e9},
};
constexpr OptionSpec kResidual[] = {
    {"layers", OptionType::layers, nullptr, "layers whose output is added to the input"},
    {"shortcut", OptionType::layers, "[]",
     "layers that the input passes through before the addition; empty: none"},
    kActivation,
};
constexpr OptionSpec kRepeat[] = {
    {"times", OptionType::integer, nullptr, "number of repetitions", 1, 1000},
    {"layers", OptionType::layers, nullptr,
     "the layers; each repetition has parameters of its own"},
};

const char* const kUnary = "unary";
const char* const kReshapeOp = "reshape";
const char* const kPermuteOp = "permute";
const char* const kSliceOp = "slice";
const char* const kFlatten = "flatten";

// Returns whether the value has the samples of a batch on its first axis.
bool is_of_samples(const graph::Graph& graph, graph::ValueId value) {
  const auto& values = graph.values();
  std::vector<bool> out(values.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = values[i].kind == graph::ValueKind::input;
  for (const graph::Node& node : graph.nodes())
    out[graph::index(node.output)] =
        std::any_of(node.inputs.begin(), node.inputs.end(),
                    [&](graph::ValueId input) { return out[graph::index(input)]; });
  return out[graph::index(value)];
}

// Over the batch axis, rows that only fill a batch up would count, and samples would depend on each
// other.
graph::ValueId build_reduce(const LayerCall& call) {
  const auto axes = call.options.integers("axes");
  const auto rank = static_cast<int64_t>(call.shape().size());
  const bool of_batch = std::any_of(axes.begin(), axes.end(),
                                    [&](int64_t axis) { return axis == 0 || axis == -rank; });
  if (of_batch && is_of_samples(call.graph, call.input()))
    fail(Code::invalid_argument, call.name,
         ": 'axes' contains the batch axis, but samples are computed independently: "
         "reduce only axes from 1 on of ",
         shape_text(call.shape()));
  return call.graph.add("reduce", call.options.json(), call.inputs, call.name);
}

template <bool logarithm>
graph::ValueId build_softmax(const LayerCall& call) {
  return call.graph.add("softmax", {{"logarithm", logarithm}}, call.inputs, call.name);
}

graph::ValueId build_relu(const LayerCall& call) {
  return call.graph.add("unary", {{"function", "relu"}}, call.inputs, call.name);
}

// Adds nodes that compute a f b f c ... from left to right.
graph::ValueId chain(const LayerCall& call, const char* op, const Json& options) {
  graph::ValueId value = call.inputs[0];
  for (size_t i = 1; i < call.inputs.size(); ++i)
    value = call.graph.add(op, options, {value, call.inputs[i]}, call.name);
  return value;
}

template <const char* const& function>
graph::ValueId build_binary(const LayerCall& call) {
  return chain(call, "binary", {{"function", function}});
}

const char* const kAdd = "add";
const char* const kSubtract = "subtract";
const char* const kMultiply = "multiply";
const char* const kDivide = "divide";
const char* const kMaximum = "maximum";
const char* const kMinimum = "minimum";

graph::ValueId build_concat(const LayerCall& call) {
  return chain(call, "concat", call.options.json());
}

graph::ValueId build_residual(const LayerCall& call) {
  const auto branch = call.build("layers", call.input(), "");
  const auto shortcut = call.build("shortcut", call.input(), "shortcut");
  const auto sum = call.graph.add("binary", {{"function", "add"}, {"relu", fused_relu(call)}},
                                  {branch, shortcut}, call.name);
  return activate(call, sum);
}

graph::ValueId build_repeat(const LayerCall& call) {
  graph::ValueId value = call.input();
  for (int64_t i = 1; i <= call.options.integer("times"); ++i)
    value = call.build("layers", value, std::to_string(i));
  return value;
}

}  // namespace

#define ETR_LAYER(name) extern const LayerSpec name##_layer;
#include "nn/layer_list.inc"
#undef ETR_LAYER

const LayerSpec activation_layer{"activation", "applies a function to each element",
                                 kActivationOptions, build_plain<kUnary>};
const LayerSpec relu_layer{"relu", "max(x, 0)", {}, build_relu};
const LayerSpec softmax_layer{"softmax", "softmax over the last axis", {}, build_softmax<false>};
const LayerSpec log_softmax_layer{
    "log_softmax", "logarithm of the softmax over the last axis", {}, build_softmax<true>};
const LayerSpec reduce_layer{"reduce", "sum, mean, maximum or minimum over axes", kReduce,
                             build_reduce};
const LayerSpec reshape_layer{"reshape", "changes the shape", kReshape, build_plain<kReshapeOp>};
const LayerSpec permute_layer{"permute", "permutes the axes", kPermute, build_plain<kPermuteOp>};
const LayerSpec slice_layer{"slice", "a range of one axis", kSlice, build_plain<kSliceOp>};
const LayerSpec flatten_layer{
    "flatten", "joins all axes except the first", {}, build_plain<kFlatten>};
const LayerSpec add_layer{"add", "sum of the inputs, with broadcasting", {}, build_binary<kAdd>, 2,
                          16};
const LayerSpec subtract_layer{
    "subtract", "first input minus the second", {}, build_binary<kSubtract>, 2, 2};
const LayerSpec multiply_layer{
    "multiply", "product of the inputs, with broadcasting", {}, build_binary<kMultiply>, 2, 16};
const LayerSpec divide_layer{
    "divide", "first input divided by the second", {}, build_binary<kDivide>, 2, 2};
const LayerSpec maximum_layer{
    "maximum", "element-wise maximum of the inputs", {}, build_binary<kMaximum>, 2, 16};
const LayerSpec minimum_layer{
    "minimum", "element-wise minimum of the inputs", {}, build_binary<kMinimum>, 2, 16};
const LayerSpec concat_layer{
    "concat", "concatenates the inputs along an axis", kConcat, build_concat, 2, 16};
const LayerSpec residual_layer{"residual",
                               "adds the output of its layers to their input (He et al. 2016)",
                               kResidual, build_residual};
const LayerSpec repeat_layer{"repeat", "repeats the same layers several times in sequence", kRepeat,
                             build_repeat};

}  // namespace etr::nn

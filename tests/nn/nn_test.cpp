#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "nn/init.h"
#include "nn/model.h"
#include "nn/pytorch_order.h"

namespace etr::test {
namespace {

nn::Model model_of(const std::string& layers) {
  return nn::Model(parse_json("{\"layers\": [" + layers + "]}", "test"));
}

nn::Fields image_of(const Shape& sample, DType dtype = DType::f32) {
  return {{"image", {dtype, sample}}};
}

int64_t parameters_of(const nn::ModelGraph& m) {
  int64_t count = 0;
  for (const graph::Value& v : m.graph.values())
    if (v.kind == graph::ValueKind::parameter) count += element_count(v.shape);
  return count;
}

TEST(Model, CountsTheParametersOfEveryLayer) {
  const nn::Model model = model_of(
      R"({"layer": "conv2d", "filters": 8, "stride": 2}, {"layer": "batch_norm"}, {"layer": "relu"},
      {"layer": "max_pool"}, {"layer": "dropout"}, {"layer": "bias"}, {"layer": "flatten"}, {"layer": "dense", "units": 5})");
  const nn::ModelGraph m = model.build(3, image_of({13, 11, 2}));
  EXPECT_EQ(m.graph.shape(m.output), (Shape{3, 5}));
  // conv 3*3*2*8 + 8, norm 8 + 8, bias 8, dense 3*3*8*5 + 5
  EXPECT_EQ(parameters_of(m), 152 + 16 + 8 + 365);
}

struct LayerCase {
  std::string layers;
  Shape sample, output;  // output without the batch
  int64_t parameters = 0;
  DType dtype = DType::f32;
};

const std::map<std::string, LayerCase>& layer_cases() {
  static const std::map<std::string, LayerCase> cases{
      {"activation", {R"({"layer": "activation", "function": "gelu"})", {5}, {5}}},
      {"adaptive_avg_pool",
       {R"({"layer": "adaptive_avg_pool", "output_size": 2})", {7, 5, 3}, {2, 2, 3}}},
      {"add",
       {R"({"layer": "relu"}, {"layer": "add", "input": ["relu_1", "image", "image"]})", {5}, {5}}},
      {"attention",
       {R"({"layer": "attention", "heads": 2})", {7, 8}, {7, 8}, 8 * 24 + 24 + 8 * 8 + 8}},
      {"avg_pool", {R"({"layer": "avg_pool", "window": 3})", {7, 5, 3}, {3, 2, 3}}},
      {"batch_norm", {R"({"layer": "batch_norm", "activation": "silu"})", {4, 3}, {4, 3}, 6}},
      {"bias", {R"({"layer": "bias"})", {4, 3}, {4, 3}, 3}},
      {"box_head",  // 4 anchors a pixel
       {R"({"layer": "box_head", "classes": 2, "scale": 0.3, "next_scale": 0.5})",
        {4, 3, 5},
        {4 * 3 * 4, 11},
        9 * 5 * 28 + 28}},
      {"concat",
       {R"({"layer": "relu"}, {"layer": "concat", "input": ["image", "relu_1"]})", {5}, {10}}},
      {"conv1d",
       {R"({"layer": "conv1d", "filters": 4, "kernel": 5, "stride": 2, "dilation": 2})",
        {11, 3},
        {6, 4},
        64}},
      {"conv2d",
       {R"({"layer": "conv2d", "filters": 6, "groups": 3, "activation": "gelu"})",
        {7, 5, 3},
        {7, 5, 6},
        60}},
      {"conv2d_transpose",
       {R"({"layer": "conv2d_transpose", "filters": 4, "kernel": 4, "stride": 2})",
        {7, 5, 3},
        {14, 10, 4},
        196}},
      {"dense", {R"({"layer": "dense", "units": 4})", {7, 3}, {7, 4}, 16}},
      {"divide",
       {R"({"layer": "relu"}, {"layer": "divide", "input": ["image", "relu_1"]})", {5}, {5}}},
      {"dropout", {R"({"layer": "dropout"})", {5}, {5}}},
      {"embedding",
       {R"({"layer": "embedding", "entries": 11, "width": 3})", {7}, {7, 3}, 33, DType::i32}},
      {"flatten", {R"({"layer": "flatten"})", {7, 3}, {21}}},
      {"gather",
       {R"({"layer": "embedding", "entries": 5, "width": 3}, {"layer": "gather", "input": ["embedding_1", "image"]})",
        {4},
        {4, 3},
        15,
        DType::i32}},
      {"global_avg_pool", {R"({"layer": "global_avg_pool"})", {7, 5, 3}, {3}}},
      {"glsl",
       {R"({"layer": "glsl", "source": "float forward(uint i) { return x0[i] * x1[i % WIDTH]; }", "weight": [3]})",
        {7, 3},
        {7, 3},
        3}},
      {"group_norm",
       {R"({"layer": "group_norm", "groups": 2, "activation": "relu"})", {7, 6}, {7, 6}, 12}},
      {"gru", {R"({"layer": "gru", "units": 5})", {7, 3}, {7, 5}, 3 * 5 * (3 + 5 + 2)}},
      {"layer_norm", {R"({"layer": "layer_norm"})", {7, 6}, {7, 6}, 12}},
      {"log_softmax", {R"({"layer": "log_softmax"})", {5}, {5}}},
      {"lstm",
       {R"({"layer": "lstm", "units": 5, "output": "last"})", {7, 3}, {5}, 4 * 5 * (3 + 5 + 2)}},
      {"max_pool", {R"({"layer": "max_pool"})", {7, 5, 3}, {3, 2, 3}}},
      {"maximum",
       {R"({"layer": "relu"}, {"layer": "maximum", "input": ["image", "relu_1"]})", {5}, {5}}},
      {"minimum",
       {R"({"layer": "relu"}, {"layer": "minimum", "input": ["image", "relu_1"]})", {5}, {5}}},
      {"multiply",
       {R"({"layer": "relu"}, {"layer": "multiply", "input": ["image", "relu_1"]})", {5}, {5}}},
      {"parameter",
       {R"({"layer": "parameter", "shape": [5]}, {"layer": "add", "input": ["image", "parameter_1"]})",
        {7, 5},
        {7, 5},
        5}},
      {"permute", {R"({"layer": "permute", "axes": [0, 2, 1]})", {7, 3}, {3, 7}}},
      {"position_embedding", {R"({"layer": "position_embedding"})", {7, 3}, {7, 3}, 21}},
      {"reduce", {R"({"layer": "reduce", "axes": [1]})", {7, 3}, {3}}},
      {"relu", {R"({"layer": "relu"})", {5}, {5}}},
      {"repeat",
       {R"({"layer": "repeat", "times": 3, "layers": [{"layer": "dense", "units": 5}]})",
        {5},
        {5},
        90}},
      {"reshape", {R"({"layer": "reshape", "shape": [3, -1]})", {6, 4}, {3, 8}}},
      {"residual",
       {R"({"layer": "residual", "layers": [{"layer": "dense", "units": 4}],
                        "shortcut": [{"layer": "dense", "units": 4, "bias": false}], "activation": "relu"})",
        {5},
        {4},
        44}},
      {"rms_norm", {R"({"layer": "rms_norm"})", {7, 6}, {7, 6}, 6}},
      {"slice", {R"({"layer": "slice", "begin": -2})", {7, 6}, {7, 2}}},
      {"softmax", {R"({"layer": "softmax"})", {5}, {5}}},
      {"subtract",
       {R"({"layer": "relu"}, {"layer": "subtract", "input": ["image", "relu_1"]})", {5}, {5}}},
  };
  return cases;
}

TEST(Model, EveryLayerOfTheTableBuilds) {
  for (const nn::LayerSpec* layer : nn::layer_table()) {
    SCOPED_TRACE(layer->name);
    ASSERT_TRUE(layer_cases().count(layer->name)) << "write a case for it";
    const LayerCase& c = layer_cases().at(layer->name);
    const nn::ModelGraph m = model_of(c.layers).build(2, image_of(c.sample, c.dtype));
    EXPECT_EQ(m.graph.shape(m.output), with_batch(2, c.output));
    EXPECT_EQ(parameters_of(m), c.parameters);
    EXPECT_GT(std::string(layer->doc).size(), 5u);
  }
}

// Half of (kernel - 1) * dilation, rounded down: the size stays wherever it can.
TEST(Model, ConvolutionsPadByHalfOfWhatTheirKernelReaches) {
  const auto size = [](int kernel, int dilation) {
    const nn::ModelGraph m = model_of(cat(R"({"layer": "conv2d", "filters": 1, "kernel": )", kernel,
                                          R"(, "dilation": )", dilation, "}"))
                                 .build(2, image_of({16, 16, 1}));
    return m.graph.shape(m.output)[1];
  };
  for (int dilation = 1; dilation <= 4; ++dilation) EXPECT_EQ(size(3, dilation), 16) << dilation;
  EXPECT_EQ(size(2, 2), 16);
  EXPECT_EQ(size(4, 2), 16);
  EXPECT_EQ(size(2, 1), 15);
  EXPECT_EQ(size(4, 3), 15);
}

nn::ModelGraph ready_made(const std::string& spec, const nn::Fields& fields) {
  return nn::Model(parse_json(spec, "test")).build(2, fields);
}

// Parameters as the papers' and torchvision's models have them.
TEST(ReadyMadeModels, HaveTheParametersOfTheirOriginals) {
  const nn::Fields cifar = image_of({32, 32, 3}), imagenet = image_of({224, 224, 3});
  EXPECT_EQ(parameters_of(ready_made(R"({"model": "resnet", "depth": 18})", imagenet)), 11689512);
  EXPECT_EQ(parameters_of(ready_made(R"({"model": "resnet", "depth": 34})", imagenet)), 21797672);
  EXPECT_EQ(parameters_of(ready_made(R"({"model": "resnet"})", imagenet)), 25557032);
  // With projections where He et al. pad (269,722 without): 3 norms and 16 x 32 + 32 x 64 weights
  // more.
  EXPECT_EQ(parameters_of(ready_made(R"({"model": "cifar_resnet"})", cifar)), 272474);
  EXPECT_EQ(parameters_of(ready_made(R"({"model": "simple_cnn"})", image_of({28, 28, 1}))),
            3274634);
  EXPECT_EQ(
      parameters_of(ready_made(R"({"model": "mlp", "hidden": [100, 50]})", image_of({28, 28, 1}))),
      84060);
  // Symbols and positions once, 12 width^2 + 13 width a block, a last norm.
  EXPECT_EQ(parameters_of(ready_made(
                R"({"model": "transformer_decoder", "vocab_size": 65, "width": 64, "blocks": 2})",
                {{"input", {DType::i32, {32}}}})),
            (65 + 32) * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 128);
  // TinyLlama 1.1B.
  EXPECT_EQ(parameters_of(ready_made(
                R"({"model": "llama", "vocab_size": 32000, "width": 2048, "blocks": 22, "heads": 32,
                    "kv_heads": 4, "ffn_width": 5632})",
                {{"input", {DType::i32, {8}}}})),
            1100048384);
}

TEST(Attention, SharesHeadsOfKeysAndValues) {
  const auto parameters = [](const std::string& options) {
    return parameters_of(
        model_of(cat(R"({"layer": "attention", "bias": false, "heads": 4, )", options, "}"))
            .build(2, image_of({7, 16})));
  };
  EXPECT_EQ(parameters(R"("kv_heads": 2)"), 16 * (16 + 2 * 8) + 16 * 16);
  EXPECT_EQ(parameters(R"("kv_heads": 1, "separate": true)"), 16 * (16 + 2 * 4) + 16 * 16);
  EXPECT_EQ(parameters(R"("head_dim": 8)"), 16 * 3 * 32 + 32 * 16);
  EXPECT_EQ(parameters(R"("rotary_base": 10000)"), 16 * 3 * 16 + 16 * 16);
  EXPECT_THROW(parameters(R"("kv_heads": 3)"), Error);
  EXPECT_THROW(parameters(R"("rotary_scaling": [8, 1, 4, 8192])"), Error);  // without a base
  EXPECT_THROW(parameters(R"("rotary_base": 10000, "rotary_scaling": [8, 4, 1, 8192])"), Error);
}

TEST(ReadyMadeModels, KeepTheirLossWhereOnlyItsOptionsAreGiven) {
  const nn::Model smoothed(parse_json(
      R"({"model": "transformer_decoder", "vocab_size": 5, "loss": {"label_smoothing": 0.1}})",
      "test"));
  EXPECT_EQ(smoothed.target(), "target");
  EXPECT_EQ(smoothed.json()["loss"]["label_smoothing"], 0.1);
  const nn::Model other(
      parse_json(R"({"model": "mlp", "loss": {"loss": "mse", "target": "y"}})", "test"));
  EXPECT_EQ(other.target(), "y");
  const nn::Model detector(
      parse_json(R"({"model": "ssd", "classes": 2, "loss": {"max_boxes": 8}})", "test"));
  EXPECT_EQ(detector.target(), "boxes");
}

TEST(Loss, AnOptionThatItDoesNotUseIsRefused) {
  const auto message = [](const char* loss) -> std::string {
    try {
      const nn::Loss made(parse_json(loss, "test"));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::invalid_argument) << loss;
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message(R"({"loss": "mse", "label_smoothing": 0.1})"),
            "model: loss.label_smoothing is 0.1, which the loss 'mse' does not use: leave it out, "
            "or set loss.loss to softmax_cross_entropy");
  for (const char* loss :
       {R"({"loss": "binary_cross_entropy", "label_smoothing": 0.1})",
        R"({"loss": "multibox", "ignore_index": 0})", R"({"loss": "l1", "class_weights": [1]})",
        R"({"loss": "mse", "delta": 2})", R"({"max_boxes": 8})",
        R"({"loss": "huber", "iou_threshold": 0.4})", R"({"loss": "l1", "negative_ratio": 2})"})
    EXPECT_NE(message(loss).find("does not use"), std::string::npos) << loss;
  // What equals the default changes nothing.
  for (const char* loss : {R"({"loss": "mse", "label_smoothing": 0.0, "class_weights": []})",
                           R"({"label_smoothing": 0.1, "ignore_index": 0, "class_weights": [1]})",
                           R"({"loss": "huber", "delta": 2})",
                           R"({"loss": "multibox", "max_boxes": 8, "negative_ratio": 2})"})
    EXPECT_EQ(message(loss), "") << loss;
}

TEST(ReadyMadeModels, TheEncoderDecoderReadsThreeFields) {
  const nn::ModelGraph m = ready_made(
      R"({"model": "transformer", "vocab_size": 11, "width": 8, "heads": 2, "blocks": 1})",
      {{"source", {DType::i32, {7}}},
       {"source_length", {DType::i32, {}}},
       {"input", {DType::i32, {5}}}});
  EXPECT_EQ(m.graph.shape(m.output), (Shape{2, 5, 11}));
  EXPECT_EQ(m.inputs.size(), 3u);
  EXPECT_EQ(m.graph.value(m.target).name, "target");
}

TEST(ReadyMadeModels, MistakesAreNamed) {
  const auto error = [](const std::string& spec) -> std::string {
    try {
      nn::Model model(parse_json(spec, "test"));
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(error(R"({"model": "resnet20"})").find("there is no model 'resnet20'"),
            std::string::npos);
  EXPECT_NE(error(R"({"model": "cifar_resnet", "depth": 21})").find("6 n + 2"), std::string::npos);
  EXPECT_EQ(error(R"({"model": "ssd", "classes": 2, "max_scale": 1.8})"), "");
  EXPECT_EQ(
      error(R"({"model": "ssd", "classes": 2, "min_scale": 0.9, "max_scale": 0.2})"),
      "model 'ssd': 'min_scale' is 0.9 and 'max_scale' is 0.2, but anchors grow from level to "
      "level");
  EXPECT_EQ(error(R"({"model": "ssd", "classes": 2, "min_scale": 0.95, "levels": 3})"), "");
  EXPECT_NE(error(R"({"model": "resnet", "depths": 18})").find("did you mean 'depth'?"),
            std::string::npos);
  EXPECT_EQ(error(R"({"model": "mlp", "loss": {"loss": "huber"}})"), "");
}

std::string error_of(const std::string& layers, bool build = false) {
  try {
    const nn::Model model = model_of(layers);
    if (build) model.build(2, image_of({8, 8, 3}));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Model, ErrorsNameLayerAndKey) {
  EXPECT_NE(error_of(R"({"layer": "con2d"})").find("did you mean 'conv2d'?"), std::string::npos);
  EXPECT_NE(error_of(R"({"layer": "flatten"}, {"layer": "dense", "unit": 3})")
                .find("model layer 2 ('dense'): unknown option 'unit' (did you mean 'units'?)"),
            std::string::npos);
  EXPECT_NE(
      error_of(R"({"layer": "reduce", "axes": [1, 2, 3]})", true).find("end with a dense layer"),
      std::string::npos);
  EXPECT_NE(error_of(R"({"layer": "relu", "name": "a"}, {"layer": "relu", "input": "b"})", true)
                .find("model layer 'relu_2': there is no layer or field 'b' before it"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"layer": "relu", "name": "a"}, {"layer": "bias", "name": "a"})", true)
                .find("two layers"),
            std::string::npos);
  EXPECT_EQ(error_of(R"({"layer": "flatten"}, {"layer": "dense", "units": 3, "name": "a"},
                        {"layer": "dense", "units": 3, "name": "a"})",
                     true),
            "model: two layers or fields are called 'a'");
  EXPECT_NE(
      error_of(R"({"layer": "add"})", true).find("reads 1 value; a layer 'add' takes 2 to 16"),
      std::string::npos);
  EXPECT_NE(error_of(R"({"layer": "residual", "layers": [{"layer": "denes"}]})")
                .find("did you mean 'dense'?"),
            std::string::npos)
      << "nested layers are read before there is a batch";
  EXPECT_NE(error_of(R"({"layer": "embedding", "entries": 3, "width": 2})", true)
                .find("must be i32, not f32"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"layer": "conv2d", "filters": 3, "kernel": 11, "pad": 0})", true)
                .find("conv2d_1"),
            std::string::npos);
  for (const char* norm : {"batch_norm", "layer_norm", "rms_norm", "bias"})
    EXPECT_NE(error_of(cat(R"({"layer": "parameter", "shape": [], "name": "a"}, {"layer": ")", norm,
                           R"(", "input": "a"})"),
                       true)
                  .find("takes [..., channels], not a single number"),
              std::string::npos)
        << norm;
}

// Otherwise repeated rows, which fill a batch up, would count.
TEST(Model, ReduceLeavesTheBatchAxisToParametersAlone) {
  for (const char* axis : {"0", "-4"}) {
    const std::string text = error_of(
        cat(R"({"layer": "reduce", "axes": [)", axis,
            R"(], "keep_dims": true, "name": "mean"}, {"layer": "subtract", "input": ["image", "mean"]})"),
        true);
    EXPECT_NE(text.find("mean: 'axes' contains the batch axis"), std::string::npos) << text;
    EXPECT_EQ(error_of(cat(R"({"layer": "parameter", "shape": [2, 1, 1, 3], "name": "p"},
                              {"layer": "reduce", "axes": [)",
                           axis, R"(], "keep_dims": true, "name": "mean"},
                              {"layer": "multiply", "input": ["image", "mean"]}, {"layer": "flatten"},
                              {"layer": "dense", "units": 2})"),
                       true),
              "");
  }
}

nn::ModelGraph graph_on_image(const char* layers) {
  return nn::Model(parse_json(cat("{\"layers\": [", layers, "]}"), "test"))
      .build(2, {{"image", {DType::f32, {2, 3, 4}}}});
}

// PyTorch counts a flattened image's features by channel, then place; proven against it in
// tests/golden/import_check.py.
TEST(PytorchOrder, FollowsWhatBecomesOfAFlattenedImage) {
  const nn::ModelGraph model = graph_on_image(
      R"({"layer": "flatten"}, {"layer": "batch_norm", "name": "norm"}, {"layer": "relu"},
         {"layer": "dense", "units": 5, "name": "first"}, {"layer": "dense", "units": 2, "name": "second"})");
  const nn::PytorchOrder order(model.graph);
  const auto of = [&](const char* name) { return order.of(model.graph.parameter(name)); };
  for (const char* name : {"first.weight", "norm.gamma", "norm.beta"}) {
    ASSERT_TRUE(of(name)) << name;
    for (size_t place = 0; place < 6; ++place)
      for (size_t channel = 0; channel < 4; ++channel)
        EXPECT_EQ((*of(name))[place * 4 + channel], channel * 6 + place) << name;
  }
  for (const char* name : {"first.bias", "second.weight"}) EXPECT_FALSE(of(name)) << name;
}

TEST(PytorchOrder, FollowsAxesThatAreMoved) {
  const auto order_after = [](const char* layers) {
    const nn::ModelGraph model = graph_on_image(
        cat(layers, R"(, {"layer": "flatten"}, {"layer": "dense", "units": 5, "name": "first"})")
            .c_str());
    return nn::PytorchOrder(model.graph).of(model.graph.parameter("first.weight"));
  };
  for (
      const char* layers :
      {R"({"layer": "permute", "axes": [0, 2, 1, 3]})",
       R"({"layer": "reshape", "shape": [3, 2, 4]})",
       // Channels that are shuffled, as in ShuffleNet.
       R"({"layer": "reshape", "shape": [2, 3, 2, 2]}, {"layer": "permute", "axes": [0, 1, 2, 4, 3]})"}) {
    const auto order = order_after(layers);
    ASSERT_TRUE(order) << layers;
    for (size_t place = 0; place < 6; ++place)
      for (size_t channel = 0; channel < 4; ++channel)
        EXPECT_EQ((*order)[place * 4 + channel], channel * 6 + place) << layers;
  }
  for (
      const char* layers :
      {R"({"layer": "permute", "axes": [0, 3, 1, 2]})", R"({"layer": "reshape", "shape": [6, 4]})",
       R"({"layer": "reduce", "axes": [3], "keep_dims": true}, {"layer": "reshape", "shape": [2, 3]})"})
    EXPECT_FALSE(order_after(layers)) << layers;
}

TEST(PytorchOrder, RefusesWhatItCannotTell) {
  for (
      const char* before :
      {R"({"layer": "flatten"}, {"layer": "slice", "length": 24})",
       R"({"layer": "flatten"}, {"layer": "reshape", "shape": [24, 1]})",
       R"({"layer": "flatten"}, {"layer": "group_norm", "groups": 2})",
       R"({"layer": "reshape", "shape": [2, 12]})",
       R"({"layer": "reshape", "shape": [2, 12]}, {"layer": "reduce", "axes": [1]})",
       R"({"layer": "conv2d", "filters": 3, "kernel": 1}, {"layer": "reduce", "axes": [3]},
           {"layer": "flatten"})",
       R"({"layer": "permute", "axes": [0, 3, 2, 1]}, {"layer": "flatten"})",
       R"({"layer": "max_pool", "window": 1, "stride": 1}, {"layer": "permute", "axes": [0, 2, 3, 1]},
           {"layer": "avg_pool", "window": 1, "stride": 1}, {"layer": "flatten"})",
       R"({"layer": "reshape", "shape": [4, 3, 2]}, {"layer": "max_pool", "window": 1, "stride": 1},
           {"layer": "flatten"})",
       R"({"layer": "flatten"}, {"layer": "dense", "units": 24, "name": "before"},
           {"layer": "reshape", "shape": [2, 3, 4]})"}) {
    const nn::ModelGraph model =
        graph_on_image(cat(before, R"(, {"layer": "dense", "units": 5, "name": "first"})").c_str());
    try {
      nn::PytorchOrder(model.graph).of(model.graph.parameter("first.weight"));
      ADD_FAILURE() << before;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::unsupported);
      EXPECT_NE(std::string(error.what()).find("layer 'first'"), std::string::npos) << error.what();
    }
  }
}

// Rows of an image are picked along its height.
TEST(PytorchOrder, FollowsRowsThatAreGathered) {
  const nn::ModelGraph model =
      nn::Model(parse_json(R"({"inputs": ["image", "ids"],
                               "layers": [{"layer": "gather", "input": ["image", "ids"]},
                                          {"layer": "flatten"},
                                          {"layer": "dense", "units": 5, "name": "first"}]})",
                           "test"))
          .build(2, {{"image", {DType::f32, {2, 3, 4}}}, {"ids", {DType::i32, {5}}}});
  const auto order = nn::PytorchOrder(model.graph).of(model.graph.parameter("first.weight"));
  ASSERT_TRUE(order);
  for (size_t place = 0; place < 15; ++place)
    for (size_t channel = 0; channel < 4; ++channel)
      EXPECT_EQ((*order)[place * 4 + channel], channel * 15 + place);
}

// Nothing says what becomes of the axes of an image of indices.
TEST(PytorchOrder, RefusesAnImageThatAnOpWithoutARuleReads) {
  const nn::ModelGraph model =
      nn::Model(parse_json(R"({"layers": [{"layer": "embedding", "entries": 7, "width": 2},
                                          {"layer": "flatten"},
                                          {"layer": "dense", "units": 5, "name": "first"}]})",
                           "test"))
          .build(2, {{"image", {DType::i32, {2, 3, 4}}}});
  EXPECT_THROW(nn::PytorchOrder(model.graph).of(model.graph.parameter("first.weight")), Error);
}

// `levels` layers in each other, the innermost a dense one.
Json nested_model(const char* kind, int levels) {
  Json layers = Json::array({{{"layer", "dense"}, {"units", 4}}});
  for (int i = 1; i < levels; ++i) {
    Json outer{{"layer", kind}};
    if (kind == std::string("repeat")) outer["times"] = 1;
    outer["layers"] = std::move(layers);
    layers = Json::array({std::move(outer)});
  }
  return {{"layers", std::move(layers)}};
}

std::string error_of(const Json& spec) {
  try {
    nn::Model(spec).build(2, {{"image", {DType::f32, {4}}}});
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(Model, NestingHasALimit) {
  for (const char* kind : {"residual", "repeat"}) {
    EXPECT_EQ(error_of(nested_model(kind, nn::kMaxLayerDepth)), "") << kind;
    EXPECT_EQ(error_of(nested_model(kind, nn::kMaxLayerDepth + 1)),
              cat("model layer '", kind, "_1': layers are nested more than 64 deep"));
  }
  Json many{{"layer", "relu"}};
  for (int i = 0; i < 5; ++i) many = {{"layer", "repeat"}, {"times", 1000}, {"layers", {many}}};
  EXPECT_NE(error_of({{"layers", {many}}}).find("the model has more than 20000 layers"),
            std::string::npos);
}

// Kernels count with 32 bits; sizes that wrap would be small buffers.
TEST(Model, SizesHaveALimit) {
  const auto with = [](const char* layers) {
    return error_of(parse_json(cat("{\"layers\": [", layers, "]}"), "test"));
  };
  EXPECT_NE(with(R"({"layer": "dense", "units": 16777216, "name": "wide"},
                    {"layer": "dense", "units": 16777216, "name": "next"})")
                .find("more than 2^32 elements"),
            std::string::npos);
}

TEST(Init, VariancesFollowTheFormulas) {
  std::vector<float> v(100000);
  Rng rng(1);
  const auto variance = [&] {
    double sum = 0, squares = 0;
    for (const float x : v) sum += x, squares += x * x;
    return squares / static_cast<double>(v.size()) -
           std::pow(sum / static_cast<double>(v.size()), 2);
  };
  nn::he_normal(50)(v, rng);
  EXPECT_NEAR(variance(), 2.0 / 50, 0.002);
  nn::glorot_uniform(50, 70)(v, rng);
  EXPECT_NEAR(variance(), 2.0 / 120, 0.001);
}

}  // namespace
}  // namespace etr::test

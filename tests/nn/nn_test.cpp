#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "core/json.h"
#include "nn/init.h"
#include "nn/model.h"

namespace etr::test {
namespace {

nn::Model model_of(const std::string& layers) {
  return nn::Model(parse_json("{\"layers\": [" + layers + "]}", "test"));
}

TEST(Model, ShapesOfEveryLayer) {
  const nn::Model model = model_of(
      R"({"layer": "conv2d", "filters": 8, "stride": 2}, {"layer": "batch_norm"}, {"layer": "relu"},
      {"layer": "max_pool"}, {"layer": "dropout"}, {"layer": "bias"}, {"layer": "flatten"}, {"layer": "dense", "units": 5})");
  const nn::ModelGraph m = model.build(3, {13, 11, 2});
  EXPECT_EQ(m.graph.shape(m.logits), (Shape{3, 5}));
  // conv 3*3*2*8 + 8, norm 8 + 8, bias 8, dense 3*3*8*5 + 5
  int64_t parameters = 0;
  for (const graph::Value& v : m.graph.values())
    if (v.kind == graph::ValueKind::parameter) parameters += element_count(v.shape);
  EXPECT_EQ(parameters, 152 + 16 + 8 + 365);
}

TEST(Model, EveryLayerOfTheTableBuilds) {
  for (const nn::LayerSpec* layer : nn::layer_table()) {
    std::string options;
    if (std::string(layer->name) == "conv2d") options = R"(, "filters": 4)";
    if (std::string(layer->name) == "dense") options = R"(, "units": 4)";
    const std::string before =
        std::string(layer->name) == "dense" ? R"({"layer": "flatten"}, )" : "";
    const bool pools = std::string(layer->name) == "global_avg_pool";
    const nn::Model model = model_of(before + "{\"layer\": \"" + layer->name + "\"" + options +
                                     "}" + (pools ? "" : R"(, {"layer": "flatten"})") +
                                     R"(, {"layer": "dense", "units": 3})");
    const nn::ModelGraph m = model.build(2, {6, 6, 3});
    EXPECT_EQ(m.graph.shape(m.logits), (Shape{2, 3})) << layer->name;
    EXPECT_GT(std::string(layer->doc).size(), 5u);
  }
}

std::string error_of(const std::string& layers, bool build = false) {
  try {
    const nn::Model model = model_of(layers);
    if (build) model.build(2, {8, 8, 3});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Model, ErrorsNameLayerAndKey) {
  EXPECT_NE(error_of(R"({"layer": "conv3d"})").find("did you mean 'conv2d'?"), std::string::npos);
  EXPECT_NE(error_of(R"({"layer": "flatten"}, {"layer": "dense", "unit": 3})")
                .find("model layer 2 ('dense'): unknown option 'unit' (did you mean 'units'?)"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"layer": "dense", "units": 3})", true).find("put a flatten"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"layer": "conv2d", "filters": 3})", true).find("end with a dense layer"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"layer": "conv2d", "filters": 3, "kernel": 11, "pad": 0})", true)
                .find("conv2d_1"),
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

#include "nn/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "core/json.h"

namespace etr::test {
namespace {

using graph::Slice;
using graph::SplitLayer;

nn::SplitModel split_of(const char* layers, const nn::Field& field, int size) {
  const nn::Model model(parse_json(layers, "test"));
  const nn::ModelGraph whole = model.build(4, {{"image", field}, {"label", {DType::i32, {}}}});
  return nn::split(whole, 0, size);
}

int64_t nodes_of(const nn::SplitModel& model, std::string_view op) {
  const auto& nodes = model.net.graph.nodes();
  return std::count_if(nodes.begin(), nodes.end(),
                       [&](const graph::Node& node) { return node.op->name == op; });
}

std::string why_whole(const nn::SplitModel& model, const std::string& label) {
  for (const SplitLayer& layer : model.layers)
    if (layer.label == label) return layer.why;
  return "(not told)";
}

TEST(Slice, PartsOfAllMakeTheWhole) {
  const Slice first{{2, 12, 3}, 1, 3, 0, 2};
  EXPECT_EQ(first.shape(), (Shape{2, 6, 3}));
  std::vector<float> whole(72), again(72), part(36);
  std::iota(whole.begin(), whole.end(), 0.0f);
  first.take(whole, part);
  EXPECT_EQ(part[0], 0);
  EXPECT_EQ(part[6], 12) << "of three parts of four, each begins anew";
  for (int rank = 0; rank < 2; ++rank) {
    first.of(rank).take(whole, part);
    first.of(rank).put(part, again);
  }
  EXPECT_EQ(again, whole);
}

TEST(Split, ABlockHasOneSumEachWay) {
  const nn::SplitModel gated = split_of(
      R"({"layers": [{"layer": "layer_norm", "name": "x"},
                     {"layer": "dense", "units": 8, "activation": "sigmoid", "name": "gate"},
                     {"layer": "dense", "units": 8, "input": ["x"], "name": "value"},
                     {"layer": "multiply", "input": ["gate", "value"]}, {"layer": "dense", "units": 6}]})",
      {DType::f32, {6}}, 2);
  EXPECT_EQ(nodes_of(gated, "enter_slices"), 1) << "of both products, which read the same";
  EXPECT_EQ(nodes_of(gated, "leave_slices"), 1);
  EXPECT_EQ(gated.slices.size(), 5u) << "the last bias is whole";
  EXPECT_EQ(gated.slices.at("gate.weight").shape(), (Shape{6, 4}));
  EXPECT_EQ(gated.slices.at("dense_5.weight").shape(), (Shape{4, 6}));
}

TEST(Split, SaysWhatIsWholeAndWhy) {
  const nn::SplitModel tied = split_of(
      R"({"layers": [{"layer": "embedding", "entries": 10, "width": 8},
                     {"layer": "attention", "heads": 2}, {"layer": "dense", "units": 15},
                     {"layer": "dense", "units": 8}, {"layer": "reduce", "axes": [1]},
                     {"layer": "dense", "units": 10, "tied_to": "embedding_1"}]})",
      {DType::i32, {5}}, 2);
  EXPECT_NE(why_whole(tied, "embedding_1").find("another layer uses its table"), std::string::npos);
  EXPECT_NE(why_whole(tied, "dense_6").find("is the table of an embedding"), std::string::npos);
  EXPECT_NE(why_whole(tied, "dense_4").find("15 columns before it do not divide by 2"),
            std::string::npos);
  EXPECT_EQ(why_whole(tied, "attention_2"), "");
  EXPECT_EQ(tied.slices.at("attention_2.qkv.weight").shape(), (Shape{8, 12}));
  const nn::SplitModel three = split_of(
      R"({"layers": [{"layer": "embedding", "entries": 10, "width": 8}, {"layer": "attention", "heads": 2},
                     {"layer": "reduce", "axes": [1]}, {"layer": "dense", "units": 5}]})",
      {DType::i32, {5}}, 3);
  EXPECT_TRUE(three.slices.empty());
  EXPECT_NE(why_whole(three, "embedding_1").find("10 entries do not divide by 3"),
            std::string::npos);
  EXPECT_NE(nn::to_text(three.layers).find("attention_2: whole, because its 2 heads do not divide"),
            std::string::npos)
      << nn::to_text(three.layers);
}

}  // namespace
}  // namespace etr::test

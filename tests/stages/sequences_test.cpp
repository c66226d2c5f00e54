// Sequences: pairs of them as an encoder-decoder reads them, and random parts.
#include <gtest/gtest.h>

#include <set>

#include "core/json.h"
#include "pipeline/stage.h"
#include "support/error_text.h"

namespace etr::test {
namespace {

using pipeline::Item;
using pipeline::require_field;

Item run_sequence(const char* stage, const std::string& options, Item item) {
  const pipeline::StageSpec& spec = pipeline::find_stage(stage);
  const pipeline::StageContext context{1, 2, nullptr, nullptr};
  const auto made = spec.make(Options(spec.options, stage, parse_json(options, stage)), context);
  pipeline::map_of(made)->process(item, 0);
  return item;
}

Tensor integers(const std::vector<int32_t>& values) {
  Tensor out(DType::i32, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), out.mutable_view<int32_t>().begin());
  return out;
}

std::vector<int32_t> values_of(const Item& item, const char* name) {
  const auto values = require_field(item, name).view<int32_t>();
  return {values.begin(), values.end()};
}

Item pair_of(Tensor source, Tensor target) {
  Item item;
  item.set("de", std::move(source));
  item.set("en", std::move(target));
  return item;
}

std::string pair_options(int source_positions, int target_positions, const std::string& more = "") {
  return cat(R"({"source": "de", "target": "en", "source_positions": )", source_positions,
             R"(, "target_positions": )", target_positions, more, "}");
}

TEST(SequencePair, MovesTheTargetByOneAndFillsUp) {
  const Item item =
      run_sequence("sequence_pair", pair_options(4, 5, R"(, "begin_token": 8, "end_token": 9)"),
                   pair_of(integers({2, 3}), integers({4, 5, 6})));
  EXPECT_EQ(values_of(item, "source"), (std::vector<int32_t>{2, 3, 9, 9}));
  EXPECT_EQ(values_of(item, "source_length"), std::vector<int32_t>{2});
  EXPECT_EQ(values_of(item, "input"), (std::vector<int32_t>{8, 4, 5, 6, 9}));
  EXPECT_EQ(values_of(item, "target"), (std::vector<int32_t>{4, 5, 6, 9, -1}));
  EXPECT_TRUE(require_field(item, "source_length").shape().empty()) << "[N] in a batch";
  EXPECT_EQ(item.find("de"), nullptr);
  EXPECT_EQ(item.find("en"), nullptr);
}

TEST(SequencePair, ReadsBytesAndSequencesThatJustFit) {
  const Item item = run_sequence("sequence_pair", pair_options(2, 3),
                                 pair_of(Tensor::text("ab"), Tensor::text("yz")));
  EXPECT_EQ(values_of(item, "source"), (std::vector<int32_t>{'a', 'b'}));
  EXPECT_EQ(values_of(item, "input"), (std::vector<int32_t>{0, 'y', 'z'}));
  EXPECT_EQ(values_of(item, "target"), (std::vector<int32_t>{'y', 'z', 1}));
  const Item nothing =
      run_sequence("sequence_pair", pair_options(1, 1), pair_of(integers({7}), integers({})));
  EXPECT_EQ(values_of(nothing, "target"), std::vector<int32_t>{1});
}

TEST(SequencePair, CutsWhatIsTooLongWhereItIsAskedTo) {
  const Item item = run_sequence("sequence_pair", pair_options(2, 3, R"(, "too_long": "cut")"),
                                 pair_of(integers({2, 3, 4}), integers({5, 6, 7, 8})));
  EXPECT_EQ(values_of(item, "source"), (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(values_of(item, "source_length"), std::vector<int32_t>{2});
  EXPECT_EQ(values_of(item, "target"), (std::vector<int32_t>{5, 6, 1}));
}

TEST(SequencePair, MistakesAreNamed) {
  const auto expect = [](Item item, const char* part, const std::string& options) {
    const std::string text =
        error_text([&] { run_sequence("sequence_pair", options, std::move(item)); });
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  const std::string options = pair_options(2, 2);
  expect(pair_of(integers({2, 3, 4}), integers({5})), "'source_positions' is 2: raise it", options);
  expect(pair_of(integers({2}), integers({5, 6})), "2 tokens and an end; 'target_positions' is 2",
         options);
  expect(pair_of(integers({}), integers({5})), "field 'de' is empty", options);
  expect(pair_of(integers({2}), integers({-1})), "field 'en' has the token -1", options);
  expect(pair_of(Tensor(DType::f32, {2}), integers({5})), "field 'de' is f32 [2]", options);
  expect(Item(), "de", options);
  expect(Item(), "are both the field 'de'",
         R"({"source": "de", "target": "de", "source_positions": 2, "target_positions": 2})");
}

Item windows(uint64_t ordinal, uint32_t replica, std::vector<int32_t> target = {1, 2, 3, 4, 5, 6}) {
  Item item;
  item.ordinal = ordinal;
  item.replica = replica;
  item.set("input", integers({0, 1, 2, 3, 4, 5}));
  item.set("target", integers(target));
  return item;
}

TEST(RandomWindow, CutsAllFieldsAtOnePlaceWhichIsAnotherForEachReplica) {
  std::set<int32_t> of_samples, of_replicas;
  for (uint32_t i = 0; i < 100; ++i) {
    const Item item = run_sequence("random_window", R"({"length": 3})", windows(i, 0));
    const auto input = values_of(item, "input");
    for (int32_t k = 0; k < 3; ++k) {
      EXPECT_EQ(input[static_cast<size_t>(k)], input[0] + k);
      EXPECT_EQ(values_of(item, "target")[static_cast<size_t>(k)], input[0] + k + 1);
    }
    of_samples.insert(input[0]);
    of_replicas.insert(
        values_of(run_sequence("random_window", R"({"length": 3})", windows(7, i)), "input")[0]);
  }
  EXPECT_EQ(of_samples, (std::set<int32_t>{0, 1, 2, 3})) << "every place, both ends included";
  EXPECT_EQ(of_replicas, of_samples);
  EXPECT_EQ(
      values_of(run_sequence("random_window", R"({"length": 6})", windows(0, 0)), "input").size(),
      6u);
}

TEST(RandomWindow, TakesRowsOfSequencesOfVectors) {
  Item item;
  Tensor rows(DType::f32, {5, 2});
  for (size_t i = 0; i < 10; ++i) rows.mutable_view<float>()[i] = static_cast<float>(i);
  item.set("rows", rows);
  const Item cut = run_sequence("random_window", R"({"fields": "rows", "length": 2})", item);
  const Tensor& part = require_field(cut, "rows");
  EXPECT_EQ(part.shape(), (Shape{2, 2}));
  EXPECT_EQ(static_cast<int>(part.view<float>()[0]) % 2, 0) << "whole rows";
  for (size_t i = 1; i < 4; ++i)
    EXPECT_EQ(part.view<float>()[i], part.view<float>()[0] + static_cast<float>(i));
}

TEST(RandomWindow, MistakesAreNamed) {
  const auto expect = [](Item item, const char* part, const std::string& options) {
    const std::string text =
        error_text([&] { run_sequence("random_window", options, std::move(item)); });
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(windows(0, 0), "field 'input' is 6 long; the window's 'length' is 7", R"({"length": 7})");
  expect(windows(0, 0, {1, 2}), "field 'target' is 2 long and 'input' 6", R"({"length": 2})");
  Item value;
  value.set("input", Tensor(DType::i32, {}));
  expect(value, "single value", R"({"fields": "input", "length": 1})");
  expect(windows(0, 0), "label", R"({"fields": "input,label", "length": 2})");
}

}  // namespace
}  // namespace etr::test

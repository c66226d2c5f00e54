// Low-rank adapters: what is trained, what a checkpoint holds, and what it fits.
#include "nn/lora.h"

#include <gtest/gtest.h>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/rng.h"
#include "support/error_text.h"
#include "train/small_learner.h"

namespace etr::test {
namespace {

using train::Learner;

constexpr const char* kLayers = R"("layers": [
    {"layer": "attention", "heads": 2, "separate": true, "name": "a"},
    {"layer": "reduce", "axes": [1]},
    {"layer": "dense", "units": 9, "activation": "relu", "name": "hidden"},
    {"layer": "dense", "units": 3, "name": "head"}]})";
constexpr const char* kLoraAdam = R"({"optimizer": "adam", "weight_decay": 0.1})";

Learner with_lora(const std::string& lora, const char* optimizer = kLoraAdam) {
  return make_learner(cat(R"({"lora": )", lora, ", ", kLayers), optimizer);
}

constexpr const char* kLora =
    R"({"layers": ["a.query", "a.value", "hidden"], "rank": 2, "alpha": 4, "train": "head.*"})";

pipeline::Item sequences(int64_t rows, uint64_t seed) {
  Tensor image(DType::f32, {rows, 5, 8});
  Rng rng(seed, 0);
  for (float& value : image.mutable_view<float>()) value = rng.uniform(-1, 1);
  pipeline::Item batch;
  batch.set("image", std::move(image));
  batch.set("label", symbols(rows, 0, [](int64_t r, int64_t) { return static_cast<int>(r % 3); }));
  return batch;
}

void train(Learner& learner, int steps) {
  for (int i = 0; i < steps; ++i) learner.step(sequences(6, static_cast<uint64_t>(i)));
  learner.take_metrics(true);
}

bool is_trained(const std::string& name) {
  return nn::Lora::is_adapter(name) || name.starts_with("head.");
}

TEST(Lora, BeginsAsTheModelWasAndTrainsTheAdapters) {
  Learner plain = make_learner(cat("{", kLayers), kLoraAdam), adapted = with_lora(kLora);
  EXPECT_EQ(values_of(adapted.predict(sequences(4, 1))), values_of(plain.predict(sequences(4, 1))));
  const auto before = adapted.weights("");
  train(adapted, 3);
  const auto after = adapted.weights("");
  std::vector<std::string> adapters;
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(values_of(after[i].tensor) != values_of(before[i].tensor), is_trained(after[i].name))
        << after[i].name;
    if (nn::Lora::is_adapter(after[i].name)) adapters.push_back(after[i].name);
  }
  EXPECT_EQ(adapters,
            (std::vector<std::string>{"a.query.lora_a", "a.query.lora_b", "a.value.lora_a",
                                      "a.value.lora_b", "hidden.lora_a", "hidden.lora_b"}));
  EXPECT_EQ(adapted.trainable(), 2 * (8 * 2 + 2 * 8) + (8 * 2 + 2 * 9) + 9 * 3 + 3);
}

TEST(Lora, CheckpointsHoldWhatIsTrained) {
  Learner learner = with_lora(kLora);
  train(learner, 3);
  checkpoint::Files files;
  learner.save(files);
  const auto saved = checkpoint::read_safetensors(files.at("weights.safetensors"), "weights");
  for (const auto& [name, tensor] : saved) EXPECT_TRUE(is_trained(name)) << name;
  EXPECT_EQ(saved.size(), 8u);

  // Before the first batch, and after it.
  for (const bool early : {true, false}) {
    Learner again = with_lora(kLora);
    if (!early) again.predict(sequences(4, 1));
    again.load(files);
    EXPECT_EQ(values_of(again.predict(sequences(4, 1))),
              values_of(learner.predict(sequences(4, 1))));
    train(again, 1);
    Learner straight = with_lora(kLora);
    straight.load(files);
    train(straight, 1);
    EXPECT_EQ(values_of(again.weights("hidden.lora_a")[0].tensor),
              values_of(straight.weights("hidden.lora_a")[0].tensor));
  }

  // Another factor, and another choice of what is trained.
  const auto refusal = [&](const char* lora) {
    return error_text([&] {
      Learner differs = with_lora(lora);
      differs.load(files);
      differs.predict(sequences(4, 1));
    });
  };
  EXPECT_NE(refusal(R"({"layers": ["a.query", "a.value", "hidden"], "rank": 2, "alpha": 8,
                        "train": "head.*"})")
                .find("holds adapters with alpha / rank 2, and here it is 4"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"layers": ["a.query", "a.value", "hidden"], "rank": 2, "alpha": 4})")
                .find("was made with other 'layers' or another 'train'"),
            std::string::npos);

  // Another base.
  Learner other = with_lora(kLora);
  other.predict(sequences(4, 1));
  Tensor weight = other.weights("hidden.weight")[0].tensor;
  weight.mutable_view<float>()[0] += 1;
  other.set_weights({{"hidden.weight", weight}});
  const auto kept = other.weights("");
  EXPECT_NE(
      error_text([&] { other.load(files); }).find("holds adapters for a model whose other weights"),
      std::string::npos);
  const auto now = other.weights("");
  for (size_t i = 0; i < now.size(); ++i)
    EXPECT_EQ(values_of(now[i].tensor), values_of(kept[i].tensor)) << now[i].name;
}

TEST(Lora, AQuantisedBaseTrainsLikeTheRoundedOne) {
  for (const int bits : {8, 4}) {
    const auto quantised = [&] {
      return make_learner(cat(R"({"quantize": )", bits, R"(, "lora": )", kLora, ", ", kLayers),
                          kLoraAdam);
    };
    Learner small = quantised(), whole = with_lora(kLora);
    small.predict(sequences(4, 1));
    whole.predict(sequences(4, 1));
    const auto original = whole.weights("hidden.weight")[0].tensor;
    EXPECT_NE(values_of(small.weights("hidden.weight")[0].tensor), values_of(original));
    whole.set_weights(small.weights(""));
    small.set_weights(whole.weights(""));  // changes nothing
    train(small, 3);
    train(whole, 3);
    const auto ours = small.weights(""), theirs = whole.weights("");
    for (size_t i = 0; i < ours.size(); ++i)
      EXPECT_EQ(values_of(ours[i].tensor), values_of(theirs[i].tensor)) << ours[i].name;

    checkpoint::Files files;
    small.save(files);
    Learner again = quantised();
    again.load(files);
    train(again, 1);
    train(small, 1);
    EXPECT_EQ(values_of(again.predict(sequences(4, 1))), values_of(small.predict(sequences(4, 1))));
    Learner other = with_lora(kLora);  // its base is not rounded
    EXPECT_NE(error_text([&] {
                other.load(files);
                other.predict(sequences(4, 1));
              }).find("other weights are not those"),
              std::string::npos);
  }
}

TEST(Lora, FrozenWeightsAreQuantisedWithoutAdaptersToo) {
  const auto frozen = [] {
    return make_learner(cat(R"({"quantize": 4, "frozen": ["hidden.*", "a.*"], )", kLayers),
                        kLoraAdam);
  };
  Learner learner = frozen();
  train(learner, 3);
  checkpoint::Files files;
  learner.save(files);
  Learner again = frozen();
  again.load(files);
  train(learner, 2);
  train(again, 2);
  const auto ours = learner.weights(""), theirs = again.weights("");
  for (size_t i = 0; i < ours.size(); ++i)
    EXPECT_EQ(values_of(ours[i].tensor), values_of(theirs[i].tensor)) << ours[i].name;
  EXPECT_NE(error_text([] {
              make_learner(cat(R"({"quantize": 5, )", kLayers), kLoraAdam);
            }).find("'quantize' is 5; it takes 8, 4 or 0"),
            std::string::npos);
  EXPECT_NE(error_text([] {
              make_learner(cat(R"({"quantize": 4, )", kLayers), kLoraAdam).predict(sequences(4, 1));
            }).find("none is frozen"),
            std::string::npos);
}

TEST(Lora, PatternsMustMatch) {
  const auto problem = [](const char* lora) {
    return error_text([&] { with_lora(lora).predict(sequences(4, 1)); });
  };
  EXPECT_NE(problem(R"({"layers": ["a.querry"]})")
                .find("'lora.layers' has 'a.querry', which is the name of no product (did you mean "
                      "'a.query'"),
            std::string::npos)
      << problem(R"({"layers": ["a.querry"]})");
  EXPECT_NE(problem(R"({"layers": ["*"], "train": ["heed.*"]})").find("'lora.train' has 'heed.*'"),
            std::string::npos);
  EXPECT_NE(problem(R"({"layers": []})").find("'lora.layers' is empty"), std::string::npos);
  EXPECT_NE(problem(R"({"rank": 2})").find("layers"), std::string::npos);
  EXPECT_NE(error_text([] {
              make_learner(cat(R"({"frozen": "a.*", "lora": {"layers": ["*"]}, )", kLayers),
                           kLoraAdam);
            }).find("leave out 'frozen'"),
            std::string::npos);
}

TEST(Lora, DoesNotAdaptATiedLayer) {
  pipeline::Item batch;
  batch.set("image", symbols(2, 3, [](int64_t, int64_t c) { return static_cast<int>(c); }));
  const auto problem = [&](const char* pattern) {
    const std::string tied = cat(R"({"lora": {"layers": [")", pattern, R"("]}, "layers": [
        {"layer": "embedding", "entries": 5, "width": 4, "name": "e"}, {"layer": "dense", "units": 4},
        {"layer": "dense", "units": 5, "tied_to": "e", "bias": false, "name": "head"}]})");
    return error_text([&] { make_learner(tied, kLoraAdam).predict(batch); });
  };
  EXPECT_NE(problem("head").find("tied to 'e'"), std::string::npos) << problem("head");
  EXPECT_NE(problem("e").find("the name of no product"), std::string::npos) << "a table is none";
}

TEST(Lora, MergesIntoTheWeight) {
  const nn::Lora lora(parse_json(R"({"layers": ["x"], "rank": 1, "alpha": 3})", "test"));
  const auto tensor = [](const Shape& shape, const std::vector<float>& values) {
    Tensor out(DType::f32, shape);
    std::copy(values.begin(), values.end(), out.mutable_view<float>().begin());
    return out;
  };
  const Tensor merged = lora.merged(tensor({2, 3}, {1, 2, 3, 4, 5, 6}), tensor({2, 1}, {1, -2}),
                                    tensor({1, 3}, {10, 20, 30}));
  EXPECT_EQ(values_of(merged), (std::vector<float>{31, 62, 93, -56, -115, -174}));
}

}  // namespace
}  // namespace etr::test

// A learner on batches made by hand: sequences, several inputs, averaging, accumulation, mixed
// precision, steps that are not finite, and profiles.
#include "train/learner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/error.h"
#include "support/error_text.h"
#include "train/profile.h"
#include "train/small_learner.h"

namespace etr::test {
namespace {

using train::Learner;

pipeline::Item counting_batch(int seed) {
  // Each row counts up modulo 7, so a symbol determines the next one.
  pipeline::Item batch;
  const auto at = [seed](int64_t r, int64_t c) { return static_cast<int>((r * 3 + seed + c) % 7); };
  batch.set("input", symbols(8, 12, at));
  batch.set("target", symbols(8, 12, [&](int64_t r, int64_t c) { return at(r, c + 1); }));
  return batch;
}

constexpr const char* kDecoder =
    R"({"model": "transformer_decoder", "vocab_size": 7, "blocks": 1, "width": 16, "heads": 2, "dropout": 0})";

TEST(Learner, ADecoderLearnsToCount) {
  Learner learner = make_learner(kDecoder, R"({"optimizer": "adamw", "clip_norm": 1})");
  for (int i = 0; i < 60; ++i) learner.step(counting_batch(i));
  const auto metrics = learner.take_metrics(true);
  EXPECT_NEAR(metrics.front().loss, std::log(7), 0.4);
  EXPECT_LT(metrics.back().loss, 0.1);
  EXPECT_GT(metrics.back().accuracy, 0.98);
  EXPECT_EQ(learner.predict(counting_batch(3)).shape(), (Shape{8, 12, 7}));
}

// The decoder learns to copy the source. Symbols after a sample's length must not matter.
TEST(Learner, AnEncoderDecoderReadsSourcesOfManyLengths) {
  Learner learner = make_learner(
      R"({"model": "transformer", "vocab_size": 9, "blocks": 1, "width": 16, "heads": 2, "dropout": 0})",
      R"({"optimizer": "adam"})");
  const auto batch_of = [](int seed, int garbage) {
    const auto length = [](int64_t r) { return static_cast<int>(3 + r % 4); };
    const auto word = [seed](int64_t r, int64_t c) {
      return static_cast<int>(2 + (r * 5 + c * c + seed) % 7);
    };
    pipeline::Item batch;
    batch.set("source", symbols(8, 6, [&](int64_t r, int64_t c) {
                return c < length(r) ? word(r, c) : garbage;
              }));
    batch.set("source_length", symbols(8, 0, [&](int64_t r, int64_t) { return length(r); }));
    batch.set("input", symbols(8, 6, [&](int64_t r, int64_t c) {
                return c == 0 || c > length(r) ? 0 : word(r, c - 1);
              }));
    batch.set("target",
              symbols(8, 6, [&](int64_t r, int64_t c) { return c < length(r) ? word(r, c) : -1; }));
    return batch;
  };
  for (int i = 0; i < 80; ++i) learner.step(batch_of(i, 1));
  const auto metrics = learner.take_metrics(true);
  EXPECT_LT(metrics.back().loss, 0.7 * metrics.front().loss);
  const Tensor a = learner.predict(batch_of(5, 1)), b = learner.predict(batch_of(5, 8));
  for (int64_t i = 0; i < a.count(); ++i)
    ASSERT_EQ(a.view<float>()[static_cast<size_t>(i)], b.view<float>()[static_cast<size_t>(i)]);
}

// With an average that hardly moves, predictions remain those of the initial weights.
TEST(Learner, EvaluatesWithTheMeanOfTheWeights) {
  Learner still = make_learner(kDecoder, R"({"optimizer": "sgd", "ema_decay": 0.9999999})", 0.5);
  still.prepare(counting_batch(0));
  const Tensor before = still.predict(counting_batch(0));
  for (int i = 0; i < 10; ++i) still.step(counting_batch(i));
  const Tensor after = still.predict(counting_batch(0));
  for (size_t i = 0; i < 50; ++i)
    EXPECT_NEAR(before.view<float>()[i], after.view<float>()[i], 1e-4);
  Learner moving = make_learner(kDecoder, R"({"optimizer": "sgd"})", 0.5);
  for (int i = 0; i < 10; ++i) moving.step(counting_batch(i));
  const Tensor moved = moving.predict(counting_batch(0));
  double difference = 0;
  for (size_t i = 0; i < 50; ++i)
    difference += std::abs(static_cast<double>(before.view<float>()[i] - moved.view<float>()[i]));
  EXPECT_GT(difference, 0.1);
}

std::string not_finite(Learner& learner) {
  try {
    while (!learner.take_metrics(true).empty()) continue;  // results of earlier steps come first
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::not_finite);
    return error.what();
  }
  return "";
}

// For predictions, batch normalisation is folded into the weights, which must be the current ones.
TEST(Learner, PredictionsFollowTheWeights) {
  const auto make = [] {
    return train::Learner(
        {&kernels(), [](gpu::Kernels*) {}},
        {parse_json(R"({"layers": [{"layer": "conv2d", "filters": 4}, {"layer": "batch_norm"},
                                          {"layer": "flatten"}, {"layer": "dense", "units": 3}]})",
                    "model"),
         Json{{"optimizer", "sgd"}}, Json{{"learning_rate", 0.1}}, 3, 10});
  };
  const auto output_of = [](train::Learner& learner, const pipeline::Item& batch) {
    const Tensor y = learner.predict(batch);
    return std::vector<float>(y.view<float>().begin(), y.view<float>().end());
  };
  Tensor image(DType::f32, {4, 6, 6, 2}), label(DType::i32, {4});
  for (size_t i = 0; i < 288; ++i) image.mutable_view<float>()[i] = static_cast<float>(i % 7);
  for (size_t i = 0; i < 4; ++i) label.mutable_view<int32_t>()[i] = static_cast<int32_t>(i % 3);
  pipeline::Item batch;
  batch.set("image", image);
  batch.set("label", label);
  train::Learner learner = make();
  const auto first = output_of(learner, batch);
  EXPECT_EQ(output_of(learner, batch), first);
  learner.step(batch);
  const auto second = output_of(learner, batch);
  EXPECT_NE(second, first);
  checkpoint::Files files;
  learner.save(files);
  train::Learner other = make();
  EXPECT_EQ(output_of(other, batch), first);
  other.load(files);
  EXPECT_EQ(output_of(other, batch), second);
}

TEST(Learner, RefusesSamplesWithoutElements) {
  for (const Shape& shape : {Shape{2, 0}, Shape{2, 0, 8}, Shape{2, 8, 0}}) {
    Learner learner =
        make_learner(R"({"layers": [{"layer": "dense", "units": 2}]})", R"({"optimizer": "sgd"})");
    pipeline::Item batch;
    batch.set("image", Tensor(DType::f32, shape));
    batch.set("label", symbols(2, 0, [](int64_t, int64_t) { return 0; }));
    EXPECT_EQ(error_text([&] { learner.predict(batch); }),
              cat("field 'image' is f32 ", shape_text(shape), ": its samples have no elements"));
  }
}

TEST(Learner, NamesWhatMadeTheFirstNaN) {
  const auto batch_of = [](float value, int label) {
    pipeline::Item batch;
    Tensor x(DType::f32, {4, 3});
    for (float& v : x.mutable_view<float>()) v = value;
    batch.set("image", x);
    batch.set("label", symbols(4, 0, [&](int64_t, int64_t) { return label; }));
    return batch;
  };
  std::string options;
  const auto error_of = [&](const pipeline::Item& bad) {
    const std::string model = cat("{", options, R"(
        "layers": [{"layer": "dense", "units": 4, "name": "first"},
                   {"layer": "activation", "function": "exp", "name": "grows"},
                   {"layer": "dense", "units": 2, "init": "zeros"}]})");
    Learner learner = make_learner(model, R"({"optimizer": "adam", "accumulate": 2})");
    learner.step(batch_of(1, 1));
    learner.step(batch_of(1, 0));
    learner.take_metrics(true);
    const Tensor before = learner.predict(batch_of(1, 1));
    learner.step(bad);
    learner.step(batch_of(1, 0));
    const std::string message = not_finite(learner);
    const Tensor after = learner.predict(batch_of(1, 1));
    for (size_t i = 0; i < 8; ++i) EXPECT_TRUE(std::isfinite(after.view<float>()[i]));
    EXPECT_EQ(before.shape(), after.shape());
    return message;
  };
  EXPECT_NE(error_of(batch_of(NAN, 0))
                .find("step 3: the loss is nan; the first to be NaN or "
                      "infinite: the batch's field 'image'"),
            std::string::npos);
  EXPECT_NE(error_of(batch_of(1e9f, 0)).find("'grows', in its kernel unary"), std::string::npos);
  const std::string wrong_label = error_of(batch_of(1, 7));
  EXPECT_NE(wrong_label.find("in its kernel softmax_cross_entropy"), std::string::npos);
  EXPECT_EQ(wrong_label.find("label 7, but the model has 2 classes"), 0u) << wrong_label;

  options = R"("quantize": 4, "frozen": ["first.*"],)";
  EXPECT_NE(error_of(batch_of(NAN, 0)).find("the batch's field 'image'"), std::string::npos);
}

// Returns a batch of so many samples with labels, two of each class.
pipeline::Item labelled(const Shape& shape) {
  pipeline::Item batch;
  Tensor x(DType::f32, shape);
  for (size_t i = 0; i < static_cast<size_t>(x.count()); ++i)
    x.mutable_view<float>()[i] = static_cast<float>(i % 7) / 7;
  batch.set("image", x);
  batch.set("label",
            symbols(shape[0], 0, [](int64_t i, int64_t) { return static_cast<int>(i / 2 % 2); }));
  return batch;
}

// Recurrent layers write what they keep position by position; large products pad their operands;
// matching boxes works with integers.
TEST(Learner, NamesNoneOfTheLayersBeforeTheFirstNaN) {
  pipeline::Item boxes = labelled({2, 32, 32, 3});
  Tensor given(DType::f32, {2, 32, 5});
  for (size_t i = 0; i < 64; ++i) {  // the first sample has one box, the second none
    const float box[] = {i == 0 ? 1.0f : -1.0f, 0.2f, 0.2f, 0.6f, 0.7f};
    std::copy(std::begin(box), std::end(box),
              given.mutable_view<float>().begin() + static_cast<ptrdiff_t>(5 * i));
  }
  boxes.set("boxes", given);
  const std::string ends =
      R"({"layer": "flatten"}, {"layer": "dense", "units": 2, "name": "last"}]})";
  const struct {
    std::string model, weight, named;
    pipeline::Item batch;
  } cases[] = {
      {R"({"layers": [{"layer": "lstm", "units": 4}, )" + ends, "last.weight", "'last'",
       labelled({4, 8, 3})},
      {R"({"layers": [{"layer": "gru", "units": 4}, )" + ends, "last.weight", "'last'",
       labelled({4, 8, 3})},
      {R"({"layers": [{"layer": "dense", "units": 1024, "activation": "relu"},
                      {"layer": "dense", "units": 1024, "activation": "relu"}, )" +
           ends,
       "last.weight", "'last'", labelled({256, 1024})},
      {R"({"model": "ssd", "classes": 2, "width": 8, "levels": 2, "first_level": 2})", "head2.bias",
       "in its kernel multibox_loss", boxes},
  };
  for (const auto& [model, weight, named, batch] : cases) {
    Learner learner = make_learner(model, R"({"optimizer": "sgd"})", 1e-6);
    learner.step(batch);
    learner.take_metrics(true);
    Tensor large(DType::f32, learner.weights(weight)[0].tensor.shape());
    for (float& value : large.mutable_view<float>()) value = 3e38f;
    learner.set_weights({{weight, large}});
    learner.step(batch);
    const std::string message = not_finite(learner);
    EXPECT_NE(message.find("the first to be NaN or infinite: "), std::string::npos) << message;
    EXPECT_NE(message.find(named), std::string::npos) << message;
  }
}

std::string with_precision(const std::string& model, const char* precision) {
  Json json = parse_json(model, "model");
  json["precision"] = precision;
  return json.dump();
}

std::vector<float> weights_of(Learner& learner) {
  checkpoint::Files files;
  learner.save(files);
  std::vector<float> out;
  for (const auto& [name, tensor] :
       checkpoint::read_safetensors(files.at("weights.safetensors"), "weights"))
    out.insert(out.end(), tensor.view<float>().begin(), tensor.view<float>().end());
  return out;
}

// More steps are in flight before the host knows that one has failed.
TEST(Learner, NothingIsLostOrChangedAroundAStepThatIsNotFinite) {
  const auto batch_of = [](float value, int first_label = 0) {
    pipeline::Item batch;
    Tensor x(DType::f32, {4, 3});
    for (size_t i = 0; i < 12; ++i)
      x.mutable_view<float>()[i] = value * static_cast<float>(i % 5) - 1;
    batch.set("image", x);
    batch.set("label", symbols(4, 0, [first_label](int64_t i, int64_t) {
                return first_label + static_cast<int>(i % 2);
              }));
    return batch;
  };
  for (const char* precision : {"fp32", "fp16"}) {
    Learner learner = make_learner(
        with_precision(R"({"layers": [{"layer": "dense", "units": 4}, {"layer": "batch_norm"},
                                      {"layer": "dense", "units": 2}]})",
                       precision),
        R"({"optimizer": "adam", "ema_decay": 0.5})");
    learner.step(batch_of(1));
    ASSERT_EQ(learner.take_metrics(true).size(), 1u);
    learner.step(batch_of(2));
    const std::vector<float> before = weights_of(learner);
    learner.step(batch_of(NAN));
    learner.step(batch_of(3));
    learner.step(batch_of(4));
    const auto taken = learner.take_metrics(true);
    ASSERT_EQ(taken.size(), 1u) << precision;
    EXPECT_EQ(taken[0].step, 2u);
    const std::string message = not_finite(learner);
    EXPECT_NE(message.find("step 3: the loss is nan; the first to be NaN or infinite: the batch's"),
              std::string::npos);
    EXPECT_NE(message.find("steps 4 to 5 after it were left out"), std::string::npos);
    const std::vector<float> after = weights_of(learner);
    ASSERT_EQ(after.size(), before.size());
    size_t moved = 0;  // at most the running statistics of batch normalisation
    for (size_t i = 0; i < after.size(); ++i) {
      EXPECT_TRUE(std::isfinite(after[i])) << precision;
      moved += before[i] != after[i];
    }
    EXPECT_LE(moved, 8u) << precision;
    EXPECT_EQ(not_finite(learner), "");
    learner.step(batch_of(5));
    EXPECT_EQ(learner.take_metrics(true).size(), 1u);
    EXPECT_NE(weights_of(learner), after) << "training goes on";
    // The step itself moves the running statistics. Its repetition does not move them again.
    learner.step(batch_of(6, /*first_label=*/7));
    const std::vector<float> stepped = weights_of(learner);
    EXPECT_NE(not_finite(learner), "");
    EXPECT_EQ(weights_of(learner), stepped) << precision;
  }
}

// Only a step that was not finite is repeated, on its batch.
TEST(Learner, KeepsFewBatchesWhileNobodyTakesResults) {
  Learner learner =
      make_learner(R"({"layers": [{"layer": "dense", "units": 3}]})", R"({"optimizer": "sgd"})");
  std::vector<std::weak_ptr<void>> images;
  const auto step = [&](int label) {
    const auto values = std::make_shared<std::vector<float>>(8, 0.5f);
    images.emplace_back(values);
    pipeline::Item batch;
    batch.set("image", Tensor(DType::f32, {2, 4},
                              {values, reinterpret_cast<const std::byte*>(values->data())}));
    batch.set("label", symbols(2, 0, [&](int64_t, int64_t) { return label; }));
    learner.step(batch);
  };
  const auto kept = [&] {
    return std::count_if(images.begin(), images.end(),
                         [](const auto& image) { return !image.expired(); });
  };
  for (const int label : {1, 3}) {  // there is no class 3
    for (int i = 0; i < 20; ++i) {
      step(label);
      EXPECT_LE(kept(), graph::Runner::kSlots + 1) << "label " << label << ", step " << i;
    }
  }
  const auto taken = learner.take_metrics(true);
  ASSERT_EQ(taken.size(), 20u);
  EXPECT_EQ(taken.front().step, 1u);
  EXPECT_EQ(taken.back().step, 20u);
  EXPECT_TRUE(learner.has_untaken());
  const std::string message = not_finite(learner);
  EXPECT_EQ(message.find("label 3, but the model has 3 classes"), 0u) << message;
  EXPECT_NE(message.find("step 21: "), std::string::npos) << message;
  EXPECT_NE(message.find("steps 22 to 40 after it were left out"), std::string::npos) << message;
  EXPECT_EQ(kept(), 0);
  step(1);
  EXPECT_EQ(learner.take_metrics(true).size(), 1u) << "training goes on";
}

TEST(Learner, ARunThatMakesNoUpdateSaysSoWhereItsScheduleNeedsALength) {
  const auto error_of = [](int64_t steps) {
    return error_text([&] {
      const Learner learner(shared_kernels(),
                            {parse_json(R"({"layers": [{"layer": "dense", "units": 2}]})", "model"),
                             Json{{"optimizer", "sgd"}, {"accumulate", 4}},
                             Json{{"schedule", "linear"}, {"learning_rate", 0.1}}, 3, steps});
    });
  };
  EXPECT_EQ(error_of(3).find("the run has 3 steps, and 'accumulate' is 4, so that it makes no "),
            0u)
      << error_of(3);
  EXPECT_EQ(error_of(0).find("schedule 'linear' needs a step at which it ends"), 0u) << error_of(0);
  EXPECT_EQ(error_of(4), "");
}

// A loss can be infinite while its gradients are finite.
TEST(Learner, ALossThatIsNotFiniteChangesNothing) {
  Learner learner = make_learner(
      R"({"layers": [{"layer": "dense", "units": 1, "bias": false}], "loss": {"loss": "mse"}})",
      R"({"optimizer": "sgd"})");
  pipeline::Item batch;
  Tensor x(DType::f32, {2, 1}), target(DType::f32, {2, 1});
  for (float& v : x.mutable_view<float>()) v = 1e-3f;
  for (float& v : target.mutable_view<float>()) v = 1e20f;
  batch.set("image", x);
  batch.set("label", target);
  learner.prepare(batch);
  const std::vector<float> before = weights_of(learner);
  learner.step(batch);
  EXPECT_NE(not_finite(learner).find("step 1: the loss is inf"), std::string::npos);
  EXPECT_EQ(weights_of(learner), before);
}

// The loss is finite, but the gradient of the square root at 0 is not.
TEST(Learner, AGradientThatIsNotFiniteChangesNothing) {
  Learner learner = make_learner(
      R"({"layers": [{"layer": "dense", "units": 3, "init": "zeros", "bias": false},
                     {"layer": "activation", "function": "sqrt", "name": "root"}],
          "loss": {"loss": "mse"}})",
      R"({"optimizer": "lamb"})");
  pipeline::Item batch;
  Tensor x(DType::f32, {2, 3}), target(DType::f32, {2, 3});
  for (float& v : x.mutable_view<float>()) v = 1;
  for (float& v : target.mutable_view<float>()) v = 2;
  batch.set("image", x);
  batch.set("label", target);
  learner.step(batch);
  const std::string message = not_finite(learner);
  EXPECT_NE(
      message.find("a gradient is not finite; the first to be NaN or infinite: 'root (gradient)'"),
      std::string::npos)
      << message;
  const Tensor after = learner.predict(batch);
  for (const float v : after.view<float>()) EXPECT_EQ(v, 0);
}

// Parameters that the device cannot bind at once are updated in parts.
TEST(Learner, TrainsAlikeWhereTheDeviceBindsLittle) {
  const auto losses_on = [](uint64_t max_storage_bytes) {
    gpu::DeviceOptions options = device_options(gpu::KernelFamily::tiled);
    options.lowered.max_storage_bytes = max_storage_bytes;
    const auto kernels = std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(options));
    Learner learner(
        kernels,
        {parse_json(R"({"layers": [{"layer": "dense", "units": 3000, "activation": "relu"},
                                               {"layer": "dense", "units": 5}]})",
                    "model"),
         parse_json(R"({"optimizer": "adam", "clip_norm": 0.1, "ema_decay": 0.9, "accumulate": 2})",
                    "optimizer"),
         Json{{"learning_rate", 0.01}}, 3, 100});
    Tensor x(DType::f32, {4, 6});
    for (size_t i = 0; i < 24; ++i) x.mutable_view<float>()[i] = static_cast<float>(i % 7) / 7;
    pipeline::Item batch;
    batch.set("image", x);
    batch.set("label", symbols(4, 0, [](int64_t r, int64_t) { return static_cast<int>(r); }));
    for (int i = 0; i < 12; ++i) learner.step(batch);
    std::vector<float> out;
    for (const auto& metrics : learner.take_metrics(true)) out.push_back(metrics.loss);
    return out;
  };
  const auto whole = losses_on(0), parts = losses_on(80 << 10);
  ASSERT_EQ(whole.size(), parts.size());
  // The norm is also summed in parts, so it is rounded differently.
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(whole[i], parts[i], 1e-5);
  EXPECT_LT(whole.back(), 0.9f * whole.front());
}

// Recomputed activations equal those that were discarded, and running statistics move only once.
TEST(Learner, RecomputingTrainsAlikeInLessMemory) {
  const auto run = [](bool recompute, uint64_t& bytes) {
    Json model = parse_json(R"({"layers": [
        {"layer": "repeat", "times": 12, "layers": [
          {"layer": "residual", "layers": [
            {"layer": "conv2d", "filters": 16}, {"layer": "batch_norm", "activation": "relu"},
            {"layer": "dropout", "rate": 0.2}]}]},
        {"layer": "conv2d", "filters": 16, "activation": "relu"}, {"layer": "max_pool"},
        {"layer": "flatten"}, {"layer": "dense", "units": 4}]})",
                            "model");
    model["recompute"] = recompute;
    Learner learner(shared_kernels(), {model, parse_json(R"({"optimizer": "sgd"})", "optimizer"),
                                       Json{{"learning_rate", 0.01}}, 3, 100});
    Tensor x(DType::f32, {8, 24, 24, 16});
    Rng rng(1);
    for (float& v : x.mutable_view<float>()) v = rng.uniform(-1, 1);
    pipeline::Item batch;
    batch.set("image", x);
    batch.set("label", symbols(8, 0, [](int64_t r, int64_t) { return static_cast<int>(r) % 4; }));
    for (int i = 0; i < 4; ++i) learner.step(batch);
    std::vector<float> out;
    for (const auto& metrics : learner.take_metrics(true)) out.push_back(metrics.loss);
    bytes = learner.plan_bytes();
    const Tensor y = learner.predict(batch);  // with the running statistics
    out.insert(out.end(), y.view<float>().begin(), y.view<float>().end());
    return out;
  };
  uint64_t kept = 0, recomputed = 0;
  EXPECT_EQ(run(false, kept), run(true, recomputed));
  EXPECT_LT(static_cast<double>(recomputed), 0.7 * static_cast<double>(kept));
}

// Saves in the middle of an accumulation, with an average and a proximal term.
TEST(Learner, GoesOnBitForBit) {
  const char* optimizer =
      R"({"optimizer": "adamw", "accumulate": 3, "clip_norm": 0.5, "ema_decay": 0.9, "proximal": 0.1})";
  Learner whole = make_learner(kDecoder, optimizer), first = make_learner(kDecoder, optimizer);
  for (int i = 0; i < 10; ++i) whole.step(counting_batch(i));
  for (int i = 0; i < 4; ++i) first.step(counting_batch(i));
  checkpoint::Files files;
  first.save(files);
  Learner second = make_learner(kDecoder, optimizer);
  second.load(files);
  for (int i = 4; i < 10; ++i) second.step(counting_batch(i));
  checkpoint::Files a, b;
  whole.save(a);
  second.save(b);
  EXPECT_EQ(a.at("weights.safetensors"), b.at("weights.safetensors"));
  EXPECT_EQ(a.at("optimizer.safetensors"), b.at("optimizer.safetensors"));
}

TEST(Learner, MixedPrecisionLearnsAlike) {
  const auto last_loss = [](const char* precision) {
    Learner learner = make_learner(with_precision(kDecoder, precision),
                                   R"({"optimizer": "adamw", "clip_norm": 1})");
    for (int i = 0; i < 60; ++i) learner.step(counting_batch(i));
    const auto metrics = learner.take_metrics(true);
    EXPECT_EQ(metrics.size(), 60u);
    EXPECT_LT(metrics.back().loss, 0.5f * metrics.front().loss);
    return metrics.back().loss;
  };
  const float full = last_loss("fp32");
  for (const char* precision : {"bf16", "fp16"}) {
    const float loss = last_loss(precision);
    EXPECT_NE(loss, full) << "operands are rounded";
    EXPECT_NEAR(loss, full, 0.15 * static_cast<double>(full)) << precision;
  }
}

// Gradients that overflow at the initial loss scale change nothing. The scale falls until they fit,
// and is saved.
TEST(Learner, TheLossScaleFallsUntilGradientsFit) {
  const std::string model = with_precision(
      R"({"layers": [{"layer": "dense", "units": 8, "name": "a"}, {"layer": "dense", "units": 2}],
          "loss": {"loss": "mse"}})",
      "fp16");
  pipeline::Item batch;
  Tensor x(DType::f32, {4, 3}), target(DType::f32, {4, 2});
  for (float& v : x.mutable_view<float>()) v = 1;
  for (float& v : target.mutable_view<float>()) v = 4000;  // dloss = 1000, or 6.5e7 when scaled
  batch.set("image", x);
  batch.set("label", target);
  for (const char* optimizer :
       {R"({"optimizer": "adam"})", R"({"optimizer": "adam", "accumulate": 3})"}) {
    Learner learner = make_learner(model, optimizer);
    for (int i = 0; i < 24; ++i) learner.step(batch);
    const auto steps = learner.take_metrics(true);
    size_t skipped = 0;
    while (skipped < steps.size() && steps[skipped].skipped) ++skipped;
    EXPECT_GE(skipped, 9u);
    EXPECT_LE(skipped, 12u);
    for (size_t i = 0; i < skipped; ++i) EXPECT_EQ(steps[i].loss, steps[0].loss) << i;
    for (size_t i = skipped; i < steps.size(); ++i) EXPECT_FALSE(steps[i].skipped) << i;
    EXPECT_LT(steps.back().loss, steps[0].loss);
    // A learner that loads the checkpoint begins with this scale.
    checkpoint::Files files;
    learner.save(files);
    Learner next = make_learner(model, optimizer);
    next.load(files);
    next.step(batch);
    learner.step(batch);
    const auto a = next.take_metrics(true), b = learner.take_metrics(true);
    EXPECT_FALSE(a[0].skipped);
    EXPECT_EQ(a[0].loss, b[0].loss);
  }
}

// If no scale helps, the gradients themselves are not finite, and the error names the first one.
TEST(Learner, TheLossScaleDoesNotFallForever) {
  Learner learner = make_learner(
      with_precision(R"({"layers": [{"layer": "dense", "units": 3, "init": "zeros", "bias": false},
                                    {"layer": "activation", "function": "sqrt", "name": "root"}],
                         "loss": {"loss": "mse"}})",
                     "fp16"),
      R"({"optimizer": "sgd"})");
  pipeline::Item batch;
  Tensor x(DType::f32, {2, 3});
  for (float& v : x.mutable_view<float>()) v = 1;
  batch.set("image", x);
  batch.set("label", x);
  for (int i = 0; i < 40; ++i) learner.step(batch);
  EXPECT_NE(not_finite(learner).find("'root (gradient)'"), std::string::npos);
}

// Three accumulated batches of 8 rows give the update of one batch of 24.
TEST(Learner, AccumulatedBatchesAreALargeOne) {
  const auto rows = [](int begin, int count) {
    pipeline::Item batch;
    Tensor x(DType::f32, {count, 5}), y(DType::i32, {count});
    for (int r = 0; r < count; ++r) {
      y.mutable_view<int32_t>()[static_cast<size_t>(r)] = (begin + r) % 3;
      for (int k = 0; k < 5; ++k)
        x.mutable_view<float>()[static_cast<size_t>(r * 5 + k)] =
            std::sin(static_cast<float>((begin + r) * 5 + k));
    }
    batch.set("image", x);
    batch.set("label", y);
    return batch;
  };
  const char* model = R"({"layers": [{"layer": "dense", "units": 3}]})";
  Learner parts = make_learner(model, R"({"optimizer": "sgd", "accumulate": 3})", 0.5);
  Learner whole = make_learner(model, R"({"optimizer": "sgd"})", 0.5);
  for (int i = 0; i < 3; ++i) parts.step(rows(8 * i, 8));
  whole.step(rows(0, 24));
  const Tensor a = parts.predict(rows(0, 8)), b = whole.predict(rows(0, 8));
  for (size_t i = 0; i < 24; ++i) EXPECT_NEAR(a.view<float>()[i], b.view<float>()[i], 1e-6);
}

TEST(Learner, ErrorsNameTheFieldOfASequence) {
  Learner learner = make_learner(kDecoder, R"({"optimizer": "sgd"})");
  learner.prepare(counting_batch(0));
  pipeline::Item batch = counting_batch(0);
  batch.set("target", symbols(8, 11, [](int64_t, int64_t) { return 0; }));
  try {
    learner.step(batch);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "field 'target' is i32 [8, 11]; this model works on i32 [N, 12]");
  }
}

TEST(Profile, SaysWhereTheTimeGoes) {
  Learner learner = make_learner(kDecoder, R"({"optimizer": "sgd"})");
  const Json profile = learner.profile(counting_batch(0), 3);
  EXPECT_GT(profile["seconds"].get<double>(), 0);
  EXPECT_GT(profile["roof"]["flops_per_s"].get<double>(), 1e8);
  EXPECT_GT(profile["roof"]["bytes_per_s"].get<double>(), 1e8);
  double sum = 0;
  int calls = 0, products = 0;
  for (const Json& row : profile["ops"]) {
    sum += row["seconds"].get<double>();
    calls += row["calls"].get<int>();
    if (row["kernel"].get<std::string>().starts_with("gemm")) {
      ++products;
      EXPECT_GT(row["flops_per_s"].get<double>(), 0) << row.dump();
    }
  }
  EXPECT_NEAR(sum, profile["seconds"].get<double>(), 1e-9);
  EXPECT_EQ(calls, static_cast<int>(profile["traceEvents"].size()));
  EXPECT_GE(products, 8);  // qkv, output, up, down and symbols, forward and gradients
  const auto has = [&](const char* op, const char* kernel) {
    return std::any_of(profile["ops"].begin(), profile["ops"].end(),
                       [&](const Json& row) { return row["op"] == op && row["kernel"] == kernel; });
  };
  const bool on_cpu = device()->family() == gpu::KernelFamily::cpu;
  EXPECT_TRUE(has("block1.attend.attention (gradient)",
                  on_cpu ? "attention_grad_q" : "attention_tiled_grad_q"))
      << profile["ops"].dump(1);
  EXPECT_TRUE(has("optimizer", "optimizer_sgd"));
  const std::string text = train::profile_text(profile);
  EXPECT_NE(text.find("in kernels, one after another"), std::string::npos) << text;
  EXPECT_NE(text.find("more\n"), std::string::npos) << "the text has only the first 20 rows";
}

// If profiled runs were no real steps, later ones could be timed on a loss that is not finite, for
// which the optimizer does nothing.
TEST(Profile, ItsRunsAreStepsOnTheBatch) {
  Learner profiled = make_learner(kDecoder, R"({"optimizer": "sgd"})");
  profiled.profile(counting_batch(0), 3);
  Learner trained = make_learner(kDecoder, R"({"optimizer": "sgd"})");
  for (int i = 0; i < 5; ++i)  // one before the recording, one that compiles, three timed
    trained.step(counting_batch(0));
  trained.take_metrics(true);
  const auto there = profiled.weights(""), here = trained.weights("");
  ASSERT_EQ(there.size(), here.size());
  ASSERT_FALSE(here.empty());
  for (size_t i = 0; i < here.size(); ++i) {
    const auto a = there[i].tensor.view<float>(), b = here[i].tensor.view<float>();
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end())) << here[i].name;
  }
}

TEST(Learner, DeviceMemoryCountsWeightsGradientsAndOptimizerState) {
  Learner learner = make_learner(kDecoder, R"({"optimizer": "adam"})");
  EXPECT_EQ(learner.device_bytes(), 0u);
  learner.step(counting_batch(0));
  learner.take_metrics(true);
  const auto of_each = 4 * static_cast<uint64_t>(learner.trainable());
  EXPECT_GE(learner.device_bytes(), learner.plan_bytes() + 4 * of_each) << "w, g, m and v";
}

}  // namespace
}  // namespace etr::test

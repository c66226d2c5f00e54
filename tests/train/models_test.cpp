// Every ready-made model trains and predicts. With validation layers this checks the ops with the
// shapes that models use.
#include <gtest/gtest.h>

#include <cmath>

#include "core/rng.h"
#include "nn/models.h"
#include "support/device.h"
#include "support/sanitized.h"
#include "train/learner.h"

namespace etr::test {
namespace {

Tensor floats(const Shape& shape, Rng& rng) {
  Tensor out(DType::f32, shape);
  for (float& v : out.mutable_view<float>()) v = rng.uniform(-1, 1);
  return out;
}

Tensor integers(const Shape& shape, uint32_t below, Rng& rng) {
  Tensor out(DType::i32, shape);
  for (int32_t& v : out.mutable_view<int32_t>()) v = static_cast<int32_t>(rng.below(below));
  return out;
}

struct Case {
  const char* options;  // that make the model small
  std::function<void(pipeline::Item&, Rng&)> fill;
  Shape output;
};

std::function<void(pipeline::Item&, Rng&)> images(const Shape& shape) {
  return [shape](pipeline::Item& batch, Rng& rng) {
    batch.set("image", floats(shape, rng));
    batch.set("label", integers({shape[0]}, 10, rng));
  };
}

const std::map<std::string, Case>& cases() {
  static const std::map<std::string, Case> all{
      {"mlp", {R"({"hidden": [17]})", images({3, 5, 7, 1}), {3, 10}}},
      {"simple_cnn", {"{}", images({2, 28, 28, 1}), {2, 10}}},
      {"cifar_resnet", {R"({"depth": 8})", images({3, 32, 32, 3}), {3, 10}}},
      {"resnet", {R"({"depth": 18, "classes": 10})", images({2, 64, 64, 3}), {2, 10}}},
      {"ssd",
       {R"({"classes": 2, "width": 8, "levels": 3, "first_level": 2})",
        [](pipeline::Item& batch, Rng& rng) {
          batch.set("image", floats({2, 32, 32, 3}, rng));
          Tensor boxes(DType::f32, {2, 32, 5});
          for (size_t i = 0; i < 64; ++i) {
            const float x = rng.uniform(0, 0.5f), y = rng.uniform(0, 0.5f);
            const float box[] = {i % 32 < 3 ? static_cast<float>(i % 2) : -1.0f, x, y,
                                 x + rng.uniform(0.2f, 0.5f), y + rng.uniform(0.2f, 0.5f)};
            std::copy(std::begin(box), std::end(box),
                      boxes.mutable_view<float>().begin() + static_cast<ptrdiff_t>(5 * i));
          }
          batch.set("boxes", std::move(boxes));
        },
        {2, 4 * (8 * 8 + 4 * 4), 11}}},
      {"transformer_decoder",
       {R"({"vocab_size": 10, "blocks": 1, "width": 16, "heads": 2})",
        [](pipeline::Item& batch, Rng& rng) {
          batch.set("input", integers({3, 7}, 10, rng));
          batch.set("target", integers({3, 7}, 10, rng));
        },
        {3, 7, 10}}},
      {"llama",
       {R"({"vocab_size": 10, "blocks": 1, "width": 16, "heads": 2, "kv_heads": 1})",
        [](pipeline::Item& batch, Rng& rng) {
          batch.set("input", integers({3, 7}, 10, rng));
          batch.set("target", integers({3, 7}, 10, rng));
        },
        {3, 7, 10}}},
      {"transformer",
       {R"({"vocab_size": 10, "blocks": 1, "width": 16, "heads": 2})",
        [](pipeline::Item& batch, Rng& rng) {
          batch.set("source", integers({3, 5}, 10, rng));
          batch.set("source_length", integers({3}, 6, rng));
          batch.set("input", integers({3, 7}, 10, rng));
          batch.set("target", integers({3, 7}, 10, rng));
        },
        {3, 7, 10}}},
  };
  return all;
}

TEST(ReadyMadeModels, TrainAndPredict) {
  for (const nn::ModelSpec* model : nn::model_table()) {
    SCOPED_TRACE(model->name);
    ASSERT_TRUE(cases().count(model->name)) << "write a case for it";
    const Case& c = cases().at(model->name);
    for (const gpu::KernelFamily family : families()) {
      // A CPU takes minutes to compile a GPU's kernels in a sanitized process.
      if (kSanitized && family == gpu::KernelFamily::tiled && families().size() > 1) continue;
      Json spec = parse_json(c.options, "options");
      spec["model"] = model->name;
      spec["recompute"] = family == gpu::KernelFamily::tiled;  // so that both ways are tested
      train::Learner learner({&kernels(family), [](gpu::Kernels*) {}},
                             {spec, Json{{"optimizer", "lamb"}, {"clip_norm", 1}},
                              Json{{"learning_rate", 1e-3}}, 3, 10});
      Rng rng(7);
      pipeline::Item batch;
      c.fill(batch, rng);
      for (int step = 0; step < 2; ++step) learner.step(batch);
      for (const auto& metrics : learner.take_metrics(true)) {
        EXPECT_GT(metrics.loss, 0.0f);
        EXPECT_LT(metrics.loss, 20.0f);
      }
      const Tensor y = learner.predict(batch);
      EXPECT_EQ(y.shape(), c.output);
      for (const float v : y.view<float>()) ASSERT_TRUE(std::isfinite(v));
    }
  }
}

}  // namespace
}  // namespace etr::test

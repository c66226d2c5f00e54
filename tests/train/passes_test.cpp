// Forward and backward passes and updates one by one, for loops of the program's own.
#include "train/passes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/error.h"
#include "core/rng.h"
#include "support/error_text.h"
#include "train/small_learner.h"

namespace etr::test {
namespace {

using train::Learner;

constexpr const char* kConvolution =
    R"({"layers": [{"layer": "conv2d", "filters": 4, "activation": "relu"}, {"layer": "max_pool"},
                   {"layer": "flatten"}, {"layer": "dense", "units": 3}]})";
constexpr const char* kSgd = R"({"optimizer": "sgd"})";
constexpr const char* kAdam = R"({"optimizer": "adam"})";

Tensor drawn(const Shape& shape, uint64_t seed) {
  Tensor out(DType::f32, shape);
  Rng rng(seed, 0);
  for (float& value : out.mutable_view<float>()) value = rng.uniform(-1, 1);
  return out;
}

pipeline::Item images(int64_t rows, uint64_t seed) {
  pipeline::Item batch;
  batch.set("image", drawn({rows, 4, 4, 2}, seed));
  batch.set("label", symbols(rows, 0, [](int64_t r, int64_t) { return static_cast<int>(r % 3); }));
  return batch;
}

// The gradient of the mean softmax cross-entropy with these labels.
Tensor loss_gradient(const Tensor& logits, const Tensor& labels) {
  const int64_t rows = logits.shape()[0], classes = logits.shape()[1];
  Tensor out(DType::f32, logits.shape());
  for (int64_t r = 0; r < rows; ++r) {
    const auto at = [&](int64_t c) { return static_cast<size_t>(r * classes + c); };
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(logits.view<float>()[at(c)]);
    for (int64_t c = 0; c < classes; ++c) {
      const double p = std::exp(logits.view<float>()[at(c)]) / sum;
      const bool is_label = labels.view<int32_t>()[static_cast<size_t>(r)] == c;
      out.mutable_view<float>()[at(c)] =
          static_cast<float>((p - (is_label ? 1 : 0)) / static_cast<double>(rows));
    }
  }
  return out;
}

void expect_near(const std::vector<pipeline::Field>& a, const std::vector<pipeline::Field>& b,
                 double within) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name);
    const auto x = values_of(a[i].tensor), y = values_of(b[i].tensor);
    ASSERT_EQ(x.size(), y.size());
    for (size_t k = 0; k < x.size(); ++k) ASSERT_NEAR(x[k], y[k], within) << a[i].name << " " << k;
  }
}

// Adds `factor` times the values of `other`.
void add(std::vector<pipeline::Field>& to, const std::vector<pipeline::Field>& other,
         float factor) {
  for (size_t i = 0; i < to.size(); ++i) {
    Tensor sum(DType::f32, to[i].tensor.shape());
    for (size_t k = 0; k < sum.view<float>().size(); ++k)
      sum.mutable_view<float>()[k] =
          to[i].tensor.view<float>()[k] + factor * other[i].tensor.view<float>()[k];
    to[i].tensor = sum;
  }
}

double dot(const Tensor& a, const Tensor& b) {
  double sum = 0;
  for (size_t i = 0; i < a.view<float>().size(); ++i)
    sum += static_cast<double>(a.view<float>()[i]) * static_cast<double>(b.view<float>()[i]);
  return sum;
}

// The program computes the same loss as the model would. `recompute` makes the backward pass
// compute values of the forward pass again.
TEST(Passes, UpdateAsStepsDo) {
  for (const char* recompute : {"", R"("recompute": true, )"})
    for (const char* optimizer : {kSgd, kAdam}) {
      const std::string model = cat("{", recompute, std::string(kConvolution).substr(1));
      Learner steps = make_learner(model, optimizer, 0.1),
              passes = make_learner(model, optimizer, 0.1);
      for (uint64_t i = 0; i < 4; ++i) {
        const auto batch = images(6, i);
        steps.step(batch);
        passes.backward(loss_gradient(passes.forward(batch), *batch.find("label")));
        const train::StepMetrics made = passes.update();
        EXPECT_EQ(made.step, i + 1);
        EXPECT_EQ(made.counts.samples, 6);
        EXPECT_FLOAT_EQ(made.learning_rate, 0.1f);
      }
      EXPECT_EQ(passes.steps(), 4u);
      expect_near(steps.weights(""), passes.weights(""), 2e-4);
    }
}

// Against differences of the output, which the gradient weighs.
TEST(Passes, GiveTheGradientsOfInputsAndParameters) {
  Learner learner = make_learner(kConvolution, kSgd);
  pipeline::Item batch = images(3, 1);
  const Tensor output = learner.forward(batch, /*input_gradients=*/true);
  const Tensor weighed = drawn(output.shape(), 9);
  const auto inputs = learner.backward(weighed);
  const auto gradients = learner.gradients("");
  ASSERT_EQ(inputs.size(), 1u);
  EXPECT_EQ(inputs[0].name, "image");
  EXPECT_EQ(inputs[0].tensor.shape(), (Shape{3, 4, 4, 2}));
  const auto difference = [&](const auto& move) {
    move(1e-2f);
    const double more = dot(weighed, learner.predict(batch));
    move(-2e-2f);
    const double less = dot(weighed, learner.predict(batch));
    move(1e-2f);
    return (more - less) / 2e-2;
  };
  for (const size_t at : {0u, 17u, 50u, 95u})
    EXPECT_NEAR(difference([&](float by) {
                  Tensor image(DType::f32, {3, 4, 4, 2});
                  const auto from = values_of(*batch.find("image"));
                  std::copy(from.begin(), from.end(), image.mutable_view<float>().begin());
                  image.mutable_view<float>()[at] += by;
                  batch.set("image", image);
                }),
                inputs[0].tensor.view<float>()[at], 2e-3)
        << at;
  for (const auto& [name, gradient] : gradients)
    EXPECT_NEAR(difference([&, of = name](float by) {
                  auto weight = learner.weights(of);
                  Tensor moved(DType::f32, weight[0].tensor.shape());
                  const auto from = values_of(weight[0].tensor);
                  std::copy(from.begin(), from.end(), moved.mutable_view<float>().begin());
                  moved.mutable_view<float>()[1] += by;
                  learner.set_weights({{of, moved}});
                }),
                gradient.view<float>()[1], 2e-3)
        << name;
}

// A generator is trained through another model, whose own gradients are then dropped.
TEST(Passes, CarryGradientsFromModelToModel) {
  Learner generator = make_learner(
      R"({"inputs": ["noise"], "layers": [{"layer": "dense", "units": 8, "activation": "tanh"},
                                          {"layer": "dense", "units": 5}], "loss": {"loss": "mse"}})",
      kAdam, 0.02);
  Learner judge = make_learner(
      R"({"inputs": ["sample"], "layers": [{"layer": "dense", "units": 1}], "loss": {"loss": "mse"}})",
      kAdam, 0.02);
  pipeline::Item noise, sample;
  noise.set("noise", drawn({16, 4}, 3));
  double first = 0, last = 0;
  std::vector<float> judging;
  for (int i = 0; i < 30; ++i) {
    sample.set("sample", generator.forward(noise));
    const Tensor scores = judge.forward(sample, /*input_gradients=*/true);
    if (i == 0) judging = values_of(judge.weights("")[0].tensor);
    Tensor up(DType::f32, scores.shape());  // raise the mean score
    std::fill(up.mutable_view<float>().begin(), up.mutable_view<float>().end(), -1.0f / 16);
    last = -dot(up, scores);
    if (i == 0) first = last;
    generator.backward(judge.backward(up)[0].tensor);
    generator.update();
  }
  EXPECT_GT(last, first + 0.5);
  EXPECT_EQ(values_of(judge.weights("")[0].tensor), judging);
}

TEST(Passes, GradientsAddUpUntilTheUpdate) {
  Learner learner = make_learner(kConvolution, kSgd, 0.5);
  const auto gradients_of = [&](uint64_t seed, int64_t rows, bool accumulate) {
    const Tensor output = learner.forward(images(rows, seed));
    learner.backward(drawn(output.shape(), 100 + seed), accumulate);
    return learner.gradients("");
  };
  auto sum = gradients_of(1, 4, false);
  const auto second = gradients_of(2, 4, false), third = gradients_of(3, 2, false);
  expect_near(gradients_of(1, 4, false), sum, 0);
  add(sum, second, 1);
  expect_near(gradients_of(2, 4, true), sum, 1e-5);
  add(sum, third, 1);
  expect_near(gradients_of(3, 2, true), sum, 1e-5);  // another plan

  auto expected = learner.weights("");
  add(expected, sum, -0.5f);
  learner.update();
  expect_near(learner.weights(""), expected, 1e-5);
  const auto after = gradients_of(1, 4, true);  // those from before the update are gone
  expect_near(gradients_of(1, 4, false), after, 0);
}

TEST(Passes, GradientsCanBeReplaced) {
  Learner learner = make_learner(kConvolution, kSgd, 0.5);
  const Tensor output = learner.forward(images(4, 1));
  learner.backward(drawn(output.shape(), 2));
  auto expected = learner.weights(""), given = learner.gradients("");
  const std::string name = given[0].name;
  given[0].tensor = drawn(given[0].tensor.shape(), 5);
  learner.set_gradients({given[0]});
  expect_near(learner.gradients(name), {given[0]}, 0);
  add(expected, given, -0.5f);
  learner.update();
  expect_near(learner.weights(""), expected, 1e-6);

  learner.backward((learner.forward(images(4, 1)), drawn(output.shape(), 2)));
  const auto expect_problem = [&](const std::vector<pipeline::Field>& fields, const char* what) {
    const std::string text = error_text([&] { learner.set_gradients(fields); });
    EXPECT_NE(text.find(what), std::string::npos) << text;
  };
  expect_problem({{"dense_9.weight", drawn({3}, 1)}}, "the model has no weight 'dense_9.weight'");
  expect_problem({{name, drawn({3}, 1)}}, "is f32 ");
  EXPECT_NE(error_text([&] { learner.gradients("dense_9.weight"); }), "");
}

// Each forward pass counts once in the running statistics, and draws its own dropout.
TEST(Passes, AreInTrainingMode) {
  constexpr const char* kNoisy =
      R"({"layers": [{"layer": "batch_norm"}, {"layer": "flatten"}, {"layer": "dropout", "rate": 0.5},
                     {"layer": "dense", "units": 3}]})";
  Learner passes = make_learner(kNoisy, kSgd), again = make_learner(kNoisy, kSgd);
  const auto first = values_of(passes.forward(images(4, 1)));
  const auto second = values_of(passes.forward(images(4, 1)));
  EXPECT_NE(first, second);
  EXPECT_EQ(values_of(again.forward(images(4, 1))), first);  // reproducible
  EXPECT_EQ(values_of(again.forward(images(4, 1))), second);

  Learner steps = make_learner(kNoisy, kSgd);
  for (int i = 0; i < 2; ++i) steps.step(images(4, 1));
  std::vector<std::string> names;
  for (const auto& field : steps.weights(""))
    if (field.name.find("running") != std::string::npos) names.push_back(field.name);
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) {
    expect_near(passes.weights(name), steps.weights(name), 1e-6);
    EXPECT_NE(error_text([&] {
                passes.backward(drawn({4, 3}, 1));
                passes.gradients(name);
              }).find("is frozen or a running statistic, and has no gradient"),
              std::string::npos);
    passes.forward(images(4, 1));
    steps.step(images(4, 1));
  }
}

TEST(Passes, MistakesAreTold) {
  const auto expect_problem = [](const auto& call, Code code, const char* what) {
    try {
      call();
      ADD_FAILURE() << "no error: " << what;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_NE(std::string(error.what()).find(what), std::string::npos) << error.what();
    }
  };
  Learner learner = make_learner(kConvolution, kSgd);
  const Tensor gradient = drawn({4, 3}, 1);
  expect_problem([&] { learner.backward(gradient); }, Code::state, "call forward() before");
  expect_problem([&] { learner.update(); }, Code::state, "call backward() first");
  expect_problem([&] { learner.gradients(""); }, Code::state, "call backward() first");
  pipeline::Item other;
  other.set("picture", drawn({4, 4, 4, 2}, 1));
  expect_problem([&] { learner.forward(other); }, Code::not_found, "image");
  learner.forward(images(4, 1));
  expect_problem(
      [&] {
        learner.backward(drawn({4, 2}, 1));
      },
      Code::invalid_argument,
      "the gradient of the output is f32 [4, 3], as the output is, not f32 [4, 2]");
  learner.backward(gradient);
  expect_problem([&] { learner.backward(gradient); }, Code::state, "call forward() before");
  learner.step(images(4, 1));  // which has gradients of its own
  expect_problem([&] { learner.update(); }, Code::state, "call backward() first");

  Learner accumulates = make_learner(kConvolution, R"({"optimizer": "sgd", "accumulate": 2})");
  expect_problem([&] { accumulates.forward(images(4, 1)); }, Code::unsupported,
                 "call backward() several times");
  Learner half =
      make_learner(cat(R"({"precision": "fp16", )", std::string(kConvolution).substr(1)), kSgd);
  expect_problem([&] { half.forward(images(4, 1)); }, Code::unsupported, "use bf16 or fp32");
}

// What a pass was computed with must still hold for the pass back from it, and for the update.
TEST(Passes, BelongToTheWeightsThatTheyWereMadeWith) {
  Learner learner = make_learner(kConvolution, kSgd);
  const Tensor gradient = drawn({4, 3}, 1);
  const auto expect_stale = [&](const auto& change) {
    learner.forward(images(4, 1));
    change();
    EXPECT_NE(error_text([&] { learner.backward(gradient); }).find("change no weights"),
              std::string::npos);
  };
  learner.forward(images(4, 1));
  expect_stale([&] { learner.set_weights(learner.weights("")); });
  expect_stale([&] { learner.step(images(4, 1)); });
  learner.take_metrics(true);
  expect_stale([&] {
    pipeline::Item wrong;
    wrong.set("picture", drawn({4, 4, 4, 2}, 1));
    EXPECT_NE(error_text([&] { learner.forward(wrong); }), "");
  });

  // A step that fails is repeated, which overwrites gradients.
  pipeline::Item bad = images(4, 1);
  Tensor image(DType::f32, {4, 4, 4, 2});
  std::fill(image.mutable_view<float>().begin(), image.mutable_view<float>().end(),
            std::numeric_limits<float>::quiet_NaN());
  bad.set("image", image);
  learner.step(bad);
  learner.backward((learner.forward(images(4, 1)), gradient));
  EXPECT_NE(error_text([&] { learner.update(); }).find("have not been taken"), std::string::npos);
  EXPECT_THROW(learner.take_metrics(true), Error);
  EXPECT_NE(error_text([&] { learner.update(); }).find("call backward() first"), std::string::npos);
  learner.backward((learner.forward(images(4, 1)), gradient));
  EXPECT_EQ(learner.update().counts.samples, 4);
}

TEST(Passes, AnUpdateThatIsNotFiniteChangesNothing) {
  Learner learner = make_learner(kConvolution, kAdam);
  const auto go = [&](float factor) {
    const Tensor output = learner.forward(images(4, 1));
    Tensor gradient(DType::f32, output.shape());
    std::fill(gradient.mutable_view<float>().begin(), gradient.mutable_view<float>().end(), factor);
    learner.backward(gradient);
  };
  go(1);
  learner.update();
  const auto before = learner.weights("");
  go(std::numeric_limits<float>::quiet_NaN());
  EXPECT_NE(error_text([&] { learner.update(); }).find("step 2: a gradient is not finite"),
            std::string::npos);
  expect_near(learner.weights(""), before, 0);
  EXPECT_EQ(learner.steps(), 1u);
  go(1);
  EXPECT_EQ(learner.update().step, 2u);
  EXPECT_NE(values_of(learner.weights("")[0].tensor), values_of(before[0].tensor));
}

// The others are trained as in the whole model, of which the same gradients are computed.
TEST(Frozen, ParametersStay) {
  constexpr const char* kLayers =
      R"("layers": [{"layer": "conv2d", "filters": 4, "name": "body"}, {"layer": "batch_norm", "activation": "relu"},
                    {"layer": "flatten"}, {"layer": "dense", "units": 3, "name": "head"}]})";
  for (const char* optimizer : {kSgd, kAdam}) {
    Learner whole = make_learner(cat("{", kLayers), optimizer),
            part = make_learner(cat(R"({"frozen": ["body.*", "*beta"], )", kLayers), optimizer);
    part.predict(images(6, 1));
    const auto before = part.weights("");
    for (Learner* each : {&whole, &part}) each->step(images(6, 1));
    const auto after = part.weights(""), expected = whole.weights("");
    ASSERT_EQ(after.size(), before.size());
    for (size_t i = 0; i < after.size(); ++i) {
      const bool is_frozen = after[i].name.starts_with("body.") || after[i].name.ends_with("beta");
      EXPECT_EQ(values_of(after[i].tensor), values_of((is_frozen ? before : expected)[i].tensor))
          << after[i].name;
    }
    EXPECT_EQ(part.summary()["frozen"], 2 * 9 * 4 + 4 + 4);
    EXPECT_EQ(part.summary()["parameters"], whole.summary()["parameters"]);
    EXPECT_EQ(part.trainable(), whole.trainable() - (2 * 9 * 4 + 4 + 4));
    part.forward(images(6, 1));
    part.backward(drawn({6, 3}, 1));
    for (const auto& gradient : part.gradients(""))
      EXPECT_FALSE(gradient.name.starts_with("body."));
    EXPECT_NE(error_text([&] { part.gradients("body.weight"); }).find("is frozen"),
              std::string::npos);

    checkpoint::Files files;
    part.save(files);
    Learner again = make_learner(cat(R"({"frozen": ["body.*", "*beta"], )", kLayers), optimizer);
    again.load(files);
    EXPECT_EQ(values_of(again.predict(images(6, 2))), values_of(part.predict(images(6, 2))));
    EXPECT_FALSE(again.onnx().empty());
    if (optimizer == kAdam)
      for (const char* other : {"{", R"({"frozen": ["head.bias", "head.*"], )"}) {
        Learner differs = make_learner(cat(other, kLayers), optimizer);
        const std::string text = error_text([&] {
          differs.load(files);
          differs.predict(images(6, 2));
        });
        EXPECT_NE(text.find("other parameters were frozen (body.weight, ...; here "),
                  std::string::npos)
            << text;
      }
    again.set_weights({{"body.bias", drawn({4}, 7)}});
    EXPECT_NE(values_of(again.predict(images(6, 2))), values_of(part.predict(images(6, 2))));
  }
  const auto problem = [&](const char* frozen) {
    return error_text([&] {
      make_learner(cat(R"({"frozen": [")", frozen, R"("], )", kLayers), kSgd).predict(images(6, 1));
    });
  };
  EXPECT_NE(problem("bodi.*").find("'frozen' has 'bodi.*', which is the name of no parameter"),
            std::string::npos)
      << problem("bodi.*");
  EXPECT_NE(problem("*").find("leaves no parameter to train"), std::string::npos) << problem("*");
}

// With more shapes than are kept, and steps, evaluations and checkpoints in between.
TEST(Passes, MixWithEverythingElse) {
  Learner learner = make_learner(kConvolution, kAdam), other = make_learner(kConvolution, kAdam);
  const auto go = [](Learner& l, int64_t rows) {
    l.backward(loss_gradient(l.forward(images(rows, 1)), *images(rows, 1).find("label")));
    l.update();
  };
  for (int round = 0; round < 2; ++round)
    for (int64_t rows = 1; rows < 3 + static_cast<int64_t>(train::Passes::kMost); ++rows) {
      go(learner, rows);
      learner.step(images(rows, 2));
      learner.predict(images(rows, 3));
      EXPECT_EQ(learner.take_metrics(true).size(), 1u);
    }
  checkpoint::Files files;
  learner.save(files);
  learner.backward((learner.forward(images(2, 1)), drawn({2, 3}, 1)));
  learner.forward(images(2, 1));
  other.load(files);
  learner.load(files);  // forgets these
  EXPECT_NE(error_text([&] {
              learner.backward(drawn({2, 3}, 1));
            }).find("change no weights"),
            std::string::npos);
  EXPECT_NE(error_text([&] { learner.update(); }).find("call backward() first"), std::string::npos);
  EXPECT_EQ(other.steps(), learner.steps());
  for (int i = 0; i < 2; ++i) go(learner, 4), go(other, 4);
  expect_near(learner.weights(""), other.weights(""), 0);
}

}  // namespace
}  // namespace etr::test

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "core/error.h"
#include "core/json.h"
#include "gpu/run_once.h"
#include "nn/init.h"
#include "optim/hyperparameters.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "optim/update.h"
#include "support/device.h"

namespace etr::test {
namespace {

struct RuleCase {
  std::string options;  // as a job has them
  // Changes w by its gradient; m and v begin as 0. `decays`: whether weight decay applies.
  struct State {
    double w, m = 0, v = 0, other = 0;
  };
  std::function<void(State&, double g, double rate, int t, bool decays)> rule;
};

class Rule : public testing::TestWithParam<RuleCase> {};

float gradient_at(int step, size_t i) {
  return 0.3f - 0.2f * static_cast<float>(step) + 0.01f * static_cast<float>(i);
}

struct Harness {
  // `scale`: the first scale of the gradients; 0: they are not scaled.
  explicit Harness(const std::string& options, float scale = 0)
      : store(device(), graph_of(), 1),
        hyperparameters(optim::UpdateSpec(parse_json(options, "test"))),
        loss_scale(device(), scale),
        update(optim::UpdateSpec(parse_json(options, "test")), store,
               scale > 0 ? &loss_scale : nullptr),
        arena(device(), gpu::MemoryUse::upload),
        step(arena.allocate(sizeof(ops::StepValues))) {
    ops::Emitter emit(kernels(), arena, commands);
    const gpu::Buffer loss = arena.allocate(4);
    std::memset(loss.host, 0, 4);
    update.emit(emit, loss, step);
  }

  static const graph::Graph& graph_of() {
    static const graph::Graph g = [] {
      graph::Graph made;
      made.add_parameter("w", {3, 5}, true, nn::constant(0.5f));
      made.add_parameter("b", {7}, false, nn::constant(-0.25f));
      return made;
    }();
    return g;
  }

  // Gradients that are multiplied by infinity overflow.
  void one(int i, ops::StepValues now, float times = 1) {
    for (const char* name : {"w", "b"}) {
      Tensor host(DType::f32, store.gradient(name).shape);
      for (size_t k = 0; k < static_cast<size_t>(host.count()); ++k)
        host.mutable_view<float>()[k] = times * gradient_at(i, k);
      graph::upload(device(), host, store.gradient(name));
    }
    hyperparameters.put(now, static_cast<uint64_t>(i));
    std::memcpy(step.host, &now, sizeof now);
    gpu::run_once(device(), commands);
  }

  void plain(int i) {
    ops::StepValues now;
    now.learning_rate = 0.1f / static_cast<float>(i + 1);
    now.update = static_cast<uint32_t>(i + 1);
    one(i, now);
  }

  graph::ParameterStore store;
  optim::Hyperparameters hyperparameters;
  optim::LossScale loss_scale;
  optim::Update update;
  gpu::Arena arena;
  gpu::Buffer step;
  gpu::CommandList commands;
};

// As for ranks that share out an update (zero_stage).
TEST(Update, HasStateForItsShareAlone) {
  graph::Graph graph;
  graph.add_parameter("w", {4096, 1024}, true, nn::constant(0.5f));
  const graph::ParameterStore store(device(), graph, 1);
  const optim::UpdateSpec spec(parse_json(R"({"optimizer": "adamw", "proximal": 0.1})", "test"));
  const optim::Update whole(spec, store);
  const uint32_t count = store.count() / 4;
  for (const bool only_gradients : {false, true}) {
    const optim::Update quarter(spec, store, nullptr, optim::Share{count, count, only_gradients});
    const double tensors = only_gradients ? 4 : 3;  // of a quarter's length
    EXPECT_NEAR(static_cast<double>(quarter.reserved_bytes()),
                static_cast<double>(whole.reserved_bytes()) / 4 * tensors / 3, 3e6);
    EXPECT_EQ(quarter.spared_bytes(), static_cast<uint64_t>(tensors) * 3 * count * 4);
    for (const std::string& name : quarter.shared_out())
      EXPECT_EQ(quarter.download().at(name).shape(), Shape{count}) << name;
    EXPECT_EQ(quarter.shared_out().size(), 3u);
  }
  EXPECT_EQ(whole.spared_bytes(), 0u);
}

// Four steps against the formulas in double precision, with different gradients for each element
// and a rate that changes; `b` is exempt from weight decay.
TEST_P(Rule, MatchesTheFormulas) {
  Harness run(GetParam().options);
  std::map<std::string, std::vector<RuleCase::State>> expected{
      {"w", std::vector(15, RuleCase::State{0.5})}, {"b", std::vector(7, RuleCase::State{-0.25})}};
  for (int i = 0; i < 4; ++i) {
    run.plain(i);
    for (auto& [name, states] : expected)
      for (size_t k = 0; k < states.size(); ++k)
        GetParam().rule(states[k], static_cast<double>(gradient_at(i, k)),
                        static_cast<double>(0.1f) / (i + 1), i + 1, name == "w");
  }
  const auto values = run.store.download();
  for (const auto& [name, states] : expected)
    for (size_t k = 0; k < states.size(); ++k)
      EXPECT_NEAR(values.at(name).view<float>()[k], states[k].w, 2e-6) << name << " " << k;
  const auto state = run.update.download();
  run.update.upload(state);
  if (!state.empty()) {
    EXPECT_THROW(run.update.upload({{state.begin()->first, Tensor(DType::f32, {2})}}), Error);
  }
}

using State = RuleCase::State;

RuleCase sgd(double momentum, bool nesterov, double decay) {
  return {Json{{"optimizer", "sgd"},
               {"momentum", momentum},
               {"nesterov", nesterov},
               {"weight_decay", decay}}
              .dump(),
          [=](State& s, double g, double rate, int, bool decays) {
            g += decays ? decay * s.w : 0;
            s.m = momentum * s.m + g;
            s.w -= rate * (momentum == 0 ? g : nesterov ? g + momentum * s.m : s.m);
          }};
}

RuleCase adam(bool decoupled, double decay) {
  return {Json{{"optimizer", decoupled ? "adamw" : "adam"}, {"weight_decay", decay}}.dump(),
          [=](State& s, double g, double rate, int step, bool decays) {
            const double d = decays ? decay : 0;
            if (!decoupled) g += d * s.w;
            s.m = 0.9 * s.m + 0.1 * g;
            s.v = 0.999 * s.v + 0.001 * g * g;
            if (decoupled) s.w -= rate * d * s.w;
            s.w -= rate * s.m / (1 - std::pow(0.9, step)) /
                   (std::sqrt(s.v / (1 - std::pow(0.999, step))) + 1e-8);
          }};
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, Rule,
    testing::Values(
        sgd(0, false, 0), sgd(0, false, 0.1), sgd(0.9, false, 0), sgd(0.9, true, 0),
        sgd(0.8, true, 0.05), adam(false, 0), adam(false, 0.1), adam(true, 0.3),
        RuleCase{R"({"optimizer": "adagrad", "initial_accumulator": 0.1, "weight_decay": 0.1})",
                 [](State& s, double g, double rate, int step, bool decays) {
                   if (step == 1) s.v = 0.1;
                   g += decays ? 0.1 * s.w : 0;
                   s.v += g * g;
                   s.w -= rate * g / std::sqrt(s.v);
                 }},
        RuleCase{R"({"optimizer": "rmsprop", "decay": 0.9, "momentum": 0.5})",
                 [](State& s, double g, double rate, int, bool) {
                   s.v = 0.9 * s.v + 0.1 * g * g;
                   s.m = 0.5 * s.m + g / (std::sqrt(s.v) + 1e-8);
                   s.w -= rate * s.m;
                 }},
        RuleCase{R"({"optimizer": "lion", "weight_decay": 0.2})",
                 [](State& s, double g, double rate, int, bool decays) {
                   const double c = 0.9 * s.m + 0.1 * g;
                   s.w -= rate * ((c > 0) - (c < 0) + (decays ? 0.2 * s.w : 0));
                   s.m = 0.99 * s.m + 0.01 * g;
                 }},
        // Clipping by value, with plain SGD.
        RuleCase{R"({"optimizer": "sgd", "clip_value": 0.15})",
                 [](State& s, double g, double rate, int, bool) {
                   s.w -= rate * std::clamp(g, -0.15, 0.15);
                 }}));

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v * v;
  return std::sqrt(sum);
}

std::vector<double> gradients_of(int step, size_t count) {
  std::vector<double> out;
  for (size_t k = 0; k < count; ++k) out.push_back(static_cast<double>(gradient_at(step, k)));
  return out;
}

std::vector<double> values_of(const Harness& run, const char* name) {
  const auto tensors = run.store.download();
  const auto view = tensors.at(name).view<float>();
  return {view.begin(), view.end()};
}

// LARS and LAMB against the formulas; `b` has the trust ratio 1.
TEST(TrustRatio, MatchesTheFormulas) {
  for (const bool lamb : {false, true}) {
    Harness run(lamb ? R"({"optimizer": "lamb", "weight_decay": 0.1})"
                     : R"({"optimizer": "lars", "weight_decay": 0.1, "trust_coefficient": 0.02})");
    struct Group {
      std::vector<double> w, m, v;
      bool decays;
    };
    std::map<std::string, Group> expected{
        {"w",
         {std::vector<double>(15, 0.5), std::vector<double>(15), std::vector<double>(15), true}},
        {"b",
         {std::vector<double>(7, -0.25), std::vector<double>(7), std::vector<double>(7), false}}};
    for (int i = 0; i < 3; ++i) {
      run.plain(i);
      for (auto& [name, p] : expected) {
        const double rate = static_cast<double>(0.1f) / (i + 1), d = p.decays ? 0.1 : 0;
        const auto g = gradients_of(i, p.w.size());
        std::vector<double> u(g);
        for (size_t k = 0; k < u.size(); ++k) {
          if (lamb) {
            p.m[k] = 0.9 * p.m[k] + 0.1 * g[k];
            p.v[k] = 0.999 * p.v[k] + 0.001 * g[k] * g[k];
            u[k] = p.m[k] / (1 - std::pow(0.9, i + 1)) /
                   (std::sqrt(p.v[k] / (1 - std::pow(0.999, i + 1))) + 1e-6);
          }
          u[k] += d * p.w[k];
        }
        const double size = norm_of(p.w);
        const double q = !p.decays ? 1
                         : lamb    ? size / norm_of(u)
                                   : 0.02 * size / (norm_of(g) + 0.1 * size);
        for (size_t k = 0; k < u.size(); ++k) {
          if (!lamb) p.m[k] = 0.9 * p.m[k] + rate * q * u[k];
          p.w[k] -= lamb ? rate * q * u[k] : p.m[k];
        }
      }
    }
    for (const auto& [name, p] : expected) {
      const auto actual = values_of(run, name.c_str());
      for (size_t k = 0; k < actual.size(); ++k)
        EXPECT_NEAR(actual[k], p.w[k], 2e-6) << name << " " << k << lamb;
    }
  }
}

TEST(ClipNorm, ScalesAllGradientsTogether) {
  Harness run(R"({"optimizer": "sgd", "clip_norm": 0.25})");
  run.plain(0);
  std::vector<double> all = gradients_of(0, 15), b = gradients_of(0, 7);
  all.insert(all.end(), b.begin(), b.end());
  const auto w = values_of(run, "w");
  for (size_t k = 0; k < w.size(); ++k)
    EXPECT_NEAR(w[k], 0.5 - static_cast<double>(0.1f) * all[k] * 0.25 / norm_of(all), 1e-6);
}

TEST(Accumulate, ThreeStepsMakeOneUpdate) {
  Harness run(R"({"optimizer": "sgd", "accumulate": 3})");
  for (int i = 0; i < 3; ++i) {
    ops::StepValues now;
    now.learning_rate = 0.5f;
    now.update = i == 2;
    now.flags = i == 0 ? ops::StepValues::kFirstOfUpdate : 0;
    run.one(i, now);
    if (i < 2) {
      EXPECT_EQ(values_of(run, "w")[3], 0.5);
    }
  }
  const auto w = values_of(run, "w");
  for (size_t k = 0; k < w.size(); ++k) {
    double mean = 0;
    for (int i = 0; i < 3; ++i) mean += static_cast<double>(gradient_at(i, k)) / 3;
    EXPECT_NEAR(w[k], 0.5 - 0.5 * mean, 1e-6);
  }
}

constexpr float kOverflows = INFINITY;

// As in PyTorch, whose scaler does not call the optimizer: the corrections of Adam's means begin
// with the first update that is made.
TEST(LossScale, UpdatesThatAreLeftOutAreNotCounted) {
  for (const char* name : {"adam", "adamw", "lamb"}) {
    const std::string options = cat(R"({"optimizer": ")", name, R"(", "weight_decay": 0.1})");
    Harness plain(options), scaled(options, 8), earlier(options, 1);
    ops::StepValues now;
    now.learning_rate = 0.1f;
    for (now.update = 1; now.update <= 3; ++now.update)  // until the scale is 1
      scaled.one(0, now, kOverflows);
    EXPECT_EQ(values_of(scaled, "w"), values_of(plain, "w")) << name;
    for (int i = 0; i < 3; ++i) {
      now.update = static_cast<uint32_t>(i + 1);
      plain.one(i, now);
      now.update += 3;
      scaled.one(i, now);
      EXPECT_EQ(values_of(scaled, "w"), values_of(plain, "w")) << name << i;
      if (i > 0) continue;
      // A checkpoint has the number, and one of an earlier version counts from the beginning.
      auto state = scaled.update.download();
      EXPECT_EQ(state.at("loss_scale").view<float>()[2], 3) << name;
      Tensor without(DType::f32, {2});
      without.mutable_view<float>()[0] = 1;
      without.mutable_view<float>()[1] = 5;
      state["loss_scale"] = without;
      earlier.update.upload(state);
      const Tensor restored = earlier.update.download().at("loss_scale");
      EXPECT_EQ(std::vector<float>(restored.view<float>().begin(), restored.view<float>().end()),
                (std::vector<float>{1, 5, 0}));
    }
  }
}

TEST(LossScale, StaysWhereAStateOfAnotherPrecisionIsLoaded) {
  const std::string options = R"({"optimizer": "adam"})";
  Harness plain(options), scaled(options, 8);
  ops::StepValues now;
  now.learning_rate = 0.1f;
  now.update = 1;
  plain.one(0, now);
  scaled.one(0, now, kOverflows);  // halves the scale
  scaled.update.upload(plain.update.download());
  const auto state = scaled.update.download();
  const auto scale = state.at("loss_scale").view<float>();
  EXPECT_EQ(scale[0], 4);
  EXPECT_EQ(scale[2], 0) << "of the updates of the loaded state, none was left out";
  for (const auto& [name, tensor] : plain.update.download()) {
    const auto expected = tensor.view<float>(), found = state.at(name).view<float>();
    EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.begin(), expected.end())) << name;
  }
}

// An update of which any batch overflows is left out whole, and the next is as if it had not been.
TEST(LossScale, AnOverflowLeavesOutTheWholeAccumulatedUpdate) {
  const std::string options = R"({"optimizer": "adam", "accumulate": 3})";
  const auto values_at = [](int i) {
    ops::StepValues now;
    now.learning_rate = 0.1f;
    now.update = i % 3 == 2 ? static_cast<uint32_t>(i / 3 + 1) : 0;
    now.flags = i % 3 == 0 ? ops::StepValues::kFirstOfUpdate : 0;
    return now;
  };
  Harness plain(options);
  const std::vector<double> before = values_of(plain, "w");
  for (int i = 0; i < 3; ++i) plain.one(i, values_at(i));
  for (int place = 0; place < 3; ++place) {
    Harness scaled(options, 2), resumed(options, 2);
    for (int i = 0; i < 3; ++i) {
      scaled.one(i, values_at(i), i == place ? kOverflows : 1);
      if (i == 1) resumed.update.upload(scaled.update.download());
    }
    resumed.one(2, values_at(2), place == 2 ? kOverflows : 1);
    for (Harness* const run : {&scaled, &resumed}) {
      EXPECT_EQ(values_of(*run, "w"), before) << place;
      for (int i = 0; i < 3; ++i) {
        ops::StepValues now = values_at(i);
        if (now.update > 0) now.update = 2;
        run->one(i, now);
      }
      EXPECT_EQ(values_of(*run, "w"), values_of(plain, "w")) << place;
    }
  }
}

// In steps on an echoed batch, weights are pulled to those from before the batch's first step.
TEST(Proximal, PullsEchoedBatchesToTheirAnchor) {
  Harness run(R"({"optimizer": "sgd", "proximal": 2})");
  double w = 0.5, anchor = 0;
  for (int i = 0; i < 4; ++i) {
    ops::StepValues now;
    now.learning_rate = 0.1f;
    const bool fresh = i % 2 == 0;
    now.flags = fresh ? ops::StepValues::kFreshBatch : 0;
    run.one(i, now);
    if (fresh) anchor = w;
    w -= static_cast<double>(0.1f) * (static_cast<double>(gradient_at(i, 4)) + 2 * (w - anchor));
  }
  EXPECT_NEAR(values_of(run, "w")[4], w, 1e-6);
}

TEST(Average, FollowsTheWeights) {
  Harness run(R"({"optimizer": "sgd", "ema_decay": 0.9})");
  double mean = 0.5;
  for (int i = 0; i < 4; ++i) {
    run.plain(i);
    mean = 0.9 * mean + 0.1 * values_of(run, "w")[2];
  }
  const auto state = run.update.download();
  const auto& w = run.store.parameters().front();
  EXPECT_NEAR(state.at("average").view<float>()[w.begin + 2], mean, 1e-6);
}

// The commands were recorded once; the values change with every step.
TEST(Hyperparameters, ChangeBetweenStepsOfOneRecording) {
  Harness run(R"({"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.1})");
  const double momentum[] = {0.9, 0.5, 0, 0.8}, decay[] = {0.1, 0.1, 0.02, 0};
  double w = 0.5, m = 0;
  for (int i = 0; i < 4; ++i) {
    run.hyperparameters.set("momentum", momentum[i], static_cast<uint64_t>(i));
    run.hyperparameters.set("weight_decay", decay[i], static_cast<uint64_t>(i));
    run.plain(i);
    m = momentum[i] * m + static_cast<double>(gradient_at(i, 4)) + decay[i] * w;
    w -= static_cast<double>(0.1f) / (i + 1) * m;
  }
  EXPECT_NEAR(values_of(run, "w")[4], w, 1e-6);
}

// Setting beta1 or beta2 also changes the bias correction.
TEST(Hyperparameters, OfMeansBringWhatBelongsToThem) {
  for (const std::string kind : {"adam", "lamb"}) {
    Harness changed(cat(R"({"optimizer": ")", kind, R"(", "beta1": 0.5, "beta2": 0.7})")),
        given(cat(R"({"optimizer": ")", kind, R"(", "beta1": 0.8, "beta2": 0.99999})"));
    changed.hyperparameters.set("beta1", 0.8);
    changed.hyperparameters.set("beta2", 0.99999);
    for (int i = 0; i < 3; ++i) {
      changed.plain(i);
      given.plain(i);
    }
    EXPECT_EQ(values_of(changed, "w"), values_of(given, "w")) << kind;
  }
}

TEST(Hyperparameters, FollowTheScheduleUntilTheyAreSet) {
  const optim::UpdateSpec spec(parse_json(
      R"({"optimizer": "adamw", "beta1": 0.9, "weight_decay": 0.1, "accumulate": 2})", "test"));
  const optim::Schedule schedule(
      Options(optim::schedule_schema(), "schedule",
              {{"learning_rate", 1}, {"momentum_end", 0.5}, {"label_smoothing_end", 0}}),
      10);
  optim::Hyperparameters values(spec, 0.2, schedule);
  EXPECT_EQ(values.value("beta1", 0), 0.9);
  EXPECT_NEAR(values.value("beta1", 10), 0.7, 1e-12) << "after five updates";
  EXPECT_EQ(values.value("beta1", 40), 0.5);
  EXPECT_EQ(values.value("label_smoothing", 20), 0);
  EXPECT_EQ(values.value("weight_decay", 20), 0.1);
  values.set("beta1", 0.3, 12);
  values.set("beta1", 0.4, 14);
  EXPECT_NEAR(values.value("beta1", 10), 0.7, 1e-12) << "steps that are repeated";
  EXPECT_EQ(values.value("beta1", 13), 0.3);
  EXPECT_EQ(values.value("beta1", 99), 0.4);
  ops::StepValues now;
  values.put(now, 14);
  EXPECT_EQ(now.kept_a, 0.4f);
  EXPECT_EQ(now.rest_a, 0.6f);
  EXPECT_NEAR(now.label_smoothing, 0.2 * 0.3, 1e-7);
}

TEST(Hyperparameters, MistakesAreNamed) {
  const optim::UpdateSpec sgd(parse_json(R"({"optimizer": "sgd"})", "test"));
  const auto error = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  optim::Hyperparameters values(sgd);
  EXPECT_NE(error([&] { values.set("momentun", 0.5); }).find("did you mean 'momentum'?"),
            std::string::npos);
  EXPECT_NE(error([&] { values.set("momentum", 0.5); }).find("no velocity is kept"),
            std::string::npos);
  EXPECT_NE(error([&] { values.set("weight_decay", std::nan("")); }).find("finite"),
            std::string::npos);
  EXPECT_NE(error([&] { values.set("weight_decay", 11); }).find("weight_decay"), std::string::npos);
  EXPECT_NE(error([&] { values.set("label_smoothing", 0.1); }).find("label_smoothing"),
            std::string::npos);
  EXPECT_TRUE(values.were_set().empty());
  const auto made = [&](const Json& schedule, int64_t steps) {
    Json given{{"learning_rate", 1}};
    given.update(schedule);
    optim::Hyperparameters with(
        sgd, std::nullopt,
        optim::Schedule(Options(optim::schedule_schema(), "schedule", given), steps));
  };
  EXPECT_NE(error([&] {
              made({{"momentum_end", 0.5}}, 9);
            }).find("no velocity is kept"),
            std::string::npos);
  EXPECT_NE(error([&] {
              made({{"label_smoothing_end", 0.5}}, 9);
            }).find("loss has no"),
            std::string::npos);
  EXPECT_NE(error([&] {
              made({{"weight_decay_end", 0.5}}, 0);
            }).find("decay_steps"),
            std::string::npos);
  EXPECT_EQ(error([&] { made({{"weight_decay_end", 0.5}}, 9); }), "");
}

TEST(UpdateSpec, MistakesAreNamed) {
  const auto error = [](const char* json) -> std::string {
    try {
      optim::UpdateSpec spec(parse_json(json, "test"));
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_NE(error(R"({"optimizer": "adma"})").find("did you mean 'adam'?"), std::string::npos);
  EXPECT_NE(error(R"({"optimizer": "adam", "beta": 0.9})").find("did you mean 'beta1'?"),
            std::string::npos);
  EXPECT_NE(error(R"({"momentum": 0.9})").find("needs a key 'optimizer'"), std::string::npos);
  EXPECT_NE(error(R"({"optimizer": "sgd", "clip_norm": -1})").find("clip_norm"), std::string::npos);
  EXPECT_EQ(error(R"({"optimizer": "sgd", "clip_norm": 1, "momentum": 0.9})"), "");
}

// A parameter that has had no gradient yet stays as it is, as with an embedding's unused rows.
TEST(Epsilon, KeepsARootOfZeroFromBeingADivisor) {
  int count = 0;
  for (const optim::OptimizerSpec* optimizer : optim::optimizer_table()) {
    if (std::ranges::none_of(optimizer->options, [](const OptionSpec& option) {
          return std::string_view(option.name) == "epsilon";
        }))
      continue;
    ++count;
    Json options{{"optimizer", optimizer->name}, {"epsilon", 1e-37}, {"weight_decay", 0}};
    Harness run(options.dump());
    ops::StepValues now;
    now.learning_rate = 0.1f;
    now.update = 1;
    run.one(0, now, /*times=*/0);
    const Tensor weights = run.store.read("w");
    for (const float weight : weights.view<float>()) EXPECT_EQ(weight, 0.5f) << optimizer->name;
    for (const double refused : {0.0, 1e-46}) {  // the second is 0 as a float
      options["epsilon"] = refused;
      EXPECT_THROW(optim::UpdateSpec(parse_json(options.dump(), "test")), Error)
          << optimizer->name << " " << refused;
    }
  }
  EXPECT_EQ(count, 5) << "adam, adamw, adagrad, rmsprop, lamb";
}

TEST(SgdOptions, NesterovNeedsMomentum) {
  graph::Graph g;
  g.add_parameter("w", {3}, true, nn::constant(1));
  graph::ParameterStore store(device(), g, 1);
  const auto& spec = optim::find_optimizer("sgd");
  EXPECT_THROW(spec.make(Options(spec.options, "sgd", {{"nesterov", true}}), store), Error);
  EXPECT_THROW(optim::find_optimizer("sdg"), Error);
}

optim::Schedule schedule_of(const std::string& json, int64_t total = 0) {
  return optim::Schedule(Options(optim::schedule_schema(), "schedule", parse_json(json, "test")),
                         total);
}

TEST(Hyperparameters, FollowTheSchedulesClock) {
  const auto by_data = schedule_of(
      R"({"learning_rate": 1, "weight_decay_end": 0, "clock": "fresh", "decay_steps": 1000})");
  const optim::UpdateSpec spec({{"optimizer", "sgd"}, {"weight_decay", 0.1}, {"accumulate", 2}});
  const optim::Hyperparameters values(spec, {}, by_data);
  EXPECT_NEAR(values.value("weight_decay", {2, 500}), 0.05, 1e-12);
}

// If only the number of steps is changed, a warm-up that does not fit is cut to half of the run.
TEST(Schedule, ShortRunsHaveSchedulesToo) {
  for (const char* kind : {"linear", "cosine", "polynomial"})
    for (const int64_t steps : {1, 2, 3, 100, 200}) {
      const auto schedule = schedule_of(
          cat(R"({"learning_rate": 1, "warmup_steps": 200, "schedule": ")", kind, "\"}"), steps);
      const int64_t warmup = steps / 2;
      EXPECT_FLOAT_EQ(schedule.rate(warmup), 1) << kind << " over " << steps;
      if (warmup > 0) {
        EXPECT_FLOAT_EQ(schedule.rate(0), 1 / static_cast<float>(warmup))
            << kind << " over " << steps;
      }
      EXPECT_FLOAT_EQ(schedule.rate(steps), 0) << kind << " over " << steps;
    }
  const auto untouched =
      schedule_of(R"({"learning_rate": 1, "warmup_steps": 99, "schedule": "linear"})", 100);
  EXPECT_FLOAT_EQ(untouched.rate(0), 1.0f / 99) << "a warm-up that ends within the run is kept";
}

TEST(Schedule, AWarmupShareFollowsTheLength) {
  for (const int64_t steps : {2340, 100, 10, 1}) {
    const auto schedule =
        schedule_of(R"({"learning_rate": 1, "warmup_share": 0.0855, "schedule": "linear"})", steps);
    const auto same =
        schedule_of(cat(R"({"learning_rate": 1, "schedule": "linear", "warmup_steps": )",
                        std::llround(0.0855 * static_cast<double>(steps)), "}"),
                    steps);
    for (int64_t step = 0; step <= steps; ++step) ASSERT_EQ(schedule.rate(step), same.rate(step));
  }
}

// Either key can be set on its own, even if the job already has the other one.
TEST(Schedule, WarmupStepsCountBeforeTheShare) {
  const auto both = schedule_of(
      R"({"schedule": "constant", "learning_rate": 1, "warmup_steps": 2, "warmup_share": 0.5})", 0);
  EXPECT_FLOAT_EQ(both.rate(0), 0.5f);
  EXPECT_FLOAT_EQ(both.rate(2), 1);
}

// Contradictory or missing options are errors that name the keys.
TEST(Schedule, ContradictionsAreErrors) {
  const auto error_of = [](const char* json, int64_t total) -> std::string {
    try {
      schedule_of(json, total);
      return "none";
    } catch (const Error& error) {
      return error.what();
    }
  };
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has(error_of(
          R"({"schedule": "linear", "learning_rate": 1, "warmup_steps": 200, "decay_steps": 200})",
          1000),
      "decay_steps (200) must exceed warmup_steps (200)");
  has(error_of(R"({"schedule": "cosine", "learning_rate": 1})", 0),
      "decay_steps, or the run's length");
  has(error_of(R"({"schedule": "one_cycle", "learning_rate": 1})", 0),
      "set schedule.clock to fresh if the run's length is in fresh examples");
  has(error_of(R"({"schedule": "cosine", "learning_rate": 1, "clock": "fresh"})", 0),
      "fresh examples (train.fresh of a job)");
  has(error_of(R"({"schedule": "constant", "learning_rate": 1, "warmup_share": 0.1})", 0),
      "warmup_share");
  has(error_of(R"({"schedule": "cosine", "learning_rate": 1, "power": 2})", 10),
      "schedule.power is 2, which has no effect on the schedule 'cosine', only on: polynomial");
  has(error_of(R"({"schedule": "one_cycle", "learning_rate": 1, "warmup_steps": 1})", 10),
      "only on: constant, step, linear");
  has(error_of(R"({"learning_rate": 1, "momentum_end": -0.5})", 10),
      "schedule.momentum_end is -0.5: give 0 or more, or -1 so that it stays");
  EXPECT_EQ(error_of(R"({"schedule": "cosine", "learning_rate": 1, "power": 1})", 10), "none")
      << "a default may be given anywhere";
}

// Both clocks give the same rates if each step has 8 fresh examples.
TEST(Schedule, CountsStepsOrFreshExamples) {
  for (const char* kind :
       {"constant", "step", "linear", "cosine", "polynomial", "inverse_sqrt", "one_cycle"}) {
    const auto of = [&](const char* clock, int ticks) {
      const std::string name = kind;
      Json options{{"learning_rate", 2}, {"schedule", name}, {"clock", clock}};
      if (name != "one_cycle") options["warmup_steps"] = 5 * ticks;
      if (name == "step") options["step_every"] = 7 * ticks;
      if (name == "linear" || name == "one_cycle") options["end_factor"] = 0.1;
      return schedule_of(options.dump(), 40 * ticks);
    };
    const auto steps = of("steps", 1), fresh = of("fresh", 8);
    EXPECT_EQ(steps.clock({30, 999}, 2), 15) << "counts updates";
    EXPECT_EQ(fresh.clock({30, 999}, 2), 999);
    for (int64_t step = 0; step < 50; ++step)
      EXPECT_NEAR(fresh.rate(8 * step, 8), steps.rate(step), 1e-6) << kind << " " << step;
    EXPECT_EQ(fresh.rate(100, 0), fresh.rate(100, 8)) << "a batch of echoes does not move it";
    EXPECT_FLOAT_EQ(fresh.rate(39, 8), std::string(kind) == "one_cycle" ? fresh.rate(39) : 2)
        << "a warm-up that ends within a step";
  }
}

TEST(Schedule, CorrectsTheRateOfEchoedExamples) {
  const auto of = [](double power) {
    return schedule_of(cat(R"({"learning_rate": 1, "echo_power": )", power, "}"));
  };
  EXPECT_EQ(of(0).echo_correction({9, 10, 40}), 1);
  EXPECT_EQ(of(1).echo_correction({9, 10, 40}), 0.25);
  EXPECT_EQ(of(0.5).echo_correction({9, 10, 40}), 0.5);
  EXPECT_EQ(of(1).echo_correction({9, 40, 40}), 1) << "nothing was echoed";
  EXPECT_EQ(of(1).echo_correction({}), 1);
}

TEST(Schedule, Kinds) {
  const auto constant = schedule_of(R"({"learning_rate": 2, "warmup_steps": 4})");
  EXPECT_FLOAT_EQ(constant.rate(0), 0.5f);
  EXPECT_FLOAT_EQ(constant.rate(3), 2);
  EXPECT_FLOAT_EQ(constant.rate(1000), 2);
  const auto step =
      schedule_of(R"({"schedule": "step", "learning_rate": 1, "step_every": 10, "gamma": 0.5})");
  EXPECT_FLOAT_EQ(step.rate(9), 1);
  EXPECT_FLOAT_EQ(step.rate(10), 0.5f);
  EXPECT_FLOAT_EQ(step.rate(35), 0.125f);
  const auto linear = schedule_of(
      R"({"schedule": "linear", "learning_rate": 1, "end_factor": 0.2, "warmup_steps": 10})", 110);
  EXPECT_FLOAT_EQ(linear.rate(10), 1);
  EXPECT_FLOAT_EQ(linear.rate(60), 0.6f);
  EXPECT_FLOAT_EQ(linear.rate(110), 0.2f);
  EXPECT_FLOAT_EQ(linear.rate(500), 0.2f) << "stays at its last value";
  const auto cosine =
      schedule_of(R"({"schedule": "cosine", "learning_rate": 1, "decay_steps": 100})");
  EXPECT_FLOAT_EQ(cosine.rate(0), 1);
  EXPECT_NEAR(cosine.rate(50), 0.5, 1e-6);
  EXPECT_NEAR(cosine.rate(25), (1 + std::sqrt(0.5)) / 2, 1e-6);
  EXPECT_NEAR(cosine.rate(100), 0, 1e-6);
  EXPECT_THROW(schedule_of(R"({"schedule": "cosine", "learning_rate": 1})"), Error)
      << "it has no end";
  const auto polynomial = schedule_of(
      R"({"schedule": "polynomial", "learning_rate": 2, "power": 2, "end_factor": 0.1})", 10);
  EXPECT_FLOAT_EQ(polynomial.rate(0), 2);
  EXPECT_FLOAT_EQ(polynomial.rate(5), 2 * (0.1f + 0.9f / 4));
  EXPECT_FLOAT_EQ(polynomial.rate(10), 0.2f);
  const auto root =
      schedule_of(R"({"schedule": "inverse_sqrt", "learning_rate": 1, "warmup_steps": 100})");
  EXPECT_FLOAT_EQ(root.rate(49), 0.5f);
  EXPECT_FLOAT_EQ(root.rate(100), 1);
  EXPECT_FLOAT_EQ(root.rate(400), 0.5f);
}

TEST(Schedule, OneCycleRisesAndFalls) {
  const auto cycle = schedule_of(
      R"({"schedule": "one_cycle", "learning_rate": 1, "rise": 0.25, "end_factor": 0.04})", 100);
  EXPECT_FLOAT_EQ(cycle.rate(0), 0.04f);
  EXPECT_FLOAT_EQ(cycle.rate(25), 1);
  EXPECT_NEAR(cycle.rate(12), 0.04 + 0.96 * (1 - std::cos(M_PI * 0.48)) / 2, 1e-6);
  EXPECT_NEAR(cycle.rate(100), 0.0016, 1e-6);
  EXPECT_THROW(schedule_of(R"({"schedule": "cosine", "learning_rate": 1, "rise": 0.25})", 100),
               Error);
}

}  // namespace
}  // namespace etr::test

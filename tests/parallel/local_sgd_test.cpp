#include "parallel/local_sgd.h"

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>

#include "core/error.h"
#include "core/json.h"
#include "exchange/local.h"
#include "nn/model.h"
#include "support/device.h"
#include "support/error_text.h"

namespace etr::test {
namespace {

using parallel::LocalSgd;
using parallel::LocalSgdOptions;

// Parameters of a small model, which the test changes as steps would.
struct Model {
  explicit Model(uint64_t seed)
      : net(nn::Model(parse_json(R"({"layers": [{"layer": "dense", "units": 5}]})", "test"))
                .build(2, {{"image", {DType::f32, {7}}}, {"label", {DType::i32, {}}}})),
        store(std::make_shared<gpu::Device>(device_options()), net.graph, seed) {}

  std::vector<float> weights() const { return parallel::download_flat(store, store.weights()); }
  void set(const std::vector<float>& to) { parallel::upload_flat(store, to, store.weights()); }
  void move(float by) {
    std::vector<float> to = weights();
    for (size_t i = 0; i < to.size(); ++i) to[i] += by * static_cast<float>(i % 3 + 1);
    set(to);
  }

  nn::ModelGraph net;
  graph::ParameterStore store;
};

void replicas_together(int size, const LocalSgdOptions& options,
                       const std::function<void(LocalSgd&, Model&)>& body) {
  auto groups = exchange::local_groups(size, 30);
  std::vector<std::future<void>> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      LocalSgd own(std::move(groups[static_cast<size_t>(rank)]), options);
      Model model(static_cast<uint64_t>(rank));
      body(own, model);
    }));
  for (auto& rank : ranks) rank.get();
}

void expect_near(const std::vector<float>& is, const std::vector<double>& should) {
  ASSERT_EQ(is.size(), should.size());
  for (size_t i = 0; i < is.size(); ++i) EXPECT_NEAR(is[i], should[i], 1e-5) << i;
}

TEST(LocalSgdTest, BeginsWithTheFirstRanksWeights) {
  const std::vector<float> first = Model(0).weights();
  replicas_together(3, {}, [&](LocalSgd& own, Model& model) {
    own.share(model.store);
    EXPECT_EQ(model.weights(), first);
  });
}

// Otherwise the change would count as the gradient of the next outer step.
TEST(LocalSgdTest, TakesOtherWeightsAsTheyAre) {
  const std::vector<float> other = Model(5).weights();
  replicas_together(2, {.every = 1}, [&](LocalSgd& own, Model& model) {
    own.share(model.store);
    own.replace_weights(model.store, [&] { model.set(other); });
    own.started(1);
    own.exchange(model.store);
    EXPECT_EQ(model.weights(), other);
  });
}

TEST(LocalSgdTest, IsDueEverySoManySteps) {
  replicas_together(1, {.every = 3}, [](LocalSgd& own, Model&) {
    std::string due;
    for (uint64_t steps = 1; steps < 8; ++steps) {
      own.started(steps);
      due += own.exchange_due() ? '1' : '0';
    }
    EXPECT_EQ(due, "0010010");
  });
}

TEST(LocalSgdTest, AveragesParametersWithARateOfOne) {
  const std::vector<float> begin = Model(0).weights();
  replicas_together(2, {.every = 1, .rate = 1, .momentum = 0}, [&](LocalSgd& own, Model& model) {
    own.share(model.store);
    model.move(own.rank() == 0 ? 0.5f : -0.1f);
    own.exchange(model.store);
    std::vector<double> mean(begin.begin(), begin.end());
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += 0.2 * static_cast<double>(i % 3 + 1);
    expect_near(model.weights(), mean);
  });
}

// Three outer steps against the formula in double precision. Before the last one the state goes
// through a checkpoint.
TEST(LocalSgdTest, TakesNesterovsStepAndGoesOnFromACheckpoint) {
  const std::vector<float> begin = Model(0).weights();
  std::vector<double> should(begin.begin(), begin.end()), momentum(begin.size());
  for (int step = 0; step < 3; ++step)
    for (size_t i = 0; i < should.size(); ++i) {
      const double outer =
          -0.2 * static_cast<double>((i % 3 + 1) * (static_cast<size_t>(step) + 1));
      momentum[i] = 0.9 * momentum[i] + outer;
      should[i] -= 0.7 * (outer + 0.9 * momentum[i]);
    }
  auto again = exchange::local_groups(2, 30);
  replicas_together(2, {.every = 10}, [&](LocalSgd& own, Model& model) {
    own.share(model.store);
    const auto step = [&](LocalSgd& by, int number) {
      by.started(static_cast<uint64_t>(number));
      model.move((by.rank() == 0 ? 0.5f : -0.1f) * static_cast<float>(number));
      by.average_states(model.store);
      by.average_states(model.store);  // without another exchange
    };
    step(own, 1);
    step(own, 2);
    checkpoint::Files files;
    own.save(files);
    LocalSgd resumed(std::move(again[static_cast<size_t>(own.rank())]), {.every = 10});
    resumed.load(files, "the test's checkpoint");
    resumed.share(model.store);
    step(resumed, 3);
    expect_near(model.weights(), should);
    EXPECT_THROW(resumed.load({}, "a checkpoint"), Error);
  });
}

TEST(LocalSgdTest, RefusesTheMomentumOfAnotherModelAndKeepsItsOwn) {
  checkpoint::Files other;
  LocalSgd(std::move(exchange::local_groups(1, 30)[0]), {}).save(other);  // has no weights yet
  replicas_together(2, {.every = 1}, [&](LocalSgd& own, Model& model) {
    own.share(model.store);
    const auto step = [&](uint64_t number) {
      own.started(number);
      model.move(1);
      own.exchange(model.store);
      return model.weights();
    };
    step(1);
    checkpoint::Files mine;
    own.save(mine);
    EXPECT_NE(error_text([&] { own.load(other, "another checkpoint"); }).find("of another model"),
              std::string::npos);
    checkpoint::Files now;
    own.save(now);
    EXPECT_EQ(now, mine);
    step(2);
  });
}

}  // namespace
}  // namespace etr::test

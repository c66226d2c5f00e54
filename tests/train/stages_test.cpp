// Jobs whose model is cut into stages, one per trainer: together they train as one device does.
#include <gtest/gtest.h>

#include "core/log.h"
#include "train/staged_job.h"

namespace etr::test {
namespace {

Json named(Json layer, const char* name, Json input = {}) {
  layer["name"] = name;
  if (!input.is_null()) layer["input"] = std::move(input);
  return layer;
}

// Similar to ResNet-8, with skip connections. Its stages begin within the blocks.
const Json& residual_layers() {
  const auto conv = [](int filters, int stride) {
    return Json{{"layer", "conv2d"}, {"filters", filters}, {"kernel", 3}, {"stride", stride}};
  };
  const Json norm{{"layer", "group_norm"}, {"groups", 2}, {"activation", "relu"}};
  static const Json all{
      conv(8, 1),
      named(norm, "a"),
      conv(8, 1),
      norm,
      named(conv(8, 1), "inside"),
      named({{"layer", "add"}}, "b", {"inside", "a"}),
      conv(16, 2),
      norm,
      named(conv(16, 1), "late"),
      named({{"layer", "conv2d"}, {"filters", 16}, {"kernel", 1}, {"stride", 2}}, "shortcut", "b"),
      named({{"layer", "add"}}, "c", {"late", "shortcut"}),
      {{"layer", "relu"}},
      {{"layer", "global_avg_pool"}},
      {{"layer", "dense"}, {"units", 4}}};
  return all;
}

struct Model {
  const char* name;
  const Json& layers;
  Json two, three;  // the layers at which stages begin; empty: chosen automatically

  friend void PrintTo(const Model& model, std::ostream* out) { *out << model.name; }
};

class OfAModel : public testing::TestWithParam<Model> {
 protected:
  // Compares 2 stages with both schedules, and 3 stages with 1f1b, with one device.
  void compare(int steps, double tolerance) {
    Json job = layers(job_of(dir_, 24, dir_.path("one")), GetParam().layers);
    job["train"]["steps"] = steps;
    job["schedule"]["learning_rate"] = 0.02;
    const Outcome one = run(job, Start::new_run, nullptr, {});
    ASSERT_FALSE(one.error) << one.error->what();
    for (const int stages : {2, 3}) {
      for (const char* schedule : {"1f1b", "gpipe"}) {
        if (stages == 3 && schedule == std::string("gpipe")) continue;
        Json own = staged(job, stages, 4, schedule);
        own["parallel"]["stages"] = stages == 2 ? GetParam().two : GetParam().three;
        own["output"]["dir"] = dir_.path(cat(schedule, stages));
        expect_like(one, together(stages, [&](int) { return own; }), tolerance);
        expect_same_losses(dir_.path(cat(schedule, stages)), dir_.path("one"), tolerance);
      }
    }
    EXPECT_EQ(losses_of(dir_.path("gpipe2")), losses_of(dir_.path("1f1b2"))) << "bit for bit";
  }

  void expect_like(const Outcome& one, const std::vector<Outcome>& ranks, double tolerance) {
    for (const Outcome& rank : ranks) {
      ASSERT_FALSE(rank.error) << rank.error->what();
      EXPECT_EQ(rank.end.step, one.end.step);
      EXPECT_EQ(rank.end.examples, one.end.examples);
      ASSERT_EQ(rank.evaluations.size(), one.evaluations.size());
      for (size_t i = 0; i < one.evaluations.size(); ++i) {
        EXPECT_NEAR(rank.evaluations[i].eval_loss, one.evaluations[i].eval_loss, tolerance);
        EXPECT_NEAR(rank.evaluations[i].eval_accuracy, one.evaluations[i].eval_accuracy, 0.011);
      }
    }
  }

  TempDir dir_;
};

TEST_P(OfAModel, StagesTrainAsOneDevice) { compare(4, 1e-4); }
TEST_P(OfAModel, DISABLED_StagesTrainAsOneDeviceForAHundredSteps) { compare(100, 2e-3); }

INSTANTIATE_TEST_SUITE_P(
    StagesOf, OfAModel,
    testing::Values(Model{"mlp", dense_layers(), Json::array(), Json::array()},
                    Model{"residual", residual_layers(), {"inside"}, {"inside", "late"}},
                    Model{"attention", attention_layers(), Json::array(), {"wide1", "attend2"}}),
    [](const auto& each) { return each.param.name; });

// Two pipelines of two stages, each with half of the batch. The last evaluation batch is smaller.
TEST(StagesOfAModel, SeveralTimesTrainAsOneDevice) {
  TempDir dir;
  const auto job = [&](int64_t batch, const char* out) {
    Json list = dense_layers();
    list.erase(2);  // dropout: its masks depend on the order of rows, which differs in one batch
    Json one = layers(job_of(dir, batch, dir.path(out), 104), list);
    one["train"]["steps"] = 6;
    one["optimizer"]["clip_norm"] = 0.3;
    return one;
  };
  const Outcome one = run(job(24, "one"), Start::new_run, nullptr, {});
  ASSERT_FALSE(one.error) << one.error->what();
  const auto ranks = together(4, [&](int) { return staged(job(12, "mesh"), 2, 3); });
  expect_no_errors(ranks);
  expect_same_losses(dir.path("mesh"), dir.path("one"), 1e-4);
  EXPECT_EQ(ranks[0].weights, ranks[2].weights) << "the first stage, bit for bit";
  EXPECT_EQ(ranks[1].weights, ranks[3].weights) << "the second stage, bit for bit";
  EXPECT_NEAR(ranks[0].end.eval_loss, one.end.eval_loss, 1e-4);
}

// Normalising micro-batches is the same as normalising batches of their size, of which several are
// accumulated.
TEST(StagesOfAModel, NormaliseMicroBatches) {
  TempDir dir;
  Json list = residual_layers();
  for (Json& layer : list)
    if (layer["layer"] == "group_norm") {
      layer["layer"] = "batch_norm";
      layer.erase("groups");
    }
  const auto job = [&](int64_t batch, int accumulate, const char* out) {
    Json one = layers(job_of(dir, batch, dir.path(out)), list);
    one["optimizer"]["accumulate"] = accumulate;
    one["train"]["steps"] = 4 * accumulate;
    one["evaluation"]["every_epochs"] = 0;
    return one;
  };
  const Outcome one = run(job(6, 4, "one"), Start::new_run, nullptr, {});
  ASSERT_FALSE(one.error) << one.error->what();
  const auto ranks = together(2, [&](int) { return staged(job(24, 1, "stages"), 2, 4); });
  expect_no_errors(ranks);
  EXPECT_NEAR(ranks[1].end.eval_loss, one.end.eval_loss, 1e-4);
}

TEST(StagesOfAModel, TellAllThatAStepWasNotFinite) {
  TempDir dir;
  Json job = job_of(dir, 24);
  job["schedule"]["learning_rate"] = 1000;
  const auto ranks = together(2, [&](int) { return staged(job, 2, 4); });
  for (const Outcome& rank : ranks) {
    ASSERT_TRUE(rank.error);
    EXPECT_EQ(rank.error->code(), Code::not_finite) << rank.error->what();
    EXPECT_EQ(std::string(rank.error->what()), std::string(ranks[0].error->what()));
  }
}

// If gradients overflow float16 on one stage, all stages must skip the step and lower the scale. A
// stage that went on would have another scale than the others, and other weights than one device.
TEST(StagesOfAModel, AgreeOnTheLossScale) {
  TempDir dir;
  Json job = overflowing(job_of(dir, 24, dir.path("one")));
  const Outcome one = run(job, Start::new_run, nullptr, {});
  ASSERT_FALSE(one.error) << one.error->what();
  job["output"]["dir"] = dir.path("out");
  const auto ranks = together(2, [&](int) {
    Json own = staged(job, 2, 4);
    own["parallel"]["stages"] = {"last"};
    return own;
  });
  expect_no_errors(ranks);
  expect_same_skips(dir.path("out"), dir.path("one"));
  expect_same_losses(dir.path("out"), dir.path("one"), 0.02);
}

TEST(StagesOfAModel, FitWhereTheWholeModelDoesNot) {
  TempDir dir;
  Json job = layers(job_of(dir, 24), {{{"layer", "flatten"}},
                                      {{"layer", "dense"}, {"units", 900}, {"activation", "relu"}},
                                      {{"layer", "dense"}, {"units", 900}, {"activation", "relu"}},
                                      {{"layer", "dense"}, {"units", 900}, {"activation", "relu"}},
                                      {{"layer", "dense"}, {"units", 4}}});
  job["train"]["steps"] = 2;
  const auto error_of = [&](int stages, int mebibytes) {
    gpu::DeviceOptions options = device_options();
    options.memory_limit_bytes = uint64_t(mebibytes) << 20;
    if (stages == 1) return run(job, Start::new_run, nullptr, {}, options).error;
    const auto ranks = together(
        stages, [&](int) { return staged(job, stages, 4); }, Start::new_run, {}, {}, options);
    // The others may know only that the rank without memory has left.
    std::optional<Error> error;
    for (const Outcome& rank : ranks)
      if (rank.error && (!error || rank.error->code() == Code::out_of_memory)) error = rank.error;
    return error;
  };
  // What a step takes besides the weights depends on the device's kernels.
  const auto least = [&](int stages) {
    int too_little = 4, enough = 68;
    while (enough - too_little > 4) {
      const int middle = (too_little + enough) / 2;
      const auto error = error_of(stages, middle);
      if (error) {
        EXPECT_EQ(error->code(), Code::out_of_memory) << error->what();
        EXPECT_NE(std::string(error->what()).find("memory limit"), std::string::npos);
      }
      (error ? too_little : enough) = middle;
    }
    return enough;
  };
  const int whole = least(1), in_stages = least(2);
  EXPECT_LT(whole, 68);
  EXPECT_LT(in_stages, whole * 3 / 4);
}

TEST(StagesOfAModel, RefuseWhatTheyCannotDo) {
  TempDir dir;
  const auto error_of = [&](Json job) {
    const auto ranks = together(2, [&](int) { return job; });
    EXPECT_TRUE(ranks[0].error);
    return ranks[0].error ? std::string(ranks[0].error->what()) : "";
  };
  const Json job = layers(job_of(dir, 24), dense_layers());
  Json odd = staged(job, 3, 4);
  EXPECT_NE(error_of(odd).find("must be a multiple of 3"), std::string::npos);
  Json unknown = staged(job, 2, 4);
  unknown["parallel"]["stages"] = {"dense_7"};
  EXPECT_NE(error_of(unknown).find("no stage can begin at a layer 'dense_7'"), std::string::npos);
  Json synchronised = staged(job, 2, 4);
  synchronised["parallel"]["sync_batch_norm"] = true;
  EXPECT_NE(error_of(synchronised).find("sync_batch_norm"), std::string::npos);
}

TEST(StagesOfAModel, KnowTheirOwnWeightsAlone) {
  TempDir dir;
  Json job = staged(layers(job_of(dir, 24), dense_layers()), 2, 4);
  job["train"]["steps"] = 1;
  job.erase("evaluation");
  expect_no_errors(together(
      2, [&](int) { return job; }, Start::new_run,
      [](int rank, Trainer& trainer, const Event& event) {
        if (event.kind != EventKind::end) return;
        const auto error_of = [](const auto& call) {
          try {
            call();
          } catch (const Error& error) {
            return std::string(error.what());
          }
          return std::string();
        };
        train::Learner& learner = trainer.learner();
        const std::string other = rank == 0 ? "dense_6.weight" : "dense_2.weight",
                          own = rank == 0 ? "dense_2.weight" : "dense_6.weight";
        EXPECT_EQ(learner.weights(own).size(), 1u);
        EXPECT_NE(error_of([&] {
                    learner.weights(other);
                  }).find(cat("'", other, "' is not in stage ", rank, " of the model")),
                  std::string::npos);
        EXPECT_NE(error_of([&] { learner.onnx(); }).find("on one device"), std::string::npos);
      }));
}

TEST(StagesOfAModel, NoticeThatTheirBatchesDiffer) {
  TempDir dir;
  const Json job = staged(layers(job_of(dir, 24), dense_layers()), 2, 4);
  const auto ranks = together(2, [&](int rank) {
    Json own = job;
    own["pipeline"]["seed"] = rank;
    return own;
  });
  for (const Outcome& rank : ranks) {
    ASSERT_TRUE(rank.error);
    EXPECT_NE(std::string(rank.error->what()).find("have different batches"), std::string::npos)
        << rank.error->what();
  }
}

TEST(StagesOfAModel, SaveWhatOneDeviceLoadsAndTheOtherWayRound) {
  TempDir dir;
  Json whole = layers(job_of(dir, 24, dir.path("whole")), dense_layers());
  whole["optimizer"] = {{"optimizer", "adamw"}, {"clip_norm", 0.5}, {"ema_decay", 0.9}};
  whole["schedule"]["learning_rate"] = 0.01;
  whole["train"] = {{"steps", 8}, {"planned_steps", 15}};
  ASSERT_FALSE(run(whole, Start::new_run, nullptr, {}).error);
  for (const bool staged_first : {true, false}) {
    Json parts = whole;
    const std::string out = dir.path(staged_first ? "staged_first" : "one_first");
    parts["output"]["dir"] = out;
    const auto go = [&](bool stages, Start start, int steps) {
      Json job = parts;
      job["train"]["steps"] = steps;
      if (stages)
        expect_no_errors(together(
            2, [&](int) { return staged(job, 2, 3); }, start));
      else if (const auto error = run(job, start, nullptr, {}).error)
        FAIL() << error->what();
    };
    go(staged_first, Start::new_run, 4);
    go(!staged_first, Start::resume, 8);
    expect_same_losses(out, dir.path("whole"), 1e-4);
  }
}

}  // namespace
}  // namespace etr::test

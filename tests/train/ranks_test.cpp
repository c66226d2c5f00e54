// Trainers of one job that train together, each on its part of the data.
#include "train/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <functional>
#include <future>
#include <span>
#include <string_view>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "gpu/vulkan_device.h"
#include "parallel/data_parallel.h"
#include "support/error_text.h"
#include "train/small_learner.h"
#include "train/together.h"

namespace etr::test {
namespace {

TEST(RanksOfAJob, TrainAsOneWithAllTheirRows) {
  TempDir dir;
  const Outcome one = run(job_of(dir, 48, dir.path("one")), Start::new_run, nullptr, {});
  ASSERT_FALSE(one.error) << one.error->what();
  for (const int size : {2, 3}) {
    const std::string out = dir.path(cat("out", size));
    const auto ranks = together(size, [&](int) { return job_of(dir, 48 / size, out); });
    for (const Outcome& rank : ranks) {
      ASSERT_FALSE(rank.error) << rank.error->what();
      EXPECT_EQ(rank.end.step, 15u);
      EXPECT_EQ(rank.end.examples, 15u * 48) << "of all ranks";
      EXPECT_EQ(rank.weights, ranks[0].weights) << "bit for bit";
      ASSERT_EQ(rank.evaluations.size(), one.evaluations.size());
      for (size_t i = 0; i < one.evaluations.size(); ++i)
        EXPECT_NEAR(rank.evaluations[i].eval_loss, one.evaluations[i].eval_loss, 1e-4);
    }
    const auto rows = steps_of(out), expected = steps_of(dir.path("one"));
    ASSERT_EQ(rows.size(), expected.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_NEAR(rows[i]["loss"].get<double>(), expected[i]["loss"].get<double>(), 1e-4) << i;
      EXPECT_EQ(rows[i]["examples"], expected[i]["examples"]);
    }
  }
}

// Two ranks with half of a batch each have different sums of weights.
TEST(RanksOfAJob, CountForWhatTheirRowsWeighInTheLoss) {
  TempDir dir;
  const auto job = [&](int64_t batch, const std::string& out) {
    Json made = job_of(dir, batch, out);
    made["model"]["loss"] = {{"class_weights", {1, 0.5, 1, 10}}, {"ignore_index", 2}};
    return made;
  };
  const Outcome one = run(job(16, dir.path("one")), Start::new_run, nullptr, {});
  ASSERT_FALSE(one.error) << one.error->what();
  const auto expected = steps_of(dir.path("one"));
  for (const int stage : {0, 1, 2}) {
    const std::string out = dir.path(cat("stage", stage));
    const auto ranks = together(2, [&](int) {
      Json part = job(8, out);
      part["parallel"]["zero_stage"] = stage;
      return part;
    });
    for (const Outcome& rank : ranks) {
      ASSERT_FALSE(rank.error) << rank.error->what();
      ASSERT_EQ(rank.weights.size(), one.weights.size());
      for (size_t i = 0; i < rank.weights.size(); ++i)
        ASSERT_NEAR(rank.weights[i], one.weights[i], 2e-4) << "zero_stage " << stage;
    }
    const auto rows = steps_of(out);
    ASSERT_EQ(rows.size(), expected.size());
    for (size_t i = 0; i < rows.size(); ++i)
      EXPECT_NEAR(rows[i]["loss"].get<double>(), expected[i]["loss"].get<double>(), 1e-4)
          << "zero_stage " << stage << ", step " << i;
  }
}

// Returns sequences with so many labels each, padded to `length` with the ignored label.
pipeline::Item sequences(const std::vector<int>& counts, int64_t length, int step) {
  const auto rows = static_cast<int64_t>(counts.size());
  Tensor x(DType::f32, {rows, length, 3});
  for (int64_t i = 0; i < x.count(); ++i) {
    const int64_t row = i / (3 * length), at = i % (3 * length);
    x.mutable_view<float>()[static_cast<size_t>(i)] =
        std::sin(static_cast<float>(counts[static_cast<size_t>(row)] * 31 + at * at + step));
  }
  pipeline::Item batch;
  batch.set("x", x);
  batch.set("label", symbols(rows, length, [&](int64_t row, int64_t at) {
              const int count = counts[static_cast<size_t>(row)];
              return at < count ? 1 + static_cast<int>(count + at) % 2 : 0;
            }));
  return batch;
}

// A rank with longer sequences has more labels. One device pads all sequences to the same length.
TEST(RanksOfAJob, CountForTheirLabelsWhateverTheLengthOfTheirSequences) {
  const train::LearnerSpec spec{
      parse_json(R"({"inputs": ["x"], "layers": [{"layer": "dense", "units": 8}, {"layer": "relu"},
                     {"layer": "dense", "units": 3}], "loss": {"ignore_index": 0}})",
                 "model"),
      Json{{"optimizer", "sgd"}}, Json{{"learning_rate", 0.3}}, 3, 1000};
  const std::vector<int> few{1, 3}, many{11, 7};
  constexpr int kSteps = 6;
  const auto losses_of = [](train::Learner& learner) {
    std::vector<double> losses;
    for (const auto& metrics : learner.take_metrics(true)) losses.push_back(metrics.loss);
    return losses;
  };
  train::Learner alone(shared_kernels(), spec);
  for (int step = 0; step < kSteps; ++step) alone.step(sequences({1, 3, 11, 7}, 12, step));
  const std::vector<double> expected = losses_of(alone);
  auto groups = exchange::local_groups(2, 30);
  std::vector<std::future<std::vector<double>>> ranks;
  for (exchange::Group& group : groups)
    ranks.push_back(std::async(std::launch::async, [&] {
      const auto kernels =
          std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(device_options()));
      const int rank = group.rank();
      train::Learner learner(
          kernels, spec,
          std::make_unique<parallel::DataParallel>(std::move(group), kernels->device()));
      for (int step = 0; step < kSteps; ++step)  // the ranks have the short sequences in turn
        learner.step((rank + step) % 2 == 0 ? sequences(few, 4, step) : sequences(many, 12, step),
                     {}, true);
      return losses_of(learner);
    }));
  for (auto& rank : ranks) {
    const std::vector<double> losses = rank.get();
    ASSERT_EQ(losses.size(), expected.size());
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5) << i;
  }
}

std::string bytes_of(std::span<const float> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

std::string bytes_of(const std::vector<pipeline::Field>& fields) {
  std::string out;
  for (const pipeline::Field& field : fields) out += bytes_of(field.tensor.view<float>());
  return out;
}

// The first of two ranks has three steps in flight that the other one joins only later. Their
// updates come after the exchange.
TEST(RanksOfAJob, StepsInFlightEndBeforeTheirWeightsAreUsed) {
  const train::LearnerSpec spec{
      parse_json(R"({"inputs": ["x"], "layers": [{"layer": "dense", "units": 8},
                     {"layer": "batch_norm"}, {"layer": "relu"}, {"layer": "flatten"},
                     {"layer": "dense", "units": 3}]})",
                 "model"),
      parse_json(R"({"optimizer": "sgd", "momentum": 0.9, "ema_decay": 0.5})", "optimizer"),
      Json{{"learning_rate", 0.3}}, 3, 1000};
  pipeline::Item batch = sequences({1, 3, 11, 7}, 4, 0);  // the same for both: so are their states
  batch.set("label", symbols(4, 0, [](int64_t row, int64_t) { return static_cast<int>(row % 3); }));
  train::KeptBatches kept(1 << 20);
  kept.begin_epoch();
  kept.add(batch);
  kept.end_epoch(/*whole=*/true);
  const auto saved = [](train::Learner& learner) {
    checkpoint::Files files;
    learner.save(files);
    return files;
  };
  using Use = std::function<std::string(train::Learner&)>;
  const std::pair<const char*, Use> uses[] = {
      {"weights", [](train::Learner& learner) { return bytes_of(learner.weights("")); }},
      {"predict",
       [&](train::Learner& learner) { return bytes_of(learner.predict(batch).view<float>()); }},
      {"evaluate",
       [&](train::Learner& learner) {
         const train::EvalProgress none;
         train::EvaluationInput input(kept, none, nullptr);
         const train::EvalMetrics metrics = learner.evaluate(input);
         return cat(metrics.loss, " ", metrics.accuracy);
       }},
      {"onnx", [](train::Learner& learner) { return learner.onnx(); }},
      {"save",
       [&](train::Learner& learner) {
         std::string out;
         for (const auto& [name, bytes] : saved(learner))
           out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
         return out;
       }},
  };
  auto groups = exchange::local_groups(2, 60);
  std::vector<std::unique_ptr<train::Learner>> learners;
  for (exchange::Group& group : groups) {
    const auto kernels =
        std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(device_options()));
    learners.push_back(std::make_unique<train::Learner>(
        kernels, spec,
        std::make_unique<parallel::DataParallel>(std::move(group), kernels->device())));
  }
  train::Learner &own = *learners[0], &other = *learners[1];
  const auto train_other = [&](int steps, std::chrono::milliseconds later) {
    return std::async(std::launch::async, [&other, &batch, steps, later] {
      std::this_thread::sleep_for(later);
      for (int step = 0; step < steps; ++step) other.step(batch);
      other.take_metrics(true);
    });
  };
  const auto train_with = [&](const std::function<void()>& meanwhile) {
    for (int step = 0; step < 3; ++step) own.step(batch);
    const auto late = train_other(3, std::chrono::milliseconds(200));
    meanwhile();
    late.wait();
    own.take_metrics(true);
  };
  {
    const auto first = train_other(1, {});
    own.step(batch);
    own.take_metrics(true);
  }
  for (const auto& [name, use] : uses) {
    use(own);  // so that it takes no time to prepare
    std::string in_flight;
    train_with([&, &use = use] { in_flight = use(own); });
    EXPECT_TRUE(in_flight == use(own)) << name;
    EXPECT_TRUE(in_flight == use(other)) << name << ": as on the other rank";
  }
  const auto before = own.weights("");
  train_with([&] { own.set_weights(before); });
  EXPECT_TRUE(bytes_of(own.weights("")) == bytes_of(before)) << "set_weights";
  const checkpoint::Files files = saved(own);
  train_with([&] { own.load(files); });
  const checkpoint::Files after = saved(own);
  for (const char* file : {"weights.safetensors", "optimizer.safetensors"})
    EXPECT_TRUE(after.at(file) == files.at(file)) << "load: " << file;
}

// With plain SGD, averaging the ranks' weights after each step equals averaging their gradients.
TEST(RanksOfAJob, AveragingWeightsInEveryStepIsSynchronousTraining) {
  TempDir dir;
  const auto trained = [&](Json parallel) {
    Json job = job_of(dir, 24);
    job["optimizer"] = {{"optimizer", "sgd"}, {"momentum", 0}};
    job["parallel"] = std::move(parallel);
    return together(2, [&](int) { return job; });
  };
  const auto synchronous = trained(Json::object());
  const auto averaged = trained(
      {{"algorithm", "diloco"}, {"outer_every", 1}, {"outer_rate", 1}, {"outer_momentum", 0}});
  for (const Outcome& rank : averaged) {
    ASSERT_FALSE(rank.error) << rank.error->what();
    EXPECT_EQ(rank.end.step, 15u);
    EXPECT_EQ(rank.weights, averaged[0].weights) << "bit for bit";
    ASSERT_EQ(rank.weights.size(), synchronous[0].weights.size());
    for (size_t i = 0; i < rank.weights.size(); ++i)
      ASSERT_NEAR(rank.weights[i], synchronous[0].weights[i], 1e-4) << i;
  }
}

// With batch normalisation each rank has its own running statistics while it trains. Evaluations
// and checkpoints use their mean.
TEST(RanksOfAJob, EvaluateWhatTheySave) {
  TempDir dir;
  Json job = job_of(dir, 24, dir.path("out"));
  Json& layers = job["model"]["layers"];
  layers.insert(layers.begin() + 1, Json{{"layer", "batch_norm"}, {"activation", "relu"}});
  const auto ranks = together(3, [&](int) { return job; });
  for (const Outcome& rank : ranks) {
    ASSERT_FALSE(rank.error) << rank.error->what();
    EXPECT_EQ(rank.weights, ranks[0].weights) << "including running statistics";
  }
  Trainer saved(std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(device_options())),
                Job::parse(job.dump(), "job"), Start::evaluate);
  const train::EvalMetrics metrics = saved.evaluate();
  EXPECT_EQ(metrics.samples, 100);
  EXPECT_NEAR(metrics.loss, ranks[0].end.eval_loss, 1e-5);
  EXPECT_NEAR(metrics.accuracy, ranks[0].end.eval_accuracy, 1e-9);
}

// sync_batch_norm: batch normalisation over the rows of all ranks.
TEST(RanksOfAJob, MayNormaliseTogether) {
  TempDir dir;
  const auto job = [&](int64_t batch, bool synchronised) {
    Json of = job_of(dir, batch);
    Json& layers = of["model"]["layers"];
    layers.insert(layers.begin() + 1, Json{{"layer", "batch_norm"}, {"activation", "relu"}});
    of["train"] = {{"steps", 6}};
    of.erase("evaluation");
    of["parallel"] = {{"sync_batch_norm", synchronised}};
    return of;
  };
  Json whole = job(48, false);
  whole.erase("parallel");
  const Outcome one = run(whole, Start::new_run, nullptr, {});
  ASSERT_FALSE(one.error) << one.error->what();
  const auto furthest = [&](bool synchronised) {
    const auto ranks = together(2, [&](int) { return job(24, synchronised); });
    float most = 0;
    for (const Outcome& rank : ranks) {
      EXPECT_FALSE(rank.error) << rank.error->what();
      for (size_t i = 0; i < one.weights.size() && !rank.error; ++i)
        most = std::max(most, std::abs(rank.weights[i] - one.weights[i]));
    }
    return most;
  };
  EXPECT_LT(furthest(true), 2e-4f);
  EXPECT_GT(furthest(false), 2e-3f);
}

// Returns a job with dense layers that ranks can share.
Json job_of_blocks(const TempDir& dir, int64_t batch, const std::string& out) {
  Json job = job_of(dir, batch, out);
  Json& layers = job["model"]["layers"];
  layers.insert(layers.end() - 1, {{{"layer", "dense"}, {"units", 24}, {"activation", "relu"}},
                                   {{"layer", "dropout"}, {"rate", 0.2}},
                                   {{"layer", "dense"}, {"units", 12}, {"activation", "relu"}}});
  job["optimizer"] = {{"optimizer", "adam"}, {"ema_decay", 0.9}, {"clip_norm", 0.5}};
  job["schedule"] = {{"learning_rate", 0.002}};
  job["train"] = {{"steps", 10}};
  return job;
}

TEST(RanksOfAJob, ShareTheTensorsOfAModel) {
  TempDir dir;
  for (const parallel::MeshShape& mesh : {parallel::MeshShape{1, 1, 2}, {2, 1, 2}}) {
    const auto with = [&](const parallel::MeshShape& of) {
      return together(
          of.size(), [&](int) { return job_of_blocks(dir, 24, ""); }, Start::new_run, {}, of);
    };
    const Outcome one = with({mesh.data, 1, 1})[0];  // with whole tensors
    ASSERT_FALSE(one.error) << one.error->what();
    const auto ranks = with(mesh);
    for (const Outcome& rank : ranks) {
      ASSERT_FALSE(rank.error) << rank.error->what();
      EXPECT_EQ(rank.end.examples, one.end.examples) << "each sample once";
      EXPECT_EQ(rank.weights, ranks[0].weights) << "bit for bit";
      ASSERT_EQ(rank.weights.size(), one.weights.size()) << "whole tensors";
      for (size_t i = 0; i < one.weights.size(); ++i)
        ASSERT_NEAR(rank.weights[i], one.weights[i], 5e-4) << i;
      ASSERT_EQ(rank.evaluations.size(), one.evaluations.size());
      for (size_t i = 0; i < one.evaluations.size(); ++i)
        EXPECT_NEAR(rank.evaluations[i].eval_loss, one.evaluations[i].eval_loss, 1e-3);
    }
  }
}

// A checkpoint has the whole model, its optimizer state and the position, whoever wrote it: here
// one device, then two ranks, then one device again.
TEST(RanksOfAJob, SaveAWholeModelOfWhichEachHasAPart) {
  TempDir dir;
  const Outcome one = run(job_of_blocks(dir, 24, dir.path("one")), Start::new_run, nullptr, {});
  const std::string out = dir.path("parts");
  const auto until = [&](int steps) {
    Json job = job_of_blocks(dir, 24, out);
    job["train"] = {{"steps", steps}, {"planned_steps", 10}};
    job["output"]["checkpoint_every_steps"] = 3;
    return job;
  };
  const parallel::MeshShape two{1, 1, 2};
  const Outcome first = run(until(3), Start::new_run, nullptr, {});
  ASSERT_FALSE(first.error) << first.error->what();
  for (const Outcome& rank : together(
           2, [&](int) { return until(6); }, Start::resume, {}, two)) {
    ASSERT_FALSE(rank.error) << rank.error->what();
    EXPECT_EQ(rank.end.step, 6u);
  }
  const Outcome last = run(until(10), Start::resume, nullptr, {});
  ASSERT_FALSE(last.error) << last.error->what();
  EXPECT_EQ(last.end.step, 10u);
  ASSERT_EQ(last.weights.size(), one.weights.size());
  for (size_t i = 0; i < one.weights.size(); ++i)
    ASSERT_NEAR(last.weights[i], one.weights[i], 5e-4) << i;
}

TEST(RanksOfAJob, SayWhatTheyCannotShare) {
  TempDir dir;
  const auto error_of = [&](const std::function<void(Json&)>& change) {
    const auto ranks = together(2,
                                [&](int) {
                                  Json job = job_of_blocks(dir, 24, "");
                                  change(job);
                                  return job;
                                },
                                Start::new_run, {}, {1, 1, 2});
    return ranks[0].error ? std::string(ranks[0].error->what()) : "";
  };
  const std::string odd = error_of([](Json& job) {
    Json& layers = job["model"]["layers"];
    layers[3]["units"] = 25;
    layers[5]["units"] = 13;
  });
  EXPECT_NE(odd.find("25 columns before it do not divide by 2"), std::string::npos) << odd;
  const std::string by_clock = error_of([](Json& job) {
    const Json echo{{"stage", "echo"}, {"mode", "on_demand"}, {"factor", 2}};
    Json& stages = job["pipeline"]["stages"];
    stages.insert(stages.begin() + 3, echo);
  });
  EXPECT_NE(by_clock.find("'on_demand' decides by the clock"), std::string::npos) << by_clock;
  const std::string overtaking = error_of([](Json& job) {
    Json& stages = job["pipeline"]["stages"];
    stages.insert(stages.begin() + 3, Json{{"stage", "overtake"}});
  });
  EXPECT_NE(overtaking.find("the stage 'overtake' depends on timing"), std::string::npos)
      << overtaking;
}

TEST(RanksOfAJob, ShareFilesThatAreLongerThanOneExchange) {
  checkpoint::Loaded stored{.step = 7};
  std::vector<std::byte>& large = stored.files["large"];
  large.resize((size_t{64} << 20) + 5);
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<std::byte>(i * 7 + (i >> 20));
  stored.files["empty"];
  auto groups = exchange::local_groups(2, 20);
  std::vector<std::future<void>> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      Ranks own(std::move(groups[static_cast<size_t>(rank)]));
      const auto loaded = own.share([&] { return stored; });
      EXPECT_EQ(loaded.step, 7u);
      EXPECT_TRUE(loaded.files == stored.files) << rank;
    }));
  for (auto& each : ranks) each.get();
}

// The time-out is for exchanges. What a rank does alone may take longer.
TEST(RanksOfAJob, WaitForWhatOneOfThemDoesAlone) {
  constexpr double kTimeout = 6;
  constexpr std::chrono::seconds kWork(7);
  auto groups = exchange::local_groups(2, kTimeout);
  std::vector<std::future<std::string>> ranks;
  for (int rank = 0; rank < 2; ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      Ranks own(std::move(groups[static_cast<size_t>(rank)]));
      return error_text([&] {
        const auto loaded = own.share([&] {
          std::this_thread::sleep_for(kWork);
          return checkpoint::Loaded{.step = 7};
        });
        EXPECT_EQ(loaded.step, 7u);
        const auto all = own.evaluate([&] {
          if (rank == 1) std::this_thread::sleep_for(kWork);
          return train::EvalMetrics{.samples = 1, .loss = 2.0 * rank, .weight = 1};
        });
        EXPECT_EQ(all.loss, 1);
        const std::string failed = error_text([&] {
          own.evaluate([&]() -> train::EvalMetrics {
            if (rank == 1) fail(Code::io, "the file is gone");
            return {.samples = 1};
          });
        });
        EXPECT_EQ(failed,
                  rank == 1 ? "the file is gone" : "rank 1 ended the evaluation: the file is gone");
        own.work_apart([&] {
          if (rank == 0) fail(Code::io, "the disk is full");
        });
        int64_t one = 1;
        own.sum(std::span(&one, 1));
      });
    }));
  EXPECT_EQ(ranks[0].get(), "the disk is full");
  EXPECT_NE(ranks[1].get().find("rank 0"), std::string::npos) << "left the group";
}

// Stands in for vkQueueSubmit of the first rank's device. The device is slow once: until the first
// rank has answered the second one, which waits for it.
struct SlowSubmission {
  static inline Trainer* trainer = nullptr;
  static inline PFN_vkQueueSubmit real = nullptr;
  static inline bool answers = false;

  static void install(Trainer& first) {
    trainer = &first;
    gpu::VulkanApi& api = first.learner().device()->vk().api;
    real = std::exchange(api.QueueSubmit, call);
  }
  static uint64_t exchanged() {
    return trainer->pipeline_stats()["ranks"]["bytes"].get<uint64_t>();
  }
  static VKAPI_ATTR VkResult VKAPI_CALL call(VkQueue queue, uint32_t count,
                                             const VkSubmitInfo* submissions, VkFence fence) {
    trainer->learner().device()->vk().api.QueueSubmit = real;
    const uint64_t before = exchanged();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (exchanged() == before && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    answers = exchanged() > before;
    return real(queue, count, submissions, fence);
  }
};

TEST(RanksOfAJob, WaitWhileTheFirstOneReadsWhatItSaves) {
  TempDir dir;
  const auto ranks = together(
      2, [&](int) { return job_of(dir, 16, dir.path("out")); }, Start::new_run,
      [](int rank, Trainer& trainer, const Event& event) {
        // The run's last checkpoint is next.
        if (rank == 0 && event.kind == EventKind::evaluation) SlowSubmission::install(trainer);
      });
  for (const Outcome& rank : ranks) EXPECT_FALSE(rank.error) << rank.error->what();
  EXPECT_TRUE(SlowSubmission::answers);
}

TEST(RanksOfAJob, EndAnEpochTogether) {
  TempDir dir;
  // 105 samples: 53 for one rank and 52 for the other, six batches and a rest for each. With 111,
  // one rank has seven batches, and the other six.
  for (const int samples : {105, 111}) {
    const auto ranks = together(2, [&](int) {
      Json job = job_of(dir, 8, "", samples);
      job["train"] = {{"epochs", 3}};
      return job;
    });
    for (const Outcome& rank : ranks) {
      ASSERT_FALSE(rank.error) << rank.error->what();
      EXPECT_EQ(rank.end.epoch, 3u);
      EXPECT_EQ(rank.end.step, 3u * 6);
      EXPECT_EQ(rank.end.examples, 3u * 6 * 16);
      ASSERT_EQ(rank.evaluations.size(), 3u) << "one for each epoch";
      for (uint64_t i = 0; i < 3; ++i) {
        EXPECT_EQ(rank.evaluations[i].epoch, i + 1);
        EXPECT_EQ(rank.evaluations[i].step, 6 * (i + 1)) << samples;
      }
      EXPECT_EQ(rank.weights, ranks[0].weights) << "bit for bit";
    }
  }
}

TEST(RanksOfAJob, AreStoppedByAnyOfThemAndGoOnTogether) {
  TempDir dir;
  const std::string whole = dir.path("whole"), parts = dir.path("parts");
  together(2, [&](int) { return job_of(dir, 24, whole); });
  const auto stopped = together(
      2, [&](int) { return job_of(dir, 24, parts); }, Start::new_run,
      [](int rank, Trainer& trainer, const Event& event) {
        if (rank == 1 && event.kind == EventKind::checkpoint) trainer.stop();
      });
  for (const Outcome& rank : stopped) {
    ASSERT_FALSE(rank.error) << rank.error->what();
    EXPECT_EQ(rank.end.step, stopped[0].end.step);
    EXPECT_LT(rank.end.step, 15u);
  }
  const auto ended = together(
      2, [&](int) { return job_of(dir, 24, parts); }, Start::resume);
  for (const Outcome& rank : ended) {
    ASSERT_FALSE(rank.error) << rank.error->what();
    EXPECT_EQ(rank.end.step, 15u);
  }
  EXPECT_EQ(losses_of(parts), losses_of(whole)) << "bit for bit";
}

// Resumes in the middle of an epoch. Every sample is trained on once.
TEST(RanksOfAJob, GoOnInAnotherNumber) {
  for (const int size : {1, 3}) {
    TempDir dir;
    const std::string out = dir.path("out");
    const auto job = [&](int) {
      Json own = job_of(dir, 10, out);
      own["train"] = {{"epochs", 1}};
      own["output"]["checkpoint_every_steps"] = 8;
      return own;
    };
    together(2, job, Start::new_run, [](int, Trainer& trainer, const Event& event) {
      if (event.kind == EventKind::checkpoint) trainer.stop();
    });
    EXPECT_EQ(steps_of(out).size(), 8u);
    const auto ranks = together(size, job, Start::resume);
    for (const Outcome& rank : ranks) {
      ASSERT_FALSE(rank.error) << rank.error->what();
      EXPECT_EQ(rank.end.epoch, 1u);
      EXPECT_EQ(rank.end.examples, 400u);
      EXPECT_EQ(rank.end.step, 8u + 240 / (10 * static_cast<unsigned>(size)));
      EXPECT_EQ(rank.weights, ranks[0].weights) << "bit for bit";
    }
  }
}

// When a checkpoint is saved, the rounding errors that are kept for later steps are dropped, also
// in the run that goes on. So a resumed run is the same.
TEST(RanksOfAJob, CompressedGoOnFromACheckpoint) {
  TempDir dir;
  const auto job = [&](const std::string& out, int steps) {
    Json made = job_of(dir, 24, out);
    made["parallel"] = {{"compression", "bf16"}};
    made["train"] = {{"steps", steps}};
    return made;
  };
  const std::string whole = dir.path("whole"), parts = dir.path("parts"), plain = dir.path("plain");
  together(2, [&](int) { return job(whole, 15); });
  together(2, [&](int) { return job(parts, 8); });
  const auto ended = together(
      2, [&](int) { return job(parts, 15); }, Start::resume);
  for (const Outcome& rank : ended) {
    ASSERT_FALSE(rank.error) << rank.error->what();
    EXPECT_EQ(rank.weights, ended[0].weights);
  }
  EXPECT_EQ(losses_of(parts), losses_of(whole)) << "bit for bit";
  together(2, [&](int) { return job_of(dir, 24, plain); });
  EXPECT_NE(losses_of(plain), losses_of(whole)) << "nothing was compressed";
}

TEST(RanksOfAJob, EndWithinTheirTime) {
  TempDir dir;
  const auto ranks = together(2, [&](int rank) {
    Json job = job_of(dir, 24);
    job["train"] = {{"seconds", rank == 0 ? 1e6 : 0.3}};
    return job;
  });
  for (const Outcome& rank : ranks) {
    ASSERT_FALSE(rank.error) << rank.error->what();
    EXPECT_EQ(rank.end.step, ranks[0].end.step);
  }
}

TEST(RanksOfAJob, AreToldWhyOneOfThemFailed) {
  TempDir dir;
  const auto ranks = together(3, [&](int rank) {
    Json job = job_of(dir, 16);
    if (rank == 1) job["pipeline"]["stages"][0]["pattern"] = dir.path("nowhere.tar");
    return job;
  });
  for (const Outcome& rank : ranks) {
    ASSERT_TRUE(rank.error);
    EXPECT_NE(std::string(rank.error->what()).find("nowhere.tar"), std::string::npos)
        << rank.error->what();
  }
  const auto resumed = together(
      2, [&](int) { return job_of(dir, 16, dir.path("none")); }, Start::resume);
  for (const Outcome& rank : resumed) {
    ASSERT_TRUE(rank.error);
    EXPECT_NE(std::string(rank.error->what()).find("no checkpoint"), std::string::npos)
        << rank.error->what();
  }
}

template <typename T>
void write_npy(const std::string& path, const std::string& type, const std::string& shape,
               const std::vector<T>& values) {
  const std::string dict =
      cat("{'descr': '", type, "', 'fortran_order': False, 'shape': ", shape, "}");
  std::ofstream file(path, std::ios::binary);
  file << std::string_view("\x93NUMPY\1\0", 8) << static_cast<char>(dict.size()) << '\0' << dict;
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
}

// Of ten positions, one sample counts one, another nine, another none. All divisions of the samples
// among batches, ranks and micro-batches have the mean over the positions that count.
TEST(RanksOfAJob, EvaluateTheMeanOverWhatCountsHoweverItIsDivided) {
  TempDir dir;
  constexpr int kSamples = 4, kPositions = 10, kCounted[kSamples] = {1, 9, 0, 5};
  std::vector<float> x;
  std::vector<int32_t> labels;
  for (int sample = 0; sample < kSamples; ++sample)
    for (int at = 0; at < kPositions; ++at) {
      for (int i = 0; i < 3; ++i) x.push_back(std::sin(static_cast<float>(x.size() * x.size())));
      labels.push_back(at < kCounted[sample] ? 1 + (sample + at) % 2 : 0);
    }
  write_npy(dir.path("x.npy"), "<f4", "(4, 10, 3)", x);
  write_npy(dir.path("label.npy"), "<i4", "(4, 10)", labels);
  const auto job = [&](int batch, const Json& class_weights) {
    const auto pipeline = [&](int size) {
      const std::string arrays = cat("x=", dir.path("x.npy"), ",label=", dir.path("label.npy"));
      return Json{{"stages",
                   {{{"stage", "npy"}, {"arrays", arrays}, {"shuffle", false}},
                    {{"stage", "batch"}, {"size", size}, {"drop_remainder", false}}}}};
    };
    return Json{
        {"seed", 4},
        {"pipeline", pipeline(2)},
        {"model",
         {{"inputs", {"x"}},
          {"layers", {{{"layer", "dense"}, {"units", 8}}, {{"layer", "dense"}, {"units", 3}}}},
          {"loss", {{"ignore_index", 0}, {"class_weights", class_weights}}}}},
        {"optimizer", {{"optimizer", "sgd"}}},
        {"schedule", {{"learning_rate", 0}}},
        {"train", {{"steps", 1}}},
        {"evaluation", {{"every_epochs", 1}, {"pipeline", pipeline(batch)}}},
        {"output", {{"dir", ""}}}};
  };
  for (const Json& weights : {Json::array(), Json{1, 0.25, 5}}) {
    const auto evaluated = [&](const std::vector<Outcome>& ranks) {
      for (const Outcome& rank : ranks)
        if (rank.error) throw Error(*rank.error);
      return ranks[0].end;
    };
    const auto alone = [&](int batch) {
      return evaluated({run(job(batch, weights), Start::new_run, nullptr, {})});
    };
    const Event whole = alone(kSamples);
    const auto expect_same = [&](const Event& end, const char* what) {
      EXPECT_NEAR(end.eval_loss, whole.eval_loss, 1e-6) << what << weights;
      EXPECT_NEAR(end.eval_accuracy, whole.eval_accuracy, 1e-6) << what << weights;
    };
    expect_same(alone(1), "batches of one");
    expect_same(alone(2), "batches of two");
    expect_same(alone(3), "batches of three");
    expect_same(evaluated(together(2, [&](int) { return job(1, weights); })), "two ranks");
    expect_same(evaluated(together(
                    2,
                    [&](int) {
                      Json staged = job(3, weights);
                      staged["parallel"] = {{"mesh", {{"pipeline", 2}}}, {"micro_batches", 2}};
                      return staged;
                    })),
                "two stages");
  }
}

// A rank without a sample does not count in the mean, and trains on as the others do.
TEST(RanksOfAJob, EvaluateFewerSamplesThanTheyAre) {
  TempDir dir;
  const auto job = [&](int batch, int samples) {
    Json made = job_of(dir, batch);
    made["evaluation"]["pipeline"]["stages"][0]["pattern"] =
        make_band_shard(dir, cat("few", samples), samples, 2);
    made["evaluation"]["every_steps"] = 5;
    return made;
  };
  const Outcome one = run(job(48, 2), Start::new_run, nullptr, {});
  ASSERT_FALSE(one.error) << one.error->what();
  const auto ranks = together(3, [&](int) { return job(16, 2); });
  for (const Outcome& rank : ranks) {
    ASSERT_FALSE(rank.error) << rank.error->what();
    EXPECT_EQ(rank.weights, ranks[0].weights) << "bit for bit";
    ASSERT_EQ(rank.evaluations.size(), one.evaluations.size());
    for (size_t i = 0; i < one.evaluations.size(); ++i) {
      EXPECT_NEAR(rank.evaluations[i].eval_loss, one.evaluations[i].eval_loss, 1e-4);
      EXPECT_EQ(rank.evaluations[i].eval_accuracy, one.evaluations[i].eval_accuracy);
    }
  }
}

// Evaluates a checkpoint with learners that have had no batch.
TEST(RanksOfAJob, EvaluateFewerSamplesThanTheyAreBeforeTheFirstStep) {
  TempDir dir;
  Json job = job_of(dir, 24, dir.path("out"));
  job["evaluation"]["pipeline"]["stages"][0]["pattern"] = make_band_shard(dir, "few", 1, 2);
  const Outcome one = run(job, Start::new_run, nullptr, {});
  ASSERT_FALSE(one.error) << one.error->what();
  auto groups = exchange::local_groups(2, 30);
  std::vector<std::future<train::EvalMetrics>> ranks;
  for (exchange::Group& group : groups)
    ranks.push_back(std::async(std::launch::async, [&] {
      Trainer trainer(
          std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(device_options())),
          Job::parse(job.dump(), "job"), Start::evaluate,
          std::make_unique<Ranks>(std::move(group)));
      return trainer.evaluate();
    }));
  for (auto& rank : ranks) {
    const train::EvalMetrics metrics = rank.get();
    EXPECT_EQ(metrics.samples, 1);
    EXPECT_NEAR(metrics.loss, one.end.eval_loss, 1e-5);
  }
}

TEST(RanksOfAJob, AreToldThatThereIsNothingToEvaluate) {
  TempDir dir;
  const auto ranks = together(2, [&](int) {
    Json job = job_of(dir, 24);
    Json& stages = job["evaluation"]["pipeline"]["stages"];
    stages.insert(stages.begin() + 1, Json{{"stage", "skip"}, {"count", 1000}});
    return job;
  });
  for (const Outcome& rank : ranks) {
    ASSERT_TRUE(rank.error);
    EXPECT_NE(std::string(rank.error->what()).find("no samples"), std::string::npos)
        << rank.error->what();
  }
}

// Returns four images of size x size; `not_a_number`: one value is NaN.
pipeline::Item images_of(int64_t size, bool not_a_number = false) {
  Tensor x(DType::f32, {4, size, size, 1});
  const auto values = x.mutable_view<float>();
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = std::sin(static_cast<float>(i + 1 + static_cast<size_t>(size)));
  if (not_a_number) values[3] = std::nanf("");
  pipeline::Item batch;
  batch.set("image", x);
  batch.set("label", symbols(4, 0, [](int64_t row, int64_t) { return static_cast<int>(row % 3); }));
  return batch;
}

// The failing batch of rank 1 has a shape of its own, and rank 0 has no such batch. The search for
// the cause must not need a new plan, on which the ranks would have to agree.
TEST(RanksOfAJob, SayWhatWasNotFiniteInABatchOfAShapeOfItsOwn) {
  constexpr const char* kPooled =
      R"({"layers": [{"layer": "conv2d", "filters": 4}, {"layer": "global_avg_pool"}, {"layer": "dense", "units": 3}]})";
  auto groups = exchange::local_groups(2, 60);
  std::vector<std::future<std::string>> ranks;
  for (exchange::Group& group : groups)
    ranks.push_back(std::async(std::launch::async, [&]() -> std::string {
      const auto kernels =
          std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(device_options()));
      const bool fails = group.rank() == 1;
      train::Learner learner(
          kernels,
          {parse_json(kPooled, "model"), Json{{"optimizer", "sgd"}}, Json{{"learning_rate", 0.01}},
           3, 1000},
          std::make_unique<parallel::DataParallel>(std::move(group), kernels->device()));
      try {
        learner.step(images_of(6), {}, true);
        learner.step(images_of(fails ? 8 : 6, fails), {}, true);
        learner.step(images_of(6), {}, true);
        while (true) learner.take_metrics(true);
      } catch (const Error& error) {
        return error.what();
      }
    }));
  const std::string first = ranks[0].get(), second = ranks[1].get();
  EXPECT_NE(first.find("step 2: the loss is nan; not in the part"), std::string::npos) << first;
  EXPECT_NE(second.find("the batch's field 'image'"), std::string::npos) << second;
}

// Every rank has initial weights of its own until it gets those of the first.
TEST(RanksOfAJob, BeginTheirAveragesWithTheWeightsThatTheyShare) {
  auto groups = exchange::local_groups(2, 30);
  std::vector<std::future<std::vector<float>>> ranks;
  for (exchange::Group& group : groups)
    ranks.push_back(std::async(std::launch::async, [&] {
      const auto kernels =
          std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(device_options()));
      const auto seed = static_cast<uint64_t>(3 + group.rank());
      train::Learner learner(
          kernels,
          {parse_json(R"({"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 3}]})",
                      "model"),
           Json{{"optimizer", "sgd"}, {"ema_decay", 0.9}}, Json{{"learning_rate", 0.01}}, seed,
           1000},
          std::make_unique<parallel::DataParallel>(std::move(group), kernels->device()));
      return values_of(learner.predict(images_of(6)));
    }));
  const std::vector<float> first = ranks[0].get();
  EXPECT_EQ(first, ranks[1].get());
  EXPECT_NE(first, std::vector<float>(first.size(), 0));
}

TEST(RanksOfAJob, SayOnWhichOfThemAStepWasNotFinite) {
  TempDir dir;
  const auto ranks = together(2, [&](int rank) {
    Json job = job_of(dir, 24);
    if (rank == 1) job["schedule"]["learning_rate"] = 1000;  // this rank's weights diverge
    return job;
  });
  for (const Outcome& rank : ranks) {
    ASSERT_TRUE(rank.error);
    EXPECT_EQ(rank.error->code(), Code::not_finite) << rank.error->what();
  }
  const std::string first = ranks[0].error->what(), second = ranks[1].error->what();
  EXPECT_NE(first.find("not in the part of the batch that rank 0 had"), std::string::npos) << first;
  EXPECT_NE(second.find("the first to be NaN or infinite: "), std::string::npos) << second;
}

}  // namespace
}  // namespace etr::test

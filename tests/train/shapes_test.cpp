// Batches of any number of rows, and samples of any shape that the parameters do not depend on.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json.h"
#include "core/rng.h"
#include "support/data.h"
#include "train/plans.h"
#include "train/small_learner.h"

namespace etr::test {
namespace {

using train::Learner;

// A model for images of any size. Its batch statistics depend on the rows that fill up a batch.
constexpr const char* kPooled =
    R"({"layers": [{"layer": "conv2d", "filters": 4}, {"layer": "batch_norm", "activation": "relu"},
                   {"layer": "global_avg_pool"}, {"layer": "dense", "units": 3}]})";
constexpr const char* kPlainSgd = R"({"optimizer": "sgd", "momentum": 0.9})";

// Returns a batch. Its row r depends on the seed and the size, not on the number of rows.
pipeline::Item shaped_images(int64_t rows, int seed, int64_t size = 6) {
  Tensor x(DType::f32, {rows, size, size, 2});
  const auto values = x.mutable_view<float>();
  const auto each = static_cast<size_t>(x.count() / rows);
  for (int64_t r = 0; r < rows; ++r) {
    Rng rng(static_cast<uint64_t>(seed), static_cast<uint64_t>(r));
    for (size_t i = 0; i < each; ++i)
      values[static_cast<size_t>(r) * each + i] = rng.uniform(-1, 1);
  }
  pipeline::Item batch;
  batch.set("image", x);
  batch.set("label", symbols(rows, 0, [seed](int64_t r, int64_t) {
              return static_cast<int>((r + seed) % 3);
            }));
  return batch;
}

checkpoint::Files saved_model(Learner& learner) {
  checkpoint::Files files;
  learner.save(files);
  return files;
}

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

std::vector<float> losses_of(Learner& learner) {
  std::vector<float> out;
  for (const auto& metrics : learner.take_metrics(true)) out.push_back(metrics.loss);
  return out;
}

template <typename Call>
std::string shape_error(const Call& call, Code code = Code::invalid_argument) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "";
}

// A prediction before training, with any number of rows, does not change training.
TEST(Shapes, APredictionDoesNotDecideHowTrainingIsPlanned) {
  Learner plain = make_learner(kPooled, kPlainSgd, 0.1);
  for (int i = 0; i < 4; ++i) plain.step(shaped_images(16, i));
  const std::vector<float> losses = losses_of(plain);
  const checkpoint::Files files = saved_model(plain);
  for (const int64_t rows : {1, 7, 40}) {
    Learner learner = make_learner(kPooled, kPlainSgd, 0.1);
    EXPECT_EQ(learner.predict(shaped_images(rows, 9)).shape(), (Shape{rows, 3}));
    for (int i = 0; i < 4; ++i) learner.step(shaped_images(16, i));
    EXPECT_EQ(losses_of(learner), losses) << rows;
    EXPECT_EQ(saved_model(learner), files) << rows;
  }
}

// In any order of sizes, before and after training, the prediction for a row does not depend on the
// batch's size.
TEST(Shapes, BatchesOfAnySizeArePredicted) {
  Learner learner = make_learner(kPooled, kPlainSgd, 0.1);
  for (const bool trained : {false, true}) {
    if (trained)
      for (int i = 0; i < 3; ++i) learner.step(shaped_images(16, i));
    const std::vector<float> most = values_of(learner.predict(shaped_images(100, 5)));
    for (const int64_t rows : {1, 16, 3, 17, 30, 33, 64, 65, 99, 100, 2}) {
      const std::vector<float> got = values_of(learner.predict(shaped_images(rows, 5)));
      ASSERT_EQ(got.size(), static_cast<size_t>(rows * 3));
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], most[i], 1e-5) << rows;
    }
  }
}

// A run that was interrupted equals one that was not, also if it was interrupted before a batch
// with fewer rows.
TEST(Shapes, AResumedRunFillsBatchesUpAsBefore) {
  const std::vector<int64_t> rows = {16, 5, 16, 24, 16, 5};
  Learner whole = make_learner(kPooled, kPlainSgd, 0.1);
  for (size_t i = 0; i < rows.size(); ++i) whole.step(shaped_images(rows[i], static_cast<int>(i)));
  const std::vector<float> losses = losses_of(whole);
  for (size_t cut = 1; cut < rows.size(); ++cut) {
    Learner before = make_learner(kPooled, kPlainSgd, 0.1),
            after = make_learner(kPooled, kPlainSgd, 0.1);
    for (size_t i = 0; i < cut; ++i) before.step(shaped_images(rows[i], static_cast<int>(i)));
    std::vector<float> both = losses_of(before);
    after.load(saved_model(before));
    for (size_t i = cut; i < rows.size(); ++i)
      after.step(shaped_images(rows[i], static_cast<int>(i)));
    const std::vector<float> rest = losses_of(after);
    both.insert(both.end(), rest.begin(), rest.end());
    EXPECT_EQ(both, losses) << "interrupted after step " << cut;
    EXPECT_EQ(saved_model(after), saved_model(whole)) << cut;
  }
}

pipeline::Pipeline evaluation(const std::string& shard, int batch, int epochs = 1) {
  return pipeline::Pipeline(
      parse_json(cat(R"({"epochs": )", epochs, R"(, "stages": [
      {"stage": "webdataset", "pattern": ")",
                     shard, R"("}, {"stage": "label", "classes": 4},
      {"stage": "decode"}, {"stage": "batch", "size": )",
                     batch, R"(, "drop_remainder": false}, {"stage": "normalize"}]})"),
                 "pipeline"));
}

// If the pipeline is within an epoch, the rest of it is skipped and the next epoch is scored.
TEST(Shapes, AnEvaluationIsAWholeEpoch) {
  TempDir dir;
  const std::string shard = make_band_shard(dir, "test", 100, 2);
  Learner learner = make_learner(
      R"({"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 4}]})", kPlainSgd);
  pipeline::Item batch;
  for (const int read : {0, 1, 3, 10}) {  // of ten batches
    pipeline::Pipeline p = evaluation(shard, 10, 2);
    for (int i = 0; i < read; ++i) ASSERT_EQ(p.next(batch), pipeline::Pipeline::Next::item);
    const train::EvalMetrics got = learner.evaluate(p);
    EXPECT_EQ(got.samples, 100) << read;
    if (read == 0) {
      EXPECT_EQ(learner.evaluate(p).samples, 100);
    }
    EXPECT_HAS(shape_error([&] { learner.evaluate(p); }), "no epoch left");
  }
  pipeline::Pipeline once = evaluation(shard, 10, 1);
  once.next(batch);
  EXPECT_HAS(shape_error([&] { learner.evaluate(once); }), "the last one had begun");
}

// An evaluation that was stopped leaves the pipeline within an epoch, and so does restoring such a
// position.
TEST(Shapes, AnEvaluationAfterOneThatWasStoppedIsWhole) {
  TempDir dir;
  const std::string shard = make_band_shard(dir, "test", 100, 2);
  Learner learner = make_learner(
      R"({"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 4}]})", kPlainSgd);
  pipeline::Pipeline p = evaluation(shard, 10, 0);
  const auto stop_at_two = [](int64_t done, int64_t) { return done < 2; };
  EXPECT_HAS(shape_error([&] { learner.evaluate(p, stop_at_two); }, Code::cancelled),
             "after 2 batches");
  pipeline::Pipeline restored = evaluation(shard, 10, 0);
  restored.restore(p.save());
  std::vector<std::pair<int64_t, int64_t>> told;
  const auto listen = [&](int64_t done, int64_t batches) {
    told.emplace_back(done, batches);
    return true;
  };
  EXPECT_EQ(learner.evaluate(p, listen).samples, 100);
  ASSERT_EQ(told.size(), 18u) << "eight batches that are skipped, then ten";
  for (size_t i = 0; i < told.size(); ++i)
    EXPECT_EQ(told[i].first, i < 8 ? 0 : static_cast<int64_t>(i) - 7);
  EXPECT_EQ(learner.evaluate(restored).samples, 100);
  pipeline::Item batch;
  restored.next(batch);
  EXPECT_HAS(
      shape_error([&] { learner.evaluate(restored, [](int64_t, int64_t) { return false; }); },
                  Code::cancelled),
      "before the first batch");
  const std::atomic<bool> stop{true};
  EXPECT_HAS(shape_error([&] { learner.evaluate(restored, {}, &stop); }, Code::cancelled),
             "before the first batch");
}

// Evaluation batches are larger or smaller than those of training, and the last may be smaller.
TEST(Shapes, EvaluationCountsEachSampleOnceWhateverItsBatch) {
  TempDir dir;
  const std::string shard = make_band_shard(dir, "test", 100, 2);
  const char* model =
      R"({"layers": [{"layer": "conv2d", "filters": 4}, {"layer": "batch_norm"}, {"layer": "flatten"},
                     {"layer": "dense", "units": 4}]})";
  const auto first_of = [&](int size) {
    pipeline::Item batch;
    pipeline::Pipeline p = evaluation(shard, size);
    p.next(batch);
    return batch;
  };
  const pipeline::Item training = first_of(16);
  Learner trained = make_learner(model, kPlainSgd);
  for (int i = 0; i < 3; ++i) trained.step(training);
  EXPECT_EQ(trained.take_metrics(true).size(), 3u);
  const auto expected = [&] {
    pipeline::Pipeline p = evaluation(shard, 16);
    return trained.evaluate(p);
  }();
  const checkpoint::Files files = saved_model(trained);
  for (const int size : {30, 100, 7, 1}) {
    for (const bool resumed : {false, true}) {
      Learner fresh = make_learner(model, kPlainSgd);
      if (resumed) fresh.load(files);
      Learner& learner = resumed ? fresh : trained;
      pipeline::Pipeline p = evaluation(shard, size);
      const train::EvalMetrics got = learner.evaluate(p);
      EXPECT_EQ(got.samples, 100);
      EXPECT_NEAR(got.loss, expected.loss, 1e-5) << size << resumed;
      EXPECT_NEAR(got.accuracy, expected.accuracy, 1e-6) << size << resumed;
      learner.step(training);  // trains after the evaluation
      EXPECT_EQ(learner.take_metrics(true).size(), 1u);
      if (!resumed) trained.load(files);
    }
  }
}

TEST(Shapes, MoreThanTheMemoryHoldsIsCutIntoParts) {
  gpu::DeviceOptions options = device_options(gpu::KernelFamily::automatic);
  options.memory_limit_bytes = 24 << 20;
  const auto small = std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(options));
  const auto make = [](const std::shared_ptr<gpu::Kernels>& kernels) {
    return Learner(kernels, {parse_json(kPooled, "model"), parse_json(kPlainSgd, "optimizer"),
                             Json{{"learning_rate", 0.1}}, 3, 100});
  };
  Learner learner = make(small), roomy = make(shared_kernels());
  const std::vector<float> whole = values_of(roomy.predict(shaped_images(600, 1, 32)));
  const std::vector<float> parts = values_of(learner.predict(shaped_images(600, 1, 32)));
  EXPECT_LT(learner.plan_bytes(), roomy.plan_bytes() / 2);
  ASSERT_EQ(parts.size(), whole.size());
  for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(parts[i], whole[i], 1e-5) << i;
}

// As from a bucketed pipeline. Steps of several shapes are in flight at once; their results come in
// the order of the steps.
TEST(Shapes, ImagesOfManySizesTrainInTurn) {
  Learner learner = make_learner(kPooled, kPlainSgd, 0.1);
  for (int i = 0; i < 12; ++i) learner.step(shaped_images(i % 2 ? 8 : 4, i, 6 + i % 3));
  const auto metrics = learner.take_metrics(true);
  ASSERT_EQ(metrics.size(), 12u);
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(metrics[i].step, i + 1);
  EXPECT_EQ(learner.predict(shaped_images(5, 0, 11)).shape(), (Shape{5, 3}));
  // The same steps, each finished before the next.
  Learner careful = make_learner(kPooled, kPlainSgd, 0.1);
  for (int i = 0; i < 12; ++i) {
    careful.step(shaped_images(i % 2 ? 8 : 4, i, 6 + i % 3));
    EXPECT_EQ(careful.take_metrics(true).at(0).loss, metrics[static_cast<size_t>(i)].loss) << i;
  }
  EXPECT_EQ(saved_model(learner), saved_model(careful));
}

// After a checkpoint is loaded, step numbers repeat while earlier steps are still in flight.
TEST(Shapes, StepsBeforeALoadGiveTheirResultsToo) {
  Learner learner = make_learner(kPooled, kPlainSgd, 0.1);
  learner.step(shaped_images(16, 0));
  const checkpoint::Files files = saved_model(learner);
  for (int i = 1; i < 4; ++i) learner.step(shaped_images(16, i));
  learner.load(files);
  for (int i = 1; i < 4; ++i) learner.step(shaped_images(12, i));
  const auto metrics = learner.take_metrics(true);
  ASSERT_EQ(metrics.size(), 7u);
  const std::vector<uint64_t> steps{1, 2, 3, 4, 2, 3, 4};
  for (size_t i = 0; i < 7; ++i) {
    EXPECT_EQ(metrics[i].step, steps[i]);
    EXPECT_EQ(metrics[i].counts.samples, i < 4 ? 16 : 12);
  }
  EXPECT_EQ(learner.in_flight(), 0);
}

// The plans of as many shapes as are kept are not made again, and a further one takes the place of
// the one that was used least recently.
TEST(Shapes, PlansOfAFewShapesAreKept) {
  Learner learner = make_learner(kPooled, kPlainSgd, 0.1);
  const auto bytes_after = [&](size_t shape) {
    learner.step(shaped_images(4, static_cast<int>(shape), 4 + 24 * static_cast<int64_t>(shape)));
    EXPECT_EQ(learner.take_metrics(true).size(), 1u);
    return learner.plan_bytes();
  };
  uint64_t kept = 0;
  std::vector<uint64_t> own;  // of each shape's plan
  for (size_t shape = 0; shape < train::Plans::kMost; ++shape) {
    const uint64_t bytes = bytes_after(shape);
    EXPECT_GT(bytes, kept) << "one more plan";
    own.push_back(bytes - kept);
    kept = bytes;
  }
  ASSERT_GT(own[2], own[1]) << "sizes tell plans apart";
  ASSERT_GT(own[3], own[2]);
  for (size_t shape = 0; shape < own.size(); ++shape)
    EXPECT_EQ(bytes_after(shape), kept) << shape << ": its plan is still there";
  bytes_after(0);  // the plan of the second shape is now the next to go
  const uint64_t with_another = bytes_after(own.size());
  EXPECT_EQ(bytes_after(0), with_another) << "the first one is still there";
  EXPECT_EQ(bytes_after(1), with_another + own[1] - own[2]) << "made again, instead of the third";
  EXPECT_EQ(bytes_after(2), with_another + own[1] - own[3]) << "and so on";
  EXPECT_EQ(learner.steps(), 2 * own.size() + 5);
}

TEST(Shapes, SequencesOfManyLengths) {
  const auto sequences = [](int64_t rows, int64_t length) {
    const auto at = [](int64_t r, int64_t c) { return static_cast<int>((r * 3 + c) % 7); };
    pipeline::Item batch;
    batch.set("input", symbols(rows, length, at));
    batch.set("target", symbols(rows, length, [&](int64_t r, int64_t c) { return at(r, c + 1); }));
    return batch;
  };
  const auto model = [](const char* positions) {
    return cat(R"({"inputs": ["input"], "loss": {"target": "target"}, "layers": [
        {"layer": "embedding", "entries": 7, "width": 16},
        {"layer": "position_embedding", "kind": ")",
               positions, R"("},
        {"layer": "attention", "heads": 2, "causal": true}, {"layer": "dense", "units": 7}]})");
  };
  Learner learner = make_learner(model("sinusoidal"), R"({"optimizer": "adam"})");
  for (int i = 0; i < 30; ++i) learner.step(sequences(8, 5 + i % 4));
  const auto metrics = learner.take_metrics(true);
  EXPECT_LT(metrics.back().loss, metrics.front().loss);
  EXPECT_EQ(learner.predict(sequences(3, 10)).shape(), (Shape{3, 10, 7}));
  // With a learned embedding for each position, 12 positions do not serve a sequence of 13.
  Learner learned = make_learner(model("learned"), R"({"optimizer": "adam"})");
  learned.step(sequences(8, 12));
  const std::string error = shape_error([&] { learned.step(sequences(8, 13)); });
  EXPECT_NE(error.find("field 'input' is i32 [N, 13], and was i32 [N, 12] in the first batch"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("position_embedding_2.weight' would be [13, 16] and is [12, 16]"),
            std::string::npos)
      << error;
  EXPECT_NE(error.find("pad"), std::string::npos) << error;
  learned.step(sequences(8, 12));  // as before
  EXPECT_EQ(learned.take_metrics(true).size(), 2u);
}

// A batch that can never fit is an error, after which batches that fit are still accepted.
TEST(Shapes, ErrorsNameTheFieldTheShapeAndTheRemedy) {
  const char* flat = R"({"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 3}]})";
  Learner learner = make_learner(flat, kPlainSgd);
  pipeline::Item bytes = shaped_images(4, 0);
  bytes.set("image", Tensor(DType::u8, {4, 6, 6, 2}));
  EXPECT_NE(shape_error([&] { learner.step(bytes); })
                .find("field 'image' is u8 [4, 6, 6, 2]; this model works on f32 [N, 6, 6, 2] (put "
                      "a normalize stage in the pipeline; in a batch of your own do what it does: "
                      "(x / 255 - "
                      "mean) / std)"),
            std::string::npos);
  pipeline::Item short_of_labels = shaped_images(4, 0);
  short_of_labels.set("label", symbols(3, 0, [](int64_t, int64_t) { return 0; }));
  EXPECT_NE(shape_error([&] {
              learner.step(short_of_labels);
            }).find("field 'label' is i32 [3] in a batch of 4 samples"),
            std::string::npos);
  EXPECT_NE(shape_error([&] { learner.predict(bytes); }).find("normalize"), std::string::npos);
  learner.step(shaped_images(4, 0, 8));  // the first that fits determines the parameters' shapes
  const std::string error = shape_error([&] { learner.step(shaped_images(4, 0, 6)); });
  for (const char* words :
       {"field 'image' is f32 [N, 6, 6, 2], and was f32 [N, 8, 8, 2]",
        "'dense_2.weight' would be [72, 3] and is [128, 3]", "resize", "global_avg_pool"})
    EXPECT_NE(error.find(words), std::string::npos) << error;
  pipeline::Item none;
  none.set("image", Tensor(DType::f32, {0, 8, 8, 2}));
  EXPECT_NE(shape_error([&] { learner.predict(none); }).find("the batch is empty"),
            std::string::npos);
  learner.step(shaped_images(9, 0, 8));
  EXPECT_EQ(learner.take_metrics(true).size(), 2u);
}

// Before and after the learner's first batch.
TEST(Shapes, ACheckpointOfAnotherOptimizerIsRefusedByName) {
  const char* optimizers[] = {"sgd", "adam", "adamw", "lion", "rmsprop"};
  for (const char* made : optimizers) {
    const auto with = [](const char* name) {
      return make_learner(kPooled, cat(R"({"optimizer": ")", name, "\"}"));
    };
    Learner learner = with(made);
    learner.step(shaped_images(4, 0));
    const checkpoint::Files files = saved_model(learner);
    for (const char* name : optimizers)
      for (const bool begun : {false, true}) {
        Learner other = with(name);
        if (begun) other.step(shaped_images(4, 0));
        const std::string error = shape_error([&] { other.load(files); });
        if (std::string(name) == made) {
          EXPECT_EQ(error, "");
          continue;
        }
        EXPECT_HAS(error, cat("made with '", made, "'"));
        EXPECT_HAS(error, cat("this trainer has '", name, "'"));
        EXPECT_EQ(other.steps(), begun ? 1u : 0u) << "nothing is changed";
      }
  }
}

// Checkpoints of earlier versions lack it.
TEST(Shapes, ACheckpointWithoutTheOptimizersNameLoads) {
  Learner learner = make_learner(kPooled, kPlainSgd), other = make_learner(kPooled, kPlainSgd);
  learner.step(shaped_images(4, 0));
  other.step(shaped_images(4, 1));
  checkpoint::Files files = saved_model(learner);
  Json state = checkpoint::json_of(files, "learner.json", "test");
  ASSERT_EQ(state.erase("optimizer"), 1u);
  checkpoint::put_text(files, "learner.json", state.dump());
  other.load(files);
  EXPECT_EQ(other.steps(), 1u);
  EXPECT_EQ(saved_model(other), saved_model(learner)) << "nothing is lost";
}

// Before and after the learner's first batch.
TEST(Shapes, ACheckpointWhoseStateWouldBeLostIsRefusedByName) {
  const struct {
    const char *option, *value, *state;
  } cases[] = {{"momentum", "0.9", "velocity"},
               {"ema_decay", "0.5", "average"},
               {"proximal", "0.1", "anchor"},
               {"accumulate", "2", "accumulated"}};
  const char* plain = R"({"optimizer": "sgd"})";
  for (const auto& [option, value, state] : cases) {
    Learner learner =
        make_learner(kPooled, cat(R"({"optimizer": "sgd", ")", option, "\": ", value, "}"));
    learner.step(shaped_images(4, 0));
    checkpoint::Files files = saved_model(learner);
    // Earlier versions did not save this number.
    Json json = checkpoint::json_of(files, "learner.json", "test");
    ASSERT_EQ(json.erase("accumulate"), 1u);
    checkpoint::put_text(files, "learner.json", json.dump());
    for (const bool begun : {false, true}) {
      Learner other = make_learner(kPooled, plain);
      if (begun) other.step(shaped_images(4, 0));
      const std::string error = shape_error([&] {
        other.load(files);
        other.step(shaped_images(4, 0));
      });
      EXPECT_HAS(error, cat("state '", state, "'"));
      EXPECT_HAS(error, cat("set '", option, "'"));
    }
  }
  Learner two = make_learner(kPooled, R"({"optimizer": "sgd", "accumulate": 2})"),
          three = make_learner(kPooled, R"({"optimizer": "sgd", "accumulate": 3})");
  two.step(shaped_images(4, 0));
  EXPECT_HAS(shape_error([&] { three.load(saved_model(two)); }),
             "made with 'accumulate' 2, and this trainer has 3");
}

// A scale is found again.
TEST(Shapes, ACheckpointOfAnotherPrecisionLoads) {
  Json model = parse_json(kPooled, "model");
  Learner plain = make_learner(kPooled, kPlainSgd);
  model["precision"] = "fp16";
  Learner scaled = make_learner(model.dump(), kPlainSgd);
  scaled.step(shaped_images(4, 0));
  plain.step(shaped_images(4, 0));
  const checkpoint::Files files = saved_model(plain);
  plain.load(saved_model(scaled));
  EXPECT_EQ(plain.steps(), 1u);
  Learner fresh = make_learner(model.dump(), kPlainSgd);
  for (Learner* const learner : {&scaled, &fresh}) {
    learner->load(files);
    EXPECT_EQ(learner->steps(), 1u);
    learner->step(shaped_images(4, 0));
  }
}

TEST(Shapes, ACheckpointOfAnotherModelIsRefusedByEveryBatch) {
  Learner learner = make_learner(kPooled, kPlainSgd);
  learner.step(shaped_images(4, 0));
  Learner other = make_learner(
      R"({"layers": [{"layer": "global_avg_pool"}, {"layer": "dense", "units": 3}]})", kPlainSgd);
  other.load(saved_model(learner));
  for (int i = 0; i < 2; ++i) {
    EXPECT_NE(shape_error([&] { other.step(shaped_images(4, 0)); }).find("dense_2.weight"),
              std::string::npos);
    EXPECT_NE(shape_error([&] { other.predict(shaped_images(4, 0)); }).find("dense_2.weight"),
              std::string::npos);
  }
}

TEST(Shapes, ADamagedCheckpointsRowsAreSeen) {
  Learner learner = make_learner(kPooled, kPlainSgd);
  learner.step(shaped_images(4, 0));
  for (const char* rows : {"0", "-3", "\"many\"", "3000000000"}) {
    checkpoint::Files files = saved_model(learner);
    const std::string text = cat(R"({"step": 1, "rows": {"image f32 [6, 6, 2]": )", rows, "}}");
    const auto state = std::as_bytes(std::span(text));
    files["learner.json"].assign(state.begin(), state.end());
    Learner other = make_learner(kPooled, kPlainSgd);
    try {
      other.load(files);
      FAIL() << rows;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::corrupt_data);
      EXPECT_NE(std::string(error.what()).find("image f32 [6, 6, 2]"), std::string::npos);
    }
  }
}

TEST(Shapes, ACheckpointIsLoadedWholeOrNotAtAll) {
  Learner learner = make_learner(kPooled, kPlainSgd), other = make_learner(kPooled, kPlainSgd);
  for (int i = 0; i < 2; ++i) learner.step(shaped_images(4, i));
  other.step(shaped_images(6, 9));
  const checkpoint::Files good = saved_model(learner), before = saved_model(other);
  const auto with = [&](const char* file, const std::string& text) {
    checkpoint::Files files = good;
    const auto bytes = std::as_bytes(std::span(text));
    files[file].assign(bytes.begin(), bytes.end());
    return files;
  };
  checkpoint::Files misfit = good;
  misfit["optimizer.safetensors"] = good.at("weights.safetensors");
  for (const checkpoint::Files& bad :
       {misfit, with("optimizer.safetensors", "x"), with("learner.json", "[1]"),
        with("learner.json", R"({"step": -1})"), with("learner.json", R"({"step": "2"})"),
        with("learner.json", R"({"step": 2, "rows": [4]})"), with("learner.json", "{")}) {
    EXPECT_THROW(other.load(bad), Error);
    EXPECT_EQ(saved_model(other), before);
  }
  other.load(good);
  EXPECT_EQ(saved_model(other), good)
      << "nothing from before is left, not even the row counts of its batches";
}

TEST(Shapes, AFailureIsForgottenWhereACheckpointIsLoaded) {
  Learner learner = make_learner(kPooled, kPlainSgd);
  learner.step(shaped_images(4, 0));
  const checkpoint::Files files = saved_model(learner);
  learner.step(shaped_images(4, 1));
  pipeline::Item bad = shaped_images(4, 2);
  Tensor nothing(DType::f32, bad.find("image")->shape());
  for (float& v : nothing.mutable_view<float>()) v = NAN;
  bad.set("image", nothing);
  learner.step(bad);
  learner.step(shaped_images(4, 3));
  EXPECT_EQ(learner.take_metrics(true).size(), 2u) << "the failure comes after them";
  learner.load(files);
  learner.step(shaped_images(4, 4));
  ASSERT_EQ(learner.take_metrics(true).size(), 1u);
  EXPECT_NE(saved_model(learner).at("weights.safetensors"), files.at("weights.safetensors"))
      << "steps change the weights again";
}

// Random sequences of calls: two learners that take the same steps are equal, whatever one of them
// is asked in between.
TEST(Shapes, WhatIsAskedBetweenStepsChangesNothing) {
  for (uint64_t seed = 0; seed < 6; ++seed) {
    Rng rng(seed, 77);
    Learner busy = make_learner(kPooled, kPlainSgd, 0.05),
            quiet = make_learner(kPooled, kPlainSgd, 0.05);
    std::vector<float> a, b;
    for (int i = 0; i < 25; ++i) {
      const auto rows = static_cast<int64_t>(1 + rng.below(20)),
                 size = static_cast<int64_t>(5 + rng.below(3));
      const pipeline::Item batch = shaped_images(rows, i, size);
      switch (rng.below(3)) {
        case 0: EXPECT_EQ(busy.predict(batch).shape(), (Shape{rows, 3})); break;
        case 1: {
          const auto taken = losses_of(busy);
          a.insert(a.end(), taken.begin(), taken.end());
          break;
        }
        default: busy.step(batch), quiet.step(batch);
      }
    }
    const auto rest = losses_of(busy);
    a.insert(a.end(), rest.begin(), rest.end());
    ASSERT_EQ(a, losses_of(quiet)) << seed;
    if (!a.empty()) {
      ASSERT_EQ(saved_model(busy), saved_model(quiet)) << seed;
    }
  }
}

}  // namespace
}  // namespace etr::test

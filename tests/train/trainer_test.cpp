#include "train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/platform.h"
#include "train/small_learner.h"
#include "train/trainer_job.h"

namespace etr::test {
namespace {

using train::Event;
using train::EventKind;
using train::Job;
using train::Trainer;

TEST(Trainer, StopAndProgressDoNotWaitForAStalledSource) {
  TempDir dir;
  Json job = job_json(dir);
  Json& stages = job["pipeline"]["stages"];
  stages.insert(stages.begin() + 1, Json{{"stage", "delay"}, {"milliseconds", 60000}});
  job["train"]["progress_every"] = 0.2;
  job.erase("evaluation");
  Trainer trainer(shared_kernels(), Job::parse(job.dump(), "job"), /*resume=*/false);
  EXPECT_EQ(trainer.next_event().kind, EventKind::progress);
  trainer.stop();
  EXPECT_EQ(trainer.next_event().kind, EventKind::end);
}

// Short calls, as of a program that draws frames, make the same run.
TEST(Trainer, ShortCallsMakeTheSameRun) {
  TempDir dir;
  std::vector<std::vector<std::string>> curves;
  for (const double seconds : {0.0, 0.002}) {
    const std::string out = dir.path(seconds > 0 ? "short" : "whole");
    Trainer trainer(shared_kernels(), Job::parse(job_json(dir, out).dump(), "job"), false);
    Event event;
    do event = trainer.next_event(seconds);
    while (event.kind != EventKind::end);
    EXPECT_EQ(event.step, 30u);
    curves.push_back(losses_of(out));
  }
  EXPECT_EQ(curves[0], curves[1]);
}

TEST(Trainer, BeginsWithPretrainedWeights) {
  TempDir dir;
  Json job = job_json(dir, dir.path("out"));
  job["model"] = {
      {"layers", {{{"layer", "flatten"}}, {{"layer", "dense"}, {"units", 4}, {"name", "head"}}}}};
  const int64_t features = 144;
  checkpoint::NamedTensors file;
  file["classifier.weight"] = Tensor(DType::f32, {4, features});
  file["classifier.bias"] = Tensor(DType::f32, {4});
  for (auto& [name, tensor] : file)
    for (size_t i = 0; i < tensor.view<float>().size(); ++i)
      tensor.mutable_view<float>()[i] = static_cast<float>(i) + 1;
  const auto bytes = checkpoint::write_safetensors(file);
  std::ofstream(dir.path("weights.safetensors"), std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  job["train"]["pretrained"] = dir.path("weights.safetensors");
  job["train"]["pretrained_names"] = "head=classifier";
  const auto trainer_of = [&](const Json& spec, train::Start start) {
    return std::make_unique<Trainer>(shared_kernels(), Job::parse(spec.dump(), "job"), start);
  };
  {
    const auto trainer = trainer_of(job, train::Start::new_run);
    const auto weight = values_of(trainer->shaped_learner().weights("head.weight")[0].tensor);
    ASSERT_EQ(weight.size(), 4u * features);
    EXPECT_EQ(weight[1], 1 + features) << "[features, units] here, [units, features] in the file";
    run_to_end(*trainer);
  }
  const auto again = trainer_of(job, train::Start::resume);
  EXPECT_NE(values_of(again->shaped_learner().weights("head.bias")[0].tensor),
            (std::vector<float>{1, 2, 3, 4}))
      << "a resumed run has its own weights";
  // Adapters are made for these weights: whoever loads them loads the weights first.
  Json adapted = job;
  adapted["output"]["dir"] = dir.path("adapted");
  adapted["model"]["lora"] = {{"layers", "head"}, {"rank", 2}};
  run_to_end(*trainer_of(adapted, train::Start::new_run));
  for (const auto start : {train::Start::resume, train::Start::evaluate})
    EXPECT_EQ(
        values_of(trainer_of(adapted, start)->shaped_learner().weights("head.bias")[0].tensor),
        (std::vector<float>{1, 2, 3, 4}));
  job["output"]["dir"] = "";
  job["train"]["pretrained_names"] = "head";
  EXPECT_NE(std::string(error_of([&] { trainer_of(job, train::Start::new_run); }).what())
                .find("'head', which is not of the form OURS=THEIRS"),
            std::string::npos);
  job["train"]["pretrained_names"] = "head=classifer";
  EXPECT_NE(std::string(
                error_of([&] { trainer_of(job, train::Start::new_run)->shaped_learner(); }).what())
                .find("weights.safetensors"),
            std::string::npos);
}

TEST(Trainer, AnEpochWithoutABatchIsAnError) {
  TempDir dir;
  Json job = job_json(dir);
  for (Json& stage : job["pipeline"]["stages"])
    if (stage["stage"] == "batch") stage["size"] = 4096;  // more than there are
  Trainer trainer(shared_kernels(), Job::parse(job.dump(), "job"), /*resume=*/false);
  try {
    run_to_end(trainer);
    FAIL() << "trained on nothing";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("gave no batch"), std::string::npos) << error.what();
  }
}

// In training, in an evaluation, and when a batch is read only for its shapes.
TEST(Trainer, AnEpochWithoutABatchSaysThatItsRecordsWereDropped) {
  TempDir dir;
  for (const char* shard : {"bad-0.tar", "bad-1.tar"})
    std::ofstream(dir.path(shard)) << std::string(2000, 'x');
  Json job = job_json(dir);
  job["train"]["steps"] = 1;
  Json broken = job["pipeline"];
  broken["on_error"] = "skip";
  broken["max_bad_records"] = 10;
  broken["stages"][0]["pattern"] = dir.path("bad-*.tar");
  Json training = job, evaluation = job;
  training["pipeline"] = evaluation["evaluation"]["pipeline"] = broken;
  const auto trainer_of = [](const Json& spec) {
    return std::make_unique<Trainer>(shared_kernels(), Job::parse(spec.dump(), "job"), false);
  };
  const auto trains = trainer_of(training), shapes = trainer_of(training),
             evaluates = trainer_of(evaluation);
  const std::string texts[] = {error_of([&] { run_to_end(*trains); }).what(),
                               error_of([&] { shapes->shaped_learner(); }).what(),
                               error_of([&] { evaluates->evaluate(); }).what()};
  for (const std::string& text : texts) {
    EXPECT_NE(text.find("2 bad records were dropped, the first by stage 'webdataset', shard '" +
                        dir.path("bad-")),
              std::string::npos)
        << text;
    EXPECT_EQ(text.find("or none"), std::string::npos) << text;
  }
}

TEST(Trainer, LearnsAndReports) {
  TempDir dir;
  Json spec = job_json(dir, dir.path("out"));
  spec["train"] = {{"epochs", 6}};
  spec["schedule"]["decay_steps"] = 108;
  Trainer trainer(shared_kernels(), Job::parse(spec.dump(), "job"), false);
  int evaluations = 0, checkpoints = 0;
  Event event;
  do {
    event = trainer.next_event();
    evaluations += event.kind == EventKind::evaluation;
    checkpoints += event.kind == EventKind::checkpoint;
  } while (event.kind != EventKind::end);
  EXPECT_GT(event.eval_accuracy, 0.9);
  EXPECT_EQ(evaluations, 6);
  EXPECT_EQ(checkpoints, 6);
  EXPECT_EQ(event.epoch, 6u);
  EXPECT_EQ(event.step, 6u * 18);  // 600 samples an epoch with echo, 32 in a batch
  EXPECT_EQ(event.examples, event.fresh + event.echoed);
  EXPECT_EQ(event.examples, 6u * 18 * 32);
  // The last 24 samples of an epoch fill no batch; most are echoes, of which an epoch has 200.
  EXPECT_GE(event.fresh, 6u * 390);
  EXPECT_LE(event.fresh, 6u * 400);
  EXPECT_EQ(losses_of(dir.path("out")).size(), 108u);
  EXPECT_EQ(trainer.next_event().kind, EventKind::end) << "the run stays ended";
}

// The losses are the same bit for bit: device echo changes where work is done, not what is done.
class EchoOnTheDevice : public ::testing::TestWithParam<const char*> {};

TEST_P(EchoOnTheDevice, TrainsAlike) {
  TempDir dir;
  std::vector<std::vector<std::string>> curves;
  for (const bool device : {false, true}) {
    const std::string out = dir.path(device ? "device" : "host");
    Json spec = job_json(dir, out);
    Json& stages = spec["pipeline"]["stages"];
    stages[3] = {{"stage", "echo"}, {"factor", 2.5}, {"buffer", 90}, {"device", device}};
    stages.erase(4);
    Json behind = Json::parse(GetParam());
    if (behind[0]["stage"] == "echo") {
      stages[3] = behind[0];
      stages[3]["device"] = device;
      behind.erase(0);
    }
    stages.insert(stages.begin() + 4, behind.begin(), behind.end());
    for (Json& stage : stages)
      if (stage["stage"] == "batch") stage["drop_remainder"] = false;
    spec["evaluation"]["pipeline"]["stages"].insert(
        spec["evaluation"]["pipeline"]["stages"].begin() + 3,
        Json{{"stage", "center_crop"}, {"height", 9}, {"width", 8}});
    Trainer trainer(shared_kernels(), Job::parse(spec.dump(), "job"), false);
    run_to_end(trainer);
    curves.push_back(losses_of(out));
    const train::ReservoirStats stats = trainer.learner().reservoir();
    EXPECT_EQ(stats.capacity > 0, device);
    if (!device) continue;
    EXPECT_LT(stats.uploaded, 30u * 32 / 2) << "echoes were uploaded again";
    EXPECT_GE(stats.uploaded + stats.reused, 29u * 32);
  }
  EXPECT_EQ(curves[0].size(), 30u);
  EXPECT_EQ(curves[0], curves[1]);
}

INSTANTIATE_TEST_SUITE_P(
    Stages, EchoOnTheDevice,
    ::testing::Values(
        R"([{"stage": "random_crop", "pad": 2, "height": 11, "width": 12}, {"stage": "flip"},
            {"stage": "flip", "direction": "vertical"},
            {"stage": "random_crop", "height": 9, "width": 8}, {"stage": "brightness_contrast"},
            {"stage": "shuffle", "buffer": 50}])",
        // Shrinks and enlarges crops, resizing rows first or columns first.
        R"([{"stage": "shuffle", "buffer": 50},
            {"stage": "random_resized_crop", "height": 9, "width": 8, "ratio_min": 0.4, "ratio_max": 2.5},
            {"stage": "flip"}, {"stage": "brightness_contrast"},
            {"stage": "color_jitter", "brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}])",
        R"([{"stage": "random_resized_crop", "height": 5, "width": 6, "area_min": 0.7, "filter": "area"},
            {"stage": "random_crop", "pad": 3, "height": 9, "width": 8},
            {"stage": "color_jitter", "contrast": 0.9}])",
        R"([{"stage": "random_resized_crop", "height": 9, "width": 8, "filter": "nearest"},
            {"stage": "color_jitter", "saturation": 0.9, "hue": 0.5}])",
        R"([{"stage": "echo", "mode": "together", "factor": 4},
            {"stage": "random_crop", "pad": 2, "height": 9, "width": 8}, {"stage": "flip"}])"));

// Echo nodes that decide by the clock may repeat samples on credit. The reservoir holds them all.
TEST(Trainer, EchoOnTheDeviceHoldsWhatIsRepeatedOnCredit) {
  TempDir dir;
  const std::string log = dir.path("echoes.jsonl");
  std::vector<std::vector<std::string>> curves;
  uint64_t fresh = 0;
  for (const bool device : {false, true}) {
    const std::string out = dir.path(device ? "device" : "host");
    Json spec = job_json(dir, out);
    Json& stages = spec["pipeline"]["stages"];
    stages[3] = {{"stage", "echo"}, {"mode", "on_demand"}, {"factor", 1.5},
                 {"buffer", 40},    {"device", device},    {device ? "replay" : "log", log}};
    stages.erase(4);
    stages.insert(stages.begin() + 4, Json{{"stage", "flip"}});
    stages.insert(stages.begin() + 1,
                  Json{{"stage", "delay"}, {"milliseconds", device ? 0.01 : 2.0}});
    Trainer trainer(shared_kernels(), Job::parse(spec.dump(), "job"), false);
    const Event event = run_to_end(trainer);
    curves.push_back(losses_of(out));
    if (!device) {
      fresh = event.fresh;
      EXPECT_GT(event.echoed, 0u);
      continue;
    }
    EXPECT_EQ(event.fresh, fresh);
    EXPECT_LE(trainer.learner().reservoir().uploaded, fresh) << "echoes were uploaded again";
  }
  EXPECT_EQ(curves[0], curves[1]);
}

TEST(Trainer, EchoOnTheDeviceNamesWhatItDoesNotTake) {
  const struct {
    const char *behind, *message;
  } cases[] = {
      {R"([{"stage": "random_erasing"}])", "'random_erasing') cannot stand after"},
      {R"([{"stage": "flip"}, {"stage": "random_resized_crop", "height": 9, "width": 8}])",
       "stage 6 ('random_resized_crop') cannot come after stage 5 ('flip')"},
      {R"([{"stage": "color_jitter"}, {"stage": "shuffle", "buffer": 9}, {"stage": "random_crop"}])",
       "stage 7 ('random_crop') cannot come after stage 5 ('color_jitter')"},
      {R"([{"stage": "color_jitter"}, {"stage": "color_jitter"}])",
       "stage 6 ('color_jitter') cannot come after stage 5 ('color_jitter')"},
  };
  for (const auto& [behind, message] : cases) {
    TempDir dir;
    Json spec = job_json(dir);
    Json& stages = spec["pipeline"]["stages"];
    stages[3]["device"] = true;
    stages.erase(4);
    const Json more = Json::parse(behind);
    stages.insert(stages.begin() + 4, more.begin(), more.end());
    try {
      Job::parse(spec.dump(), "job");
      FAIL() << "accepted " << behind;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  }
}

TEST(Trainer, NormalisesBatchesOfBytesAlike) {
  TempDir dir;
  std::vector<std::vector<std::string>> curves;
  for (const bool deferred : {false, true}) {
    const std::string out = dir.path(deferred ? "deferred" : "now");
    Json spec = job_json(dir, out);
    for (Json* pipeline : {&spec["pipeline"], &spec["evaluation"]["pipeline"]}) {
      // Without `deferred`, normalize comes before batch, so samples become floats on the host. As
      // the last stage it is left to the device.
      Json& stages = (*pipeline)["stages"];
      if (!deferred) std::swap(stages[stages.size() - 2], stages[stages.size() - 1]);
    }
    Trainer trainer(shared_kernels(), Job::parse(spec.dump(), "job"), false);
    run_to_end(trainer);
    curves.push_back(losses_of(out));
  }
  EXPECT_EQ(curves[0].size(), 30u);
  EXPECT_EQ(curves[0], curves[1]);
}

TEST(Trainer, TheLossCurveIsTheSameBitForBit) {
  TempDir dir;
  std::vector<std::vector<std::string>> curves;
  for (const int threads : {1, 2, 4}) {
    Json spec = job_json(dir, dir.path("t" + std::to_string(threads)));
    spec["pipeline"]["threads"] = threads;
    Trainer trainer(shared_kernels(), Job::parse(spec.dump(), "job"), false);
    run_to_end(trainer);
    curves.push_back(losses_of(dir.path("t" + std::to_string(threads))));
  }
  EXPECT_EQ(curves[0].size(), 30u);
  EXPECT_EQ(curves[0], curves[1]);
  EXPECT_EQ(curves[0], curves[2]);
}

TEST(Trainer, ResumingIsBitwiseTheUninterruptedRun) {
  TempDir dir;
  Json spec = job_json(dir, dir.path("whole"));
  spec["output"]["checkpoint_every_steps"] = 7;  // in the middle of an epoch
  Trainer whole(shared_kernels(), Job::parse(spec.dump(), "job"), false);
  const Event whole_end = run_to_end(whole);
  spec["output"]["dir"] = dir.path("parts");
  for (const int until : {10, 21, 30}) {  // stopped twice
    Json part = spec;
    part["train"] = {{"steps", until}, {"planned_steps", 30}};
    Trainer trainer(shared_kernels(), Job::parse(part.dump(), "job"), until > 10);
    EXPECT_EQ(run_to_end(trainer).step, static_cast<uint64_t>(until));
  }
  EXPECT_EQ(losses_of(dir.path("whole")), losses_of(dir.path("parts")));
  for (const char* file : {"weights.safetensors", "optimizer.safetensors"}) {
    const auto of = [&](const char* out) {
      return checkpoint::Store(dir.path(out) + "/checkpoints").load_latest()->files.at(file);
    };
    EXPECT_TRUE(of("whole") == of("parts")) << file << " differs";
  }
  Trainer last(shared_kernels(), Job::parse(spec.dump(), "job"), true);
  const train::EvalMetrics metrics = last.evaluate();
  EXPECT_EQ(metrics.accuracy, whole_end.eval_accuracy);
  EXPECT_EQ(metrics.loss, whole_end.eval_loss);
}

// Interrupted where the next batch has fewer rows: the last batch of the epoch (after step 18), or
// one of an evaluation (after step 19).
TEST(Trainer, ResumesBeforeABatchThatIsSmaller) {
  TempDir dir;
  Json spec = job_json(dir, dir.path("whole"));
  spec["pipeline"]["stages"][5]["drop_remainder"] = false;  // 600 = 18 * 32 + 24
  spec["evaluation"]["pipeline"]["stages"][3]["size"] = 9;
  spec["train"] = {{"steps", 24}};
  spec["output"]["checkpoint_every_steps"] = 100;
  Trainer whole(shared_kernels(), Job::parse(spec.dump(), "job"), false);
  const Event whole_end = run_to_end(whole);
  EXPECT_EQ(whole_end.epoch, 1u);
  for (const int cut : {18, 19}) {
    spec["output"]["dir"] = dir.path(cat("cut", cut));
    for (const int until : {cut, 24}) {
      Json part = spec;
      part["train"] = {{"steps", until}, {"planned_steps", 24}};
      Trainer trainer(shared_kernels(), Job::parse(part.dump(), "job"), until > cut);
      const Event end = run_to_end(trainer);
      EXPECT_EQ(end.step, static_cast<uint64_t>(until));
      if (until == 24) {
        EXPECT_EQ(end.eval_loss, whole_end.eval_loss);
      }
    }
    EXPECT_EQ(losses_of(dir.path("whole")), losses_of(dir.path(cat("cut", cut))));
  }
}

TEST(Trainer, ResumeWithoutACheckpointSaysSo) {
  TempDir dir;
  const Job job = Job::parse(job_json(dir, dir.path("none")).dump(), "job");
  EXPECT_THROW(Trainer(shared_kernels(), job, true), Error);
}

TEST(Trainer, StopEndsInOrder) {
  TempDir dir;
  Json spec = job_json(dir, dir.path("out"));
  spec["train"] = {{"steps", 100000}, {"progress_every", 0.01}};
  Trainer trainer(shared_kernels(), Job::parse(spec.dump(), "job"), false);
  while (trainer.next_event(0.01).step < 3) {
  }
  std::thread([&] { trainer.stop(); }).join();
  const Event end = run_to_end(trainer);
  EXPECT_LT(end.step, 100000u);
  EXPECT_FALSE(std::filesystem::is_empty(dir.path("out/checkpoints"))) << "the work is saved";
}

// A profile would take the sign of an epoch's end, and the run would train on for another epoch.
TEST(Trainer, ARunThatTrainsIsNotProfiled) {
  TempDir dir;
  Json spec = job_json(dir);
  spec.erase("evaluation");
  spec["train"] = {{"epochs", 2}};
  spec["schedule"]["decay_steps"] = 36;
  Trainer trainer(shared_kernels(), Job::parse(spec.dump(), "job"), false);
  Event event;
  do {
    event = trainer.next_event(1e-9);  // after every step
    EXPECT_EQ(error_of([&] { trainer.profile(1); }).code(), Code::state);
  } while (event.kind != EventKind::end);
  EXPECT_EQ(event.step, 2u * 18);
}

TEST(Trainer, EventsSayWhereEpochsEnd) {
  TempDir dir;
  for (const int most : {0, 5}) {
    Json limited = job_json(dir);
    limited.erase("evaluation");
    limited["train"] = {{"epochs", 2}, {"steps", most}, {"planned_steps", 1000}};
    Trainer trainer(shared_kernels(), Job::parse(limited.dump(), "job"), false);
    const Event end = run_to_end(trainer);
    EXPECT_EQ(end.total_steps, end.step)
        << "the end is known once the first epoch has counted the samples";
  }
}

TEST(Trainer, TheTargetEndsTheRun) {
  TempDir dir;
  Json spec = job_json(dir);
  spec["train"] = {{"steps", 5000}, {"planned_steps", 200}};
  spec["evaluation"]["target_accuracy"] = 0.6;
  Trainer trainer(shared_kernels(), Job::parse(spec.dump(), "job"), false);
  const Event end = run_to_end(trainer);
  EXPECT_TRUE(end.target_reached);
  EXPECT_LT(end.step, 1000u);
}

TEST(Trainer, ErrorsNameWhatDoesNotFit) {
  TempDir dir;
  const auto error_of = [&](const std::function<void(Json&)>& change) -> std::string {
    Json spec = job_json(dir);
    change(spec);
    try {
      Trainer trainer(shared_kernels(), Job::parse(spec.dump(), "job"), false);
      run_to_end(trainer);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(error_of([](Json& s) {
              s["pipeline"]["stages"].erase(s["pipeline"]["stages"].size() - 1);
            }).find("normalize"),
            std::string::npos);
  EXPECT_NE(error_of([](Json& s) {
              s["schedule"] = {{"learning_rate", 1000}};
              const Json dense{{"layer", "dense"}, {"units", 32}};
              s["model"]["layers"] = {
                  {{"layer", "flatten"}}, dense, dense, dense, {{"layer", "dense"}, {"units", 4}}};
            }).find("diverged"),
            std::string::npos);
  EXPECT_NE(error_of([](Json& s) {
              s["schedule"] = {{"learning_rate", 0.1}};
              s["train"] = Json::object();
            }).find("never end"),
            std::string::npos);
  EXPECT_NE(error_of([](Json& s) { s["model"]["layers"].back()["units"] = 2; }).find("label"),
            std::string::npos);
}

// A smaller last batch is padded, and the padding does not count.
TEST(Learner, PartBatchesCountTheirOwnRowsOnly) {
  TempDir dir;
  Json spec = job_json(dir);
  const auto accuracy_with = [&](int batch) {
    spec["evaluation"]["pipeline"]["stages"][3]["size"] = batch;
    spec["pipeline"]["stages"][5]["size"] = 50;
    Trainer trainer(shared_kernels(), Job::parse(spec.dump(), "job"), false);
    pipeline::Pipeline p(spec["pipeline"]);
    pipeline::Item item;
    p.next(item);
    trainer.learner().prepare(item);
    return trainer.evaluate();
  };
  const auto whole = accuracy_with(50), parts = accuracy_with(33);  // 100 = 33 + 33 + 33 + 1
  EXPECT_EQ(whole.samples, 100);
  EXPECT_EQ(parts.samples, 100);
  EXPECT_NEAR(whole.loss, parts.loss, 1e-5);
  EXPECT_NEAR(whole.accuracy, parts.accuracy, 1e-6);
}

// Trains on one shard of CIFAR-10. CTest runs it if the CMake variable ECHOTRAIN_TEST_CIFAR10 names
// a folder with the shards.
TEST(Trainer, DISABLED_LearnsFromCifar10) {
  const char* folder = std::getenv("ECHOTRAIN_TEST_CIFAR10");
  ASSERT_TRUE(folder) << "set ECHOTRAIN_TEST_CIFAR10 to a folder with the shards";
  const std::string data = folder;
  Trainer trainer(
      shared_kernels(),
      Job::load(ETR_SOURCE_DIR "/samples/jobs/cifar10_cnn.json",
                {"data=" + data, "out=", "train.steps=40", "schedule.warmup_steps=10",
                 "schedule.learning_rate=0.03",
                 "pipeline.stages.0.pattern=" + data + "/cifar10-train-000000.tar.zst",
                 "pipeline.stages.7.size=64", "evaluation.pipeline.stages.3.size=64",
                 "pipeline.stages.6.buffer=1000",
                 "evaluation.pipeline.stages.0.pattern=" + data + "/cifar10-test-000000.tar.zst"}),
      false);
  EXPECT_GT(run_to_end(trainer).eval_accuracy, 0.25) << "chance is 0.1";
}

}  // namespace
}  // namespace etr::test

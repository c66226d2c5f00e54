// Training when calls of the driver fail, when the device is lost, and under a memory limit.
#include "support/faults.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "core/error.h"
#include "core/platform.h"
#include "support/data.h"
#include "support/device.h"
#include "train/trainer.h"

namespace etr::test {
namespace {

using train::Learner;

std::shared_ptr<gpu::Kernels> new_kernels(const gpu::DeviceOptions& options = device_options()) {
  return std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(options));
}

pipeline::Item fault_batch(int step) {
  pipeline::Item batch;
  Tensor x(DType::f32, {4, 6}), label(DType::i32, {4});
  for (size_t i = 0; i < 24; ++i)
    x.mutable_view<float>()[i] = static_cast<float>((i * 7 + static_cast<size_t>(step)) % 11) / 11;
  for (size_t i = 0; i < 4; ++i)
    label.mutable_view<int32_t>()[i] = static_cast<int32_t>(i + static_cast<size_t>(step)) % 3;
  batch.set("image", x);
  batch.set("label", label);
  return batch;
}

// Plans, trains, predicts and saves. Returns the losses, the prediction and the number of saved
// files.
std::vector<float> scenario(const std::shared_ptr<gpu::Kernels>& kernels) {
  Learner learner(
      kernels,
      {parse_json(R"({"layers": [{"layer": "dense", "units": 5, "activation": "relu"},
                                             {"layer": "dense", "units": 3}]})",
                  "model"),
       parse_json(R"({"optimizer": "adam"})", "optimizer"), Json{{"learning_rate", 0.01}}, 3, 100});
  for (int i = 0; i < 5; ++i) learner.step(fault_batch(i));
  std::vector<float> out;
  for (const auto& metrics : learner.take_metrics(true)) out.push_back(metrics.loss);
  const Tensor y = learner.predict(fault_batch(0));
  out.insert(out.end(), y.view<float>().begin(), y.view<float>().end());
  checkpoint::Files files;
  learner.save(files);
  out.push_back(static_cast<float>(files.size()));
  return out;
}

// Every failure is an Error with the right code, nothing hangs, and the device works afterwards.
// The parameter is `uploads_apart`.
class FaultsWith : public ::testing::TestWithParam<bool> {};

TEST_P(FaultsWith, EveryCallOfTheDriverMayFail) {
  gpu::DeviceOptions options = device_options();
  options.lowered.uploads_apart = GetParam();
  const auto kernels = new_kernels(options);
  const std::vector<float> whole = scenario(kernels);
  Faults faults(*kernels->device());
  scenario(std::make_shared<gpu::Kernels>(kernels->device()));
  const int calls = faults.calls();
  ASSERT_GT(calls, 100);
  int failed = 0;
  for (int call = 1; call <= calls; ++call) {
    const bool memory = call % 2 == 0;
    // Only every third run makes kernels, because the driver compiles them slowly.
    const auto used = call % 3 == 0 ? std::make_shared<gpu::Kernels>(kernels->device()) : kernels;
    faults.fail_at(call, memory ? VK_ERROR_OUT_OF_DEVICE_MEMORY : VK_ERROR_INITIALIZATION_FAILED);
    try {
      scenario(used);
      EXPECT_LT(faults.calls(), call) << "a failure went unnoticed";
    } catch (const Error& error) {
      ++failed;
      EXPECT_EQ(error.code(), memory ? Code::out_of_memory : Code::device) << error.what();
    }
  }
  EXPECT_GT(failed, calls / 3);
  faults.off();
  EXPECT_EQ(scenario(std::make_shared<gpu::Kernels>(kernels->device())), whole);
}

INSTANTIATE_TEST_SUITE_P(UploadsApart, FaultsWith, ::testing::Bool());

TEST(Faults, ImportedWeightsOutliveAFirstBatchThatFailed) {
  TempDir dir;
  checkpoint::NamedTensors file;
  file["head.weight"] = Tensor(DType::f32, {3, 6});
  file["head.bias"] = Tensor(DType::f32, {3});
  for (auto& [name, tensor] : file)
    for (size_t i = 0; i < tensor.view<float>().size(); ++i)
      tensor.mutable_view<float>()[i] = static_cast<float>(i) + 1;
  platform::write_file_atomic(dir.path("weights.safetensors"), checkpoint::write_safetensors(file));
  const auto kernels = new_kernels();
  const auto importing = [&] {
    auto out = std::make_unique<Learner>(
        kernels, train::LearnerSpec{parse_json(R"({"layers": [{"layer": "dense", "units": 3,
                                                               "name": "head"}]})",
                                               "model"),
                                    parse_json(R"({"optimizer": "adam"})", "optimizer"),
                                    Json{{"learning_rate", 0.01}}, 3, 100});
    out->load_pytorch(dir.path("weights.safetensors"), {});
    return out;
  };
  const auto predicted = [&](Learner& learner) {
    const Tensor y = learner.predict(fault_batch(0));
    return std::vector<float>(y.view<float>().begin(), y.view<float>().end());
  };
  const std::vector<float> whole = predicted(*importing());
  Faults faults(*kernels->device());
  int failed = 0;
  for (int call = 1; call <= failed + 1; ++call) {
    const auto learner = importing();
    faults.fail_at(call, VK_ERROR_OUT_OF_DEVICE_MEMORY);
    try {
      learner->predict(fault_batch(0));
    } catch (const Error&) {
      ++failed;
    }
    faults.off();
    EXPECT_EQ(predicted(*learner), whole) << "after call " << call << " failed";
  }
  EXPECT_GT(failed, 5);
}

TEST(Faults, ALostDeviceEndsEveryCallWithItsError) {
  const auto kernels = new_kernels();
  scenario(kernels);
  Faults faults(*kernels->device());
  scenario(kernels);
  const int calls = faults.calls();
  for (int call = 1; call <= calls; call += 7) {
    faults.fail_at(call, VK_ERROR_DEVICE_LOST, /*for_ever=*/true);
    try {
      scenario(kernels);
      ADD_FAILURE() << "trained on a lost device";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::device_lost) << error.what();
    }
  }
}

Json job_on(const TempDir& dir, const std::string& out) {
  return {{"seed", 4},
          {"pipeline",
           {{"stages",
             {{{"stage", "webdataset"}, {"pattern", make_band_shard(dir, "train", 160, 1)}},
              {{"stage", "label"}, {"classes", 4}},
              {{"stage", "decode"}},
              {{"stage", "shuffle"}, {"buffer", 50}},
              {{"stage", "random_crop"}, {"pad", 1}},
              {{"stage", "batch"}, {"size", 16}},
              {{"stage", "normalize"}}}}}},
          {"model", {{"layers", {{{"layer", "flatten"}}, {{"layer", "dense"}, {"units", 4}}}}}},
          {"optimizer", {{"optimizer", "adam"}}},
          {"schedule", {{"learning_rate", 0.01}}},
          {"train", {{"steps", 24}}},
          {"output",
           {{"dir", out},
            {"checkpoint_every_epochs", 0},
            {"checkpoint_every_steps", 5},
            {"tensorboard", false}}}};
}

std::map<uint64_t, double> losses_at(const std::string& out) {
  std::map<uint64_t, double> by_step;
  std::stringstream lines(platform::read_file(out + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const Json row = parse_json(line, "metrics");
    if (row["kind"] == "step") by_step[row["step"]] = row["loss"];
  }
  return by_step;
}

TEST(Faults, ARunGoesOnWhereItsDeviceWasLost) {
  TempDir dir;
  const auto run = [&](const std::string& out, uint64_t lost_at) {
    const auto kernels = new_kernels();
    Faults faults(*kernels->device());
    train::Trainer trainer(kernels, train::Job::parse(job_on(dir, out).dump(), "job"), false);
    train::Event event;
    do {
      event = trainer.next_event();
      if (lost_at && event.kind == train::EventKind::checkpoint && event.step == lost_at)
        faults.fail_at(9, VK_ERROR_DEVICE_LOST, /*for_ever=*/true);
    } while (event.kind != train::EventKind::end);
    EXPECT_EQ(event.step, 24u);
    return losses_at(out);
  };
  const auto whole = run(dir.path("whole"), 0);
  EXPECT_EQ(whole.size(), 24u);
  EXPECT_EQ(run(dir.path("lost"), 10), whole);
}

TEST(Faults, ARunWithoutACheckpointSaysSoWhenItsDeviceIsLost) {
  TempDir dir;
  const auto kernels = new_kernels();
  Faults faults(*kernels->device());
  train::Trainer trainer(kernels, train::Job::parse(job_on(dir, "").dump(), "job"), false);
  faults.fail_at(200, VK_ERROR_DEVICE_LOST, /*for_ever=*/true);
  try {
    while (trainer.next_event().kind != train::EventKind::end) continue;
    ADD_FAILURE() << "trained on a lost device";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::device_lost);
    EXPECT_NE(std::string(error.what()).find("no checkpoint"), std::string::npos) << error.what();
  }
}

TEST(MemoryLimit, IsKeptAndNamed) {
  gpu::DeviceOptions options = device_options();
  options.memory_limit_bytes = uint64_t{10} << 20;
  const auto kernels = new_kernels(options);
  scenario(kernels);
  EXPECT_EQ(kernels->device()->allocated_bytes(), 0u) << "nothing is left behind";
  try {
    Learner learner(kernels,
                    {parse_json(R"({"layers": [{"layer": "dense", "units": 800000}]})", "model"),
                     parse_json(R"({"optimizer": "adam"})", "optimizer"),
                     Json{{"learning_rate", 0.01}}, 3, 100});
    learner.step(fault_batch(0));
    ADD_FAILURE() << "fits";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::out_of_memory);
    EXPECT_NE(std::string(error.what()).find("the memory limit of 10485760 bytes"),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(kernels->device()->allocated_bytes(), 0u);
}

}  // namespace
}  // namespace etr::test

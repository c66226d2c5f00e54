// A program shares its Vulkan device: one that the library opened plays the program's.
#include <gtest/gtest.h>

#include "core/error.h"
#include "gpu/vulkan_device.h"
#include "support/device.h"
#include "train/learner.h"

namespace etr::test {
namespace {

std::vector<float> losses_on(const gpu::DevicePtr& device) {
  train::Learner learner(
      std::make_shared<gpu::Kernels>(device),
      {parse_json(R"({"layers": [{"layer": "dense", "units": 3}]})", "model"),
       parse_json(R"({"optimizer": "adam"})", "optimizer"), Json{{"learning_rate", 0.01}}, 3, 100});
  Tensor x(DType::f32, {4, 6}), label(DType::i32, {4});
  for (size_t i = 0; i < 24; ++i) x.mutable_view<float>()[i] = static_cast<float>(i % 5);
  for (size_t i = 0; i < 4; ++i) label.mutable_view<int32_t>()[i] = static_cast<int32_t>(i % 3);
  pipeline::Item batch;
  batch.set("image", x);
  batch.set("label", label);
  for (int i = 0; i < 5; ++i) learner.step(batch);
  std::vector<float> out;
  for (const auto& metrics : learner.take_metrics(true)) out.push_back(metrics.loss);
  return out;
}

TEST(HostDevice, IsTrainedOnAndLeftToItsProgram) {
  const gpu::Device program(device_options());
  const std::vector<float> own = losses_on(device());
  gpu::VulkanDevice& vk = program.vk();
  gpu::HostDevice host;
  host.instance = vk.instance.handle;
  host.physical_device = vk.physical.handle;
  host.device = vk.handle;
  host.queue = vk.queue;
  host.queue_family = vk.physical.queue_family;
  host.buffer_addresses = vk.physical.info.buffer_addresses;
  int locked = 0, submissions = 0;
  host.lock = [&] {
    EXPECT_EQ(++locked, 1) << "one at a time";
    ++submissions;
  };
  host.unlock = [&] { --locked; };
  for (int round = 0; round < 2; ++round) {
    gpu::DeviceOptions options = device_options();
    options.validation = false;  // the program's own layers see everything
    options.host = host;
    const auto shared = std::make_shared<gpu::Device>(options);
    EXPECT_EQ(shared->info().name, program.info().name);
    EXPECT_EQ(losses_on(shared), own);
  }
  EXPECT_GE(submissions, 10);
  EXPECT_EQ(locked, 0);
  EXPECT_EQ(program.validation_messages(), 0);
  host.queue = nullptr;
  gpu::DeviceOptions options;
  options.host = host;
  EXPECT_THROW(gpu::Device device(options), Error);
}

}  // namespace
}  // namespace etr::test

// Training on a Vulkan device that a program shares; here the library opened it, too.
#include <gtest/gtest.h>

#include <cstring>

#include "core/error.h"
#include "gpu/vulkan_device.h"
#include "support/device.h"
#include "train/learner.h"
#include "train/program_buffer.h"

namespace etr::test {
namespace {

train::Learner learner_on(const gpu::DevicePtr& device) {
  return {
      std::make_shared<gpu::Kernels>(device),
      {parse_json(R"({"layers": [{"layer": "dense", "units": 3}]})", "model"),
       parse_json(R"({"optimizer": "adam"})", "optimizer"), Json{{"learning_rate", 0.01}}, 3, 100}};
}

pipeline::Item host_batch(int64_t rows) {
  Tensor x(DType::f32, {rows, 6}), label(DType::i32, {rows});
  for (int64_t i = 0; i < rows * 6; ++i)
    x.mutable_view<float>()[static_cast<size_t>(i)] = static_cast<float>(i % 5);
  for (int64_t i = 0; i < rows; ++i)
    label.mutable_view<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(i % 3);
  pipeline::Item batch;
  batch.set("image", x);
  batch.set("label", label);
  return batch;
}

std::vector<float> host_losses(train::Learner& learner) {
  std::vector<float> out;
  for (const auto& metrics : learner.take_metrics(true)) out.push_back(metrics.loss);
  return out;
}

std::vector<float> losses_with(const gpu::DevicePtr& device) {
  train::Learner learner = learner_on(device);
  for (int i = 0; i < 5; ++i) learner.step(host_batch(4));
  return host_losses(learner);
}

gpu::HostDevice host_of(const gpu::Device& program) {
  gpu::VulkanDevice& vk = program.vk();
  gpu::HostDevice host;
  host.instance = vk.instance.handle;
  host.physical_device = vk.physical.handle;
  host.device = vk.handle;
  host.queue = vk.queue;
  host.queue_family = vk.physical.queue_family;
  host.buffer_addresses = vk.physical.info.buffer_addresses;
  return host;
}

gpu::DevicePtr shared_device(const gpu::HostDevice& host) {
  gpu::DeviceOptions options = device_options();
  options.validation = false;  // the program's device has validation layers already
  options.host = host;
  return std::make_shared<gpu::Device>(options);
}

TEST(HostDevice, IsTrainedOnAndLeftToItsProgram) {
  const gpu::Device program(device_options());
  const std::vector<float> own = losses_with(device());
  gpu::HostDevice host = host_of(program);
  int locked = 0, submissions = 0;
  host.lock = [&] {
    EXPECT_EQ(++locked, 1) << "one at a time";
    ++submissions;
  };
  host.unlock = [&] { --locked; };
  for (int round = 0; round < 2; ++round) {
    const gpu::DevicePtr shared = shared_device(host);
    EXPECT_EQ(shared->info().name, program.info().name);
    EXPECT_EQ(losses_with(shared), own);
  }
  EXPECT_GE(submissions, 10);
  EXPECT_EQ(locked, 0);
  EXPECT_EQ(program.validation_messages(), 0);
  host.queue = nullptr;
  gpu::DeviceOptions options;
  options.host = host;
  EXPECT_THROW(gpu::Device device(options), Error);
}

// Buffers of the program's device, of which the learner gets only the handles.
class ProgramMemory {
 public:
  explicit ProgramMemory(const gpu::DevicePtr& program)
      : in_(program, gpu::MemoryUse::upload), out_(program, gpu::MemoryUse::readback) {}

  // Returns a copy of the batch with its fields in buffers, each at an offset of `shift` bytes.
  pipeline::Item buffered(const pipeline::Item& batch, uint64_t shift) {
    pipeline::Item out;
    for (const pipeline::Field& field : batch.fields) {
      const gpu::Buffer memory = in_.allocate(shift + field.tensor.size_bytes());
      std::memcpy(memory.host + shift, field.tensor.data(), field.tensor.size_bytes());
      out.set(train::field_in_buffer(field.name, field.tensor.dtype(), field.tensor.shape(),
                                     memory.handle, memory.offset + shift,
                                     std::shared_ptr<void>(&released, [](int* n) { ++*n; })));
    }
    return out;
  }
  std::pair<pipeline::OpaqueField, const float*> output(const Shape& shape) {
    const gpu::Buffer memory = out_.allocate(static_cast<uint64_t>(element_count(shape)) * 4);
    return {train::field_in_buffer("output", DType::f32, shape, memory.handle, memory.offset, {}),
            reinterpret_cast<const float*>(memory.host)};
  }
  int released = 0;

 private:
  gpu::Arena in_, out_;
};

TEST(HostDevice, BuffersOfTheProgramAreBatches) {
  const auto program = std::make_shared<gpu::Device>(device_options());
  ProgramMemory memory(program);
  train::Learner from_host = learner_on(shared_device(host_of(*program)));
  train::Learner from_buffers = learner_on(shared_device(host_of(*program)));
  const std::vector<pipeline::Item> buffered{memory.buffered(host_batch(4), 0),
                                             memory.buffered(host_batch(4), 64),
                                             memory.buffered(host_batch(3), 4)};  // fewer rows
  for (const size_t i : {0, 1, 1, 1, 1, 2, 0, 2}) {
    from_host.step(host_batch(i == 2 ? 3 : 4));
    from_buffers.step(buffered[i]);
  }
  EXPECT_EQ(host_losses(from_buffers), host_losses(from_host));

  const Tensor wanted = from_host.predict(host_batch(3));
  const auto [field, values] = memory.output({3, 3});
  from_buffers.predict(buffered[2], field);
  EXPECT_TRUE(std::equal(wanted.view<float>().begin(), wanted.view<float>().end(), values));
  from_buffers.predict(host_batch(3), field);  // a prediction also takes host memory
  EXPECT_TRUE(std::equal(wanted.view<float>().begin(), wanted.view<float>().end(), values));
  EXPECT_EQ(program->validation_messages(), 0);
}

TEST(HostDevice, BuffersAreReleasedBehindTheirStep) {
  const auto program = std::make_shared<gpu::Device>(device_options());
  ProgramMemory memory(program);
  train::Learner learner = learner_on(shared_device(host_of(*program)));
  learner.step(memory.buffered(host_batch(4), 0));
  EXPECT_EQ(memory.released, 0);
  learner.take_metrics(true);
  EXPECT_EQ(memory.released, 2);
}

TEST(HostDevice, SaysWhatIsWrongWithABuffer) {
  const auto program = std::make_shared<gpu::Device>(device_options());
  ProgramMemory memory(program);
  const pipeline::Item good = memory.buffered(host_batch(4), 0);
  const auto message = [](const auto& body) {
    try {
      body();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  train::Learner alone = learner_on(device());
  EXPECT_NE(message([&] { alone.step(good); }).find("etr_runtime_create_shared"),
            std::string::npos);
  train::Learner learner = learner_on(shared_device(host_of(*program)));
  learner.step(good);
  pipeline::Item wrong = good;
  wrong.opaque[0].shape = {4, 7};
  EXPECT_NE(
      message([&] { learner.step(wrong); }).find("field 'image' is f32 [N, 7], and was f32 [N, 6]"),
      std::string::npos);
  EXPECT_NE(message([&] { learner.step(host_batch(4)); }).find("in the same place"),
            std::string::npos);
  EXPECT_NE(message([&] {
              learner.predict(good, memory.output({4, 2}).first);
            }).find("the output is f32 [4, 3], not f32 [4, 2]"),
            std::string::npos);
  learner.step(good);
  EXPECT_EQ(learner.take_metrics(true).size(), 2u);
}

}  // namespace
}  // namespace etr::test

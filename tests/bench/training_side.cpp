// Training steps on a batch that stays in device memory.
#include <map>

#include "bench.h"
#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/platform_files.h"
#include "exchange/world.h"
#include "gpu/recording.h"
#include "gpu/vulkan_device.h"
#include "parallel/data_parallel.h"
#include "side.h"
#include "train/learner.h"
#include "train/program_buffer.h"

namespace etr::bench {
namespace {

// The device as a program's that shares it: only then does a trainer take fields from device
// memory.
gpu::DevicePtr shared(const gpu::Device& program) {
  gpu::VulkanDevice& vk = program.vk();
  gpu::HostDevice host;
  host.instance = vk.instance.handle;
  host.physical_device = vk.physical.handle;
  host.device = vk.handle;
  host.queue = vk.queue;
  host.queue_family = vk.physical.queue_family;
  host.buffer_addresses = program.info().buffer_addresses;
  host.matrix_units = !program.info().matrix_units.empty();
  gpu::DeviceOptions options = program.options();
  options.host = host;
  return std::make_shared<gpu::Device>(options);
}

class Training final : public Side {
 public:
  Training(const gpu::DeviceOptions& options, const Json& request)
      : program_(options),
        kernels_(std::make_shared<gpu::Kernels>(shared(program_))),
        memory_(kernels_->device(), gpu::MemoryUse::device) {
    if (request.contains("tuning"))
      kernels_->tuning().read(request["tuning"], kernels_->device()->info().name);
    learner_ = std::make_unique<train::Learner>(
        kernels_,
        train::LearnerSpec{request.at("model"), request.at("optimizer"), request.at("schedule"), 1,
                           1000000},
        ranks(request));
    if (request.contains("weights")) learner_->load_pytorch(request["weights"], {});
    load_batch(request.at("batch"));
    learner_->prepare(batch_);
  }

  Json describe() override {
    return {{"parameters", learner_->trainable()}, {"device_bytes", learner_->device_bytes()}};
  }

  Json run(int count) override {
    Json losses = Json::array();
    double busy = 0;
    const double seconds = time_once([&] {
      for (int i = 0; i < count; ++i) {
        learner_->step(batch_);
        take(i + 1 == count, losses, busy);
      }
    });
    return {{"seconds", seconds}, {"device_seconds", busy}, {"losses", losses}};
  }

  void save(const std::string& path) override {
    checkpoint::NamedTensors tensors;
    for (const pipeline::Field& field : learner_->weights(""))
      tensors.emplace(field.name, field.tensor);
    platform::write_file_atomic(path, checkpoint::write_safetensors(tensors));
  }

 private:
  // The other ranks are processes that get the same requests.
  std::unique_ptr<parallel::DataParallel> ranks(const Json& request) const {
    if (!request.contains("parallel")) return nullptr;
    const Json& of = request["parallel"];
    exchange::World world;
    world.rank = of.at("rank");
    world.size = of.at("size");
    world.rendezvous = of.at("rendezvous");
    world.engine = of.value("engine", "gloo");
    world.engines = ETR_ENGINES;
    parallel::DataParallelOptions options;
    options.bucket_mb = of.value("bucket_mb", options.bucket_mb);
    options.compression = parallel::compression_named(of.value("compression", "none"));
    return std::make_unique<parallel::DataParallel>(exchange::open_group(world), kernels_->device(),
                                                    options);
  }

  void take(bool all, Json& losses, double& busy) {
    for (const train::StepMetrics& m : learner_->take_metrics(all)) {
      losses.push_back(m.loss);
      busy += m.busy_seconds;
    }
  }

  void load_batch(const std::string& path) {
    const std::string text = platform::read_file(path);
    gpu::Arena staging(kernels_->device(), gpu::MemoryUse::upload);
    gpu::CommandList copies;
    for (const auto& [name, tensor] :
         checkpoint::read_safetensors(std::as_bytes(std::span(text)), path)) {
      const gpu::Buffer from = staging.allocate(tensor.size_bytes()),
                        to = memory_.allocate(tensor.size_bytes());
      std::memcpy(from.host, tensor.data(), tensor.size_bytes());
      copies.push_back(
          gpu::Copy{from.slice(0, tensor.size_bytes()), to.slice(0, tensor.size_bytes())});
      batch_.set(
          train::field_in_buffer(name, tensor.dtype(), tensor.shape(), to.handle, to.offset, {}));
    }
    gpu::run_uncompared(kernels_->device(), copies);
  }

  gpu::Device program_;  // outlives what shares it
  KernelsPtr kernels_;
  gpu::Arena memory_;
  pipeline::Item batch_;
  std::unique_ptr<train::Learner> learner_;
};

}  // namespace

std::unique_ptr<Side> make_training(const gpu::DeviceOptions& options, const Json& request) {
  return std::make_unique<Training>(options, request);
}

}  // namespace etr::bench

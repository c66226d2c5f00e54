// A side that consists of commands, recorded as often as it is to run.
#pragma once

#include <set>
#include <string>

#include "bench.h"
#include "core/error.h"
#include "device_values.h"
#include "side.h"

namespace etr::bench {

using ops::DeviceTensor;

inline int64_t number(const Json& request, const char* key) {
  return request.at(key).get<int64_t>();
}

inline ops::Precision precision_of(const Json& request) {
  const std::string name = request.value("precision", "fp32");
  if (name == "bf16") return ops::Precision::bf16;
  if (name == "fp16") return ops::Precision::fp16;
  if (name != "fp32") fail(Code::invalid_argument, "there is no precision '", name, "'");
  return ops::Precision::fp32;
}

class CommandSide : public Side {
 public:
  explicit CommandSide(const KernelsPtr& kernels)
      : kernels_(kernels), memory_(kernels->device(), gpu::MemoryUse::device) {}

  Json describe() override {
    run(1);
    std::set<std::string> names;
    double flops = 0;
    for (const gpu::Command& command : once_)
      if (const auto* dispatch = std::get_if<gpu::Dispatch>(&command)) {
        names.insert(gpu::kernel_name(*dispatch->kernel));
        flops += dispatch->flops;
      }
    return {{"kernels", names},
            {"flops", flops_ > 0 ? flops_ : flops},
            {"bytes", bytes_},
            {"error", error_ ? Json(error_()) : Json()}};
  }

  Json run(int count) override {
    if (count != recorded_) {
      gpu::CommandList all;
      for (int i = 0; i < count; ++i) all.insert(all.end(), once_.begin(), once_.end());
      recording_.reset();
      recording_ = std::make_unique<gpu::Recording>(device(), all, false,
                                                    gpu::parts_for(*device(), all, /*seconds=*/0));
      recorded_ = count;
    }
    const double seconds = time_once([&] {
      recording_->submit();
      recording_->wait();
    });
    return {{"seconds", seconds}, {"device_seconds", recording_->busy_seconds()}};
  }

 protected:
  const gpu::DevicePtr& device() const { return kernels_->device(); }

  // Fills `once_` with what `build` emits, after `prepare` has run.
  void emit(const std::function<void(ops::Emitter&)>& build,
            ops::Precision precision = ops::Precision::fp32) {
    ops::Emitter emitter(*kernels_, memory_, once_);
    emitter.set_precision(precision);
    build(emitter);
  }
  void run_first(const std::function<void(ops::Emitter&)>& build) {
    gpu::CommandList commands;
    ops::Emitter emitter(*kernels_, memory_, commands);
    build(emitter);
    gpu::run_uncompared(device(), commands);
  }
  DeviceTensor tensor(const Shape& shape) {
    gpu::CommandList none;
    return ops::Emitter(*kernels_, memory_, none).scratch(shape);
  }
  DeviceTensor tensor(const Shape& shape, const Values& values) {
    const DeviceTensor out = tensor(shape);
    values.fill(device(), out);
    return out;
  }

  KernelsPtr kernels_;
  gpu::Arena memory_;
  gpu::CommandList once_;
  double flops_ = 0, bytes_ = 0;
  std::function<double()> error_;

 private:
  std::unique_ptr<gpu::Recording> recording_;
  int recorded_ = 0;
};

}  // namespace etr::bench

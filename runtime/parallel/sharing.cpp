#include "parallel/sharing.h"

#include <algorithm>
#include <map>
#include <span>

#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "ops/op.h"

namespace etr::parallel {

gpu::CommandList Sharing::with_update(const gpu::CommandList& commands, optim::Update& update,
                                      const graph::ParameterStore& /*store*/, const Step& step,
                                      gpu::Kernels& kernels, gpu::Allocator& memory) {
  gpu::CommandList out = commands;
  ops::Emitter emit(kernels, memory, out);
  update.emit(emit, step.results.front(), step.values);
  return out;
}

void broadcast_weights(exchange::Group& group, graph::ParameterStore& store) {
  std::map<std::string, Tensor> tensors = store.download();
  for (auto& [name, tensor] : tensors)
    group.broadcast(std::as_writable_bytes(tensor.mutable_view<float>()), 0);
  store.upload(tensors);
}

void average_states(exchange::Group& group, graph::ParameterStore& store) {
  for (const std::string& name : store.states()) {
    Tensor tensor = store.read(name);
    const std::span<float> values = tensor.mutable_view<float>();
    group.all_reduce(values);
    for (float& value : values) value /= static_cast<float>(group.size());
    store.write(name, tensor);
  }
}

std::vector<float> download_flat(const graph::ParameterStore& store, const gpu::Buffer& from) {
  const Tensor tensor = graph::download(store.device(), {from, {int64_t{store.count()}}});
  const auto values = tensor.view<float>();
  return {values.begin(), values.end()};
}

void upload_flat(const graph::ParameterStore& store, std::span<const float> from,
                 const gpu::Buffer& to) {
  Tensor tensor(DType::f32, {static_cast<int64_t>(from.size())});
  std::copy(from.begin(), from.end(), tensor.mutable_view<float>().begin());
  graph::upload(store.device(), tensor, {to, tensor.shape()});
}

namespace {

constexpr const char* kTensor = "values";

}  // namespace

void put_vector(checkpoint::Files& files, const char* file, std::span<const float> values) {
  Tensor tensor(DType::f32, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), tensor.mutable_view<float>().begin());
  files[file] = checkpoint::write_safetensors({{kTensor, tensor}});
}

std::vector<float> take_vector(const checkpoint::Files& files, const char* file,
                               const std::string& origin) {
  const auto found = files.find(file);
  if (found == files.end())
    fail(
        Code::invalid_argument, origin, " has no '", file,
        "': it was written by a run of another algorithm (parallel.algorithm). Resume it with that "
        "one, or start again in another folder");
  const std::string name = cat(origin, ": '", file, "'");
  const auto tensors = checkpoint::read_safetensors(found->second, name);
  const auto tensor = tensors.find(kTensor);
  if (tensor == tensors.end() || tensor->second.dtype() != DType::f32)
    fail(Code::corrupt_data, name, " has no f32 '", kTensor, "'");
  const auto values = tensor->second.view<float>();
  return {values.begin(), values.end()};
}

}  // namespace etr::parallel

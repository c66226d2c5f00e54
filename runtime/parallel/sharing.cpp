#include "parallel/sharing.h"

#include <algorithm>
#include <map>
#include <span>

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
  for (const std::string& name : store.names()) {
    if (store.is_trainable(name)) continue;
    Tensor tensor = graph::download(store.device(), store.tensor(name));
    const std::span<float> values = tensor.mutable_view<float>();
    group.all_reduce(values);
    for (float& value : values) value /= static_cast<float>(group.size());
    graph::upload(store.device(), tensor, store.tensor(name));
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

}  // namespace etr::parallel

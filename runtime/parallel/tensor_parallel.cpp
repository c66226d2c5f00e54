#include "parallel/tensor_parallel.h"

#include <cstddef>
#include <vector>

#include "parallel/staging.h"

namespace etr::parallel {
namespace {

class SharedSlices final : public ops::SlicePeers {
 public:
  SharedSlices(exchange::Group& group, const gpu::DevicePtr& device)
      : group_(group), memory_(device, gpu::MemoryUse::readback) {}

  void emit_sum(ops::Emitter& emit, const gpu::Buffer& terms) override {
    emit_round_trip(emit.commands(), memory_, {terms},
                    [this](std::span<float> sums) { group_.all_reduce(sums); });
  }

 private:
  exchange::Group& group_;
  gpu::Arena memory_;
};

}  // namespace

std::unique_ptr<ops::SlicePeers> TensorParallel::peers() {
  return std::make_unique<SharedSlices>(group_, device_);
}

// All in one exchange.
void TensorParallel::emit_means(gpu::CommandList& commands, gpu::Allocator& memory,
                                const std::vector<gpu::Buffer>& means) {
  emit_round_trip(commands, memory, means, [this](std::span<float> all) {
    group_.all_reduce(all);
    const float share = 1 / static_cast<float>(group_.size());
    for (float& mean : all) mean *= share;
  });
}

void TensorParallel::emit_replicas(gpu::CommandList& commands, gpu::Allocator& memory,
                                   const graph::ParameterStore& store,
                                   const graph::Slices& slices) {
  std::vector<gpu::Buffer> whole;
  for (const auto& parameter : store.parameters())
    if (!slices.contains(parameter.name)) whole.push_back(store.gradient(parameter.name).buffer);
  if (!whole.empty()) emit_means(commands, memory, whole);
}

optim::Peers TensorParallel::update_peers(ops::Emitter& emit, gpu::Allocator& memory,
                                          const graph::Slices& slices) {
  optim::Peers out;
  out.counts = [this, &slices](const std::string& parameter) {
    return rank() == 0 || slices.contains(parameter);
  };
  out.join_norm = [this, &emit, &memory](const gpu::Buffer& norm) {
    emit_round_trip(emit.commands(), memory, {norm},
                    [this](std::span<float> own) { join_norm(group_, own[0]); });
  };
  out.join_squares = [this, &emit, &memory](const gpu::Buffer& squares) {
    emit_round_trip(emit.commands(), memory, {squares},
                    [this](std::span<float> sums) { group_.all_reduce(sums); });
  };
  return out;
}

Tensor TensorParallel::gather(const Tensor& own, const graph::Slice& slice) {
  const auto ours = own.view<float>();
  std::vector<float> all(ours.size() * static_cast<size_t>(size()));
  group_.all_gather(std::as_bytes(ours), std::as_writable_bytes(std::span(all)));
  Tensor whole(DType::f32, slice.whole);
  for (int rank = 0; rank < size(); ++rank)
    slice.of(rank).put(
        std::span<const float>(all).subspan(ours.size() * static_cast<size_t>(rank), ours.size()),
        whole.mutable_view<float>());
  return whole;
}

}  // namespace etr::parallel

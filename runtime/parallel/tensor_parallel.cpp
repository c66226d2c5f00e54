#include "parallel/tensor_parallel.h"

#include <cstddef>
#include <vector>

#include "parallel/round_trip.h"

namespace etr::parallel {
namespace {

class SharedSlices final : public ops::SlicePeers {
 public:
  SharedSlices(exchange::Group& group, const gpu::DevicePtr& device)
      : group_(group), memory_(device, gpu::MemoryUse::readback) {}

  void emit_sum(ops::Emitter& emit, const gpu::Buffer& terms) override {
    emit_round_trip(emit.commands(), memory_, {&terms, 1},
                    [this](const auto& there) { group_.all_reduce(floats_of(there[0])); });
  }

 private:
  exchange::Group& group_;
  gpu::Arena memory_;
};

}  // namespace

std::unique_ptr<ops::SlicePeers> TensorParallel::peers() {
  return std::make_unique<SharedSlices>(group_, device_);
}

// In one exchange.
void TensorParallel::emit_means(gpu::CommandList& commands, gpu::Allocator& memory,
                                const std::vector<gpu::Buffer>& means) {
  emit_round_trip(commands, memory, means, [this](std::span<const gpu::Buffer> there) {
    std::vector<float> all;
    for (const gpu::Buffer& part : there)
      all.insert(all.end(), floats_of(part).begin(), floats_of(part).end());
    group_.all_reduce(std::span(all));
    const float share = 1 / static_cast<float>(group_.size());
    for (size_t at = 0; const gpu::Buffer& part : there)
      for (float& mean : floats_of(part)) mean = all[at++] * share;
  });
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

#include "train/byte_feed.h"

#include <algorithm>
#include <cstring>

#include "ops/gemm.h"

namespace etr::train {

graph::Feed byte_feed(gpu::Kernels& kernels, gpu::Arena& memory, const graph::Value& value,
                      graph::ValueId id) {
  const Shape& shape = value.shape;
  const auto count = static_cast<uint64_t>(element_count(shape));
  const auto channels = static_cast<uint32_t>(shape.back());
  // A matrix row is one row of the image: long rows need no divisions in the loop.
  const auto columns =
      static_cast<uint32_t>(shape.size() > 2 ? shape.end()[-2] * shape.back() : shape.back());
  graph::Feed feed(id);
  feed.upload_bytes = {gpu::div_up(count, 4) * uint64_t{4}, uint64_t{8} * channels};
  feed.commands = [&kernels, &memory, columns, channels](gpu::CommandList& commands,
                                                         const std::vector<gpu::Buffer>& parts,
                                                         const ops::DeviceTensor& output) {
    const uint32_t rows = output.count() / columns,
                   slices = ops::row_slices(*kernels.device(), rows, columns);
    const struct {
      uint32_t rows, columns, channels, slices;
    } push{rows, columns, channels, slices};
    const gpu::Buffer affine = memory.allocate(parts[1].size_bytes);
    ops::Emitter emit(kernels, memory, commands);
    emit.set_label("normalize");
    emit.add(gpu::Copy{parts[1], affine});
    using gpu::Access;
    emit.for_channels("normalize",
                      {{parts[0], Access::read}, {affine, Access::read}, ops::writes(output)}, push,
                      columns, slices);
  };
  return feed;
}

void fill_bytes(const std::vector<std::byte*>& parts, const pipeline::Item& batch,
                const std::string& name, const Shape& shape) {
  const Tensor& bytes = *batch.find(name);
  const auto want = static_cast<size_t>(element_count(shape)), size = bytes.size_bytes();
  for (size_t at = 0; at < want; at += size)
    std::memcpy(parts[0] + at, bytes.data(), std::min(size, want - at));
  put_affine(batch, name, static_cast<size_t>(shape.back()), reinterpret_cast<float*>(parts[1]));
}

void put_affine(const pipeline::Item& batch, const std::string& name, size_t channels, float* to) {
  for (const char* part : {"_scale", "_shift"}) {
    const auto values = batch.find(name + part)->view<float>();
    for (size_t c = 0; c < channels; ++c) *to++ = values[values.size() == 1 ? 0 : c];
  }
}

}  // namespace etr::train

// Fields of batches that lie in a Vulkan buffer of the host program's, on the device that it shares with the trainer.
#pragma once

#include <memory>
#include <string>

#include "gpu/memory.h"
#include "pipeline/item.h"

namespace etr::train {

// Row-major values from `offset` bytes on in `buffer`, a VkBuffer. `owner` is released when nobody needs them any more.
pipeline::OpaqueField field_in_buffer(const std::string& name, DType dtype, const Shape& shape,
                                      void* buffer, uint64_t offset, std::shared_ptr<void> owner);

// The range that such a field is.
const gpu::Buffer& buffer_of(const pipeline::OpaqueField& field);

// `count` rows from `begin` on; keeps the owner.
pipeline::OpaqueField rows_of_buffer(const pipeline::OpaqueField& field, int64_t begin,
                                     int64_t count);

}  // namespace etr::train

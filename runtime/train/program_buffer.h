// Fields of batches in a Vulkan buffer of the host program, on the device that it shares with the
// trainer.
#pragma once

#include <memory>
#include <string>

#include "gpu/memory.h"
#include "pipeline/item.h"

namespace etr::train {

// Returns a field of row-major values that begin at byte `offset` of `buffer`, a VkBuffer. `owner`
// is released when nothing needs them any more.
pipeline::OpaqueField field_in_buffer(const std::string& name, DType dtype, const Shape& shape,
                                      void* buffer, uint64_t offset, std::shared_ptr<void> owner);

// Returns the buffer range of such a field.
const gpu::Buffer& buffer_of(const pipeline::OpaqueField& field);

// Returns `count` rows from `begin` on. The result keeps the owner alive.
pipeline::OpaqueField rows_of_buffer(const pipeline::OpaqueField& field, int64_t begin,
                                     int64_t count);

}  // namespace etr::train

// Images that are uploaded as bytes and become floats on the device. The upload is a quarter of the
// size, and the host does not convert.
#pragma once

#include "graph/runner.h"
#include "pipeline/item.h"

namespace etr::train {

// Returns how a runner feeds `value`, f32 [N, ..., C], from bytes. `memory` must outlive the
// runner.
graph::Feed byte_feed(gpu::Kernels& kernels, gpu::Arena& memory, const graph::Value& value,
                      graph::ValueId id);

// Fills the parts that byte_feed() asked for with the field `name` of a batch that fits. If the
// batch has fewer rows, they are repeated.
void fill_bytes(const std::vector<std::byte*>& parts, const pipeline::Item& batch,
                const std::string& name, const Shape& shape);

// Writes [scale, shift] for each of `channels`, from the fields NAME_scale and NAME_shift, which
// have one value per channel or one for all.
void put_affine(const pipeline::Item& batch, const std::string& name, size_t channels, float* to);

}  // namespace etr::train

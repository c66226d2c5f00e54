// Images that reach the device as bytes and become floats there: a quarter of the upload, and nothing for the host to do.
#pragma once

#include "graph/runner.h"
#include "pipeline/item.h"

namespace etr::train {

// How a runner feeds `value`, f32 [N, ..., C], from bytes. `memory` outlives the runner.
graph::Feed byte_feed(gpu::Kernels& kernels, gpu::Arena& memory, const graph::Value& value,
                      graph::ValueId id);

// Fills the parts that byte_feed() asked for with `name` of a batch that fits. Rows beyond a smaller batch repeat it.
void fill_bytes(const std::vector<std::byte*>& parts, const pipeline::Item& batch,
                const std::string& name, const Shape& shape);

// [scale, shift] of each of `channels`, from fields NAME_scale and NAME_shift, which have as many values or one for all.
void put_affine(const pipeline::Item& batch, const std::string& name, size_t channels, float* to);

}  // namespace etr::train

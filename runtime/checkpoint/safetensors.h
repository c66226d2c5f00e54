// Named tensors in the safetensors format, which other tools read too: an 8-byte little-endian
// header length, a JSON header {"name": {"dtype", "shape", "data_offsets"}, ...}, then the tensors'
// bytes.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace etr::checkpoint {

using NamedTensors = std::map<std::string, Tensor>;

std::vector<std::byte> write_safetensors(const NamedTensors& tensors);

// Returns copies. F16, BF16 and F64 become f32, I64 becomes i32. Throws like file_tensors()
// (checkpoint/safetensors_header.h), and Error(unsupported) that names the tensor if a value
// exceeds the range of f32 or i32.
NamedTensors read_safetensors(std::span<const std::byte> bytes, const std::string& origin);

}  // namespace etr::checkpoint

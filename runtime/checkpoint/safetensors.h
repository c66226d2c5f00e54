// Named tensors in the safetensors format: an 8-byte little-endian header length, a JSON header
// {"name": {"dtype", "shape", "data_offsets"}, ...}, then the tensors' bytes. Other tools read it.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace etr::checkpoint {

using NamedTensors = std::map<std::string, Tensor>;

std::vector<std::byte> write_safetensors(const NamedTensors& tensors);

// The result holds copies; F16, BF16 and F64 become f32, I64 becomes i32. Throws as file_tensors() does
// (checkpoint/safetensors_header.h), and Error(unsupported) that names the tensor where a number is beyond f32 or i32.
NamedTensors read_safetensors(std::span<const std::byte> bytes, const std::string& origin);

}  // namespace etr::checkpoint

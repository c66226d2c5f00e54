// Parses and validates the header of a safetensors file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace etr::checkpoint {

// An element type of the format, and the array element type that it is converted to.
struct FileType {
  const char* name;
  DType becomes;
  size_t bytes;  // per element in the file
};

struct FileTensor {
  std::string name;
  const FileType* type;
  Shape shape;
  std::span<const std::byte> data;
};

// The tensors of the file `bytes`, in the order of their data. Applies the rules of the reference
// implementation: a header of at most 100 MB, no duplicate keys, shapes and offsets that are whole
// numbers whose products do not overflow, and data without overlaps, gaps or trailing bytes. Throws
// Error(corrupt_data) that names `origin` and the tensor, and Error(unsupported) for element types
// and ranks that arrays do not support.
std::vector<FileTensor> file_tensors(std::span<const std::byte> bytes, const std::string& origin);

const char* file_type_name(DType dtype);

}  // namespace etr::checkpoint

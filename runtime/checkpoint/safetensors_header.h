// What a safetensors file says of its tensors, checked before any of it is used.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace etr::checkpoint {

// An element type of the format, and of the array that a tensor of it becomes here.
struct FileType {
  const char* name;
  DType becomes;
  size_t bytes;  // of an element in the file
};

struct FileTensor {
  std::string name;
  const FileType* type;
  Shape shape;
  std::span<const std::byte> data;
};

// The tensors of the file `bytes`, in the order of their data. The rules are those of the reference implementation: a header
// of at most 100 MB; every key once; shapes and offsets whole numbers whose products fit; the data without overlaps, holes or
// a rest. Throws Error(corrupt_data) that names `origin` and the tensor, Error(unsupported) for element types and ranks that
// arrays here do not have.
std::vector<FileTensor> file_tensors(std::span<const std::byte> bytes, const std::string& origin);

const char* file_type_name(DType dtype);

}  // namespace etr::checkpoint

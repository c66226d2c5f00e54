// Writes an ONNX file: nodes, their constants, inputs and one output.
#pragma once

#include <string>
#include <vector>

#include "core/protobuf.h"
#include "tensor/tensor.h"

namespace etr::nn {

// Element types, by their numbers in onnx.proto.
inline constexpr int kOnnxFloat = 1, kOnnxInt32 = 6, kOnnxInt64 = 7;

// Attributes of a node.
class OnnxAttributes {
 public:
  OnnxAttributes& integer(const char* name, int64_t value);
  OnnxAttributes& real(const char* name, double value);
  OnnxAttributes& text(const char* name, const char* value);
  OnnxAttributes& integers(const char* name, const std::vector<int64_t>& values);
  const std::vector<Message>& list() const { return list_; }

 private:
  OnnxAttributes& add(const char* name, int type, Message value);

  std::vector<Message> list_;
};

class OnnxFile {
 public:
  using Name = std::string;  // name of a value in the file's graph

  // Adds a node and returns the name of its first output (others are NAME.1, NAME.2, ...).
  Name emit(const char* op, const std::vector<Name>& inputs, const OnnxAttributes& attributes = {},
            int outputs = 1);
  Name constant(const std::vector<int64_t>& dims, const std::vector<float>& values);
  Name number(double value) { return constant({}, {static_cast<float>(value)}); }
  Name integers(const std::vector<int64_t>& values);
  void parameter(const Name& name, const Tensor& value);  // f32
  // A parameter in another layout, which keeps its name.
  Name parameter(const Name& name, const std::vector<int64_t>& dims,
                 const std::vector<float>& values);
  Name reshape(const Name& x, const std::vector<int64_t>& shape) {
    return emit("Reshape", {x, integers(shape)});
  }
  Name transpose(const Name& x, const std::vector<int64_t>& axes) {
    return emit("Transpose", {x}, OnnxAttributes().integers("perm", axes));
  }

  // Inputs and the output of the graph; their first axis is free.
  void input(const Name& name, DType dtype, const Shape& shape);
  void output(const Name& value, const Shape& shape);  // named "output"

  std::string data();  // the file

 private:
  Message body_;  // the graph
  int count_ = 0;
};

}  // namespace etr::nn

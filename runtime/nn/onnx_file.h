// Writes an ONNX file: nodes, their constants, inputs and one output.
#pragma once

#include <string>
#include <vector>

#include "core/protobuf.h"
#include "ops/onnx_node.h"
#include "tensor/tensor.h"

namespace etr::nn {

class OnnxFile final : public ops::OnnxWriter {
 public:
  using Name = ops::OnnxName;

  Name emit(const char* op, const std::vector<Name>& inputs,
            const ops::OnnxAttributes& attributes = {}, int outputs = 1) override;
  Name constant(const std::vector<int64_t>& dims, const std::vector<float>& values) override;
  Name integers(const std::vector<int64_t>& values) override;
  void parameter(const Name& name, const Tensor& value);  // f32
  // A parameter in another layout, which keeps its name.
  Name parameter(const Name& name, const std::vector<int64_t>& dims,
                 const std::vector<float>& values);

  // Inputs and the output of the graph; their first axis is free.
  void input(const Name& name, DType dtype, const Shape& shape);
  void output(const Name& value, const Shape& shape);  // named "output"

  std::string data();  // the file

 private:
  Message body_;  // the graph
  int count_ = 0;
};

}  // namespace etr::nn

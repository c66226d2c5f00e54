// How an op writes itself into an ONNX file; nn/onnx.cpp writes the rest.
#pragma once

#include <string>
#include <vector>

#include "core/options.h"
#include "core/protobuf.h"
#include "tensor/tensor.h"

namespace etr::ops {

// Element types, by their numbers in onnx.proto.
inline constexpr int kOnnxFloat = 1, kOnnxInt32 = 6, kOnnxInt64 = 7;

// Attributes of a node of the file.
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

using OnnxName = std::string;  // of a value in the file's graph

// Adds nodes and constants to a file.
class OnnxWriter {
 public:
  virtual ~OnnxWriter() = default;

  // Adds a node and returns the name of its first output (others are NAME.1, NAME.2, ...).
  virtual OnnxName emit(const char* op, const std::vector<OnnxName>& inputs,
                        const OnnxAttributes& attributes = {}, int outputs = 1) = 0;
  virtual OnnxName constant(const std::vector<int64_t>& dims, const std::vector<float>& values) = 0;
  virtual OnnxName integers(const std::vector<int64_t>& values) = 0;

  OnnxName number(double value) { return constant({}, {static_cast<float>(value)}); }
  OnnxName reshape(const OnnxName& x, const std::vector<int64_t>& shape) {
    return emit("Reshape", {x, integers(shape)});
  }
  OnnxName transpose(const OnnxName& x, const std::vector<int64_t>& axes) {
    return emit("Transpose", {x}, OnnxAttributes().integers("perm", axes));
  }
  // Applies `f`, which works on [N, C, H, W], to an image [N, H, W, C].
  template <typename F>
  OnnxName on_image(const OnnxName& x, F&& f) {
    return transpose(f(transpose(x, {0, 3, 1, 2})), {0, 2, 3, 1});
  }
};

// A node of our graph that is being exported, and the file that it goes into.
class OnnxNode : public OnnxWriter {
 public:
  virtual const Options& options() const = 0;
  virtual size_t inputs() const = 0;
  virtual Shape shape_in(size_t input) const = 0;
  virtual Shape shape() const = 0;  // of the output

  // Returns an input; a weight is written as it is.
  virtual OnnxName in(size_t input) = 0;
  // For weights that are written in another form: their values, and a parameter that keeps the
  // name.
  virtual std::vector<float> floats(size_t input) = 0;
  virtual OnnxName parameter(size_t input, const std::vector<int64_t>& dims,
                             const std::vector<float>& values) = 0;

  // Throws Error(unsupported) that names the layer and what ONNX lacks.
  [[noreturn]] virtual void lacks(const std::string& what) const = 0;

  // Applies a ReLU if the op's option "relu" is on.
  OnnxName relu_where(const OnnxName& x) {
    return options().boolean("relu") ? emit("Relu", {x}) : x;
  }
};

// Returns a shape for Reshape that keeps the first axis.
std::vector<int64_t> with_free_batch(const Shape& shape);

}  // namespace etr::ops

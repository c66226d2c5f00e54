#include "nn/onnx_file.h"

#include "core/error.h"

namespace etr::nn {

using namespace ops;

namespace {

constexpr int kIrVersion = 8, kOpset = 17;

template <typename T>
Message tensor_message(const std::string& name, const std::vector<int64_t>& dims, int type,
                       const T* data, size_t count) {
  Message m;
  for (const int64_t dim : dims) m.integer(1, static_cast<uint64_t>(dim));
  m.integer(2, static_cast<uint64_t>(type)).bytes(8, name);
  return m.bytes(9, {reinterpret_cast<const char*>(data), count * sizeof(T)});
}

// Returns a name, element type, and shape with a free first axis.
Message value_info(const std::string& name, DType dtype, const Shape& shape) {
  Message dims;
  for (size_t i = 0; i < shape.size(); ++i)
    dims.message(1, i == 0 ? Message().bytes(2, "N")
                           : Message().integer(1, static_cast<uint64_t>(shape[i])));
  const Message tensor =
      Message().integer(1, dtype == DType::i32 ? kOnnxInt32 : kOnnxFloat).message(2, dims);
  return Message().bytes(1, name).message(2, Message().message(1, tensor));
}

}  // namespace

OnnxFile::Name OnnxFile::emit(const char* op, const std::vector<Name>& inputs,
                              const OnnxAttributes& attributes, int outputs) {
  Message m;
  for (const Name& name : inputs) m.bytes(1, name);
  const Name name = cat(op, "_", ++count_);
  m.bytes(2, name);
  for (int i = 1; i < outputs; ++i) m.bytes(2, cat(name, ".", i));
  m.bytes(3, name).bytes(4, op);
  for (const Message& attribute : attributes.list()) m.message(5, attribute);
  body_.message(1, m);
  return name;
}

OnnxFile::Name OnnxFile::constant(const std::vector<int64_t>& dims,
                                  const std::vector<float>& values) {
  const Name name = cat("constant_", ++count_);
  body_.message(5, tensor_message(name, dims, kOnnxFloat, values.data(), values.size()));
  return name;
}

OnnxFile::Name OnnxFile::integers(const std::vector<int64_t>& values) {
  const Name name = cat("constant_", ++count_);
  body_.message(5, tensor_message(name, {static_cast<int64_t>(values.size())}, kOnnxInt64,
                                  values.data(), values.size()));
  return name;
}

void OnnxFile::parameter(const Name& name, const Tensor& value) {
  const std::vector<int64_t> dims(value.shape().begin(), value.shape().end());
  body_.message(5, tensor_message(name, dims, kOnnxFloat, value.view<float>().data(),
                                  static_cast<size_t>(value.count())));
}

OnnxFile::Name OnnxFile::parameter(const Name& name, const std::vector<int64_t>& dims,
                                   const std::vector<float>& values) {
  body_.message(5, tensor_message(name, dims, kOnnxFloat, values.data(), values.size()));
  return name;
}

void OnnxFile::input(const Name& name, DType dtype, const Shape& shape) {
  body_.message(11, value_info(name, dtype, shape));
}

void OnnxFile::output(const Name& value, const Shape& shape) {
  Message node;
  node.bytes(1, value).bytes(2, "output").bytes(3, "output").bytes(4, "Identity");
  body_.message(1, node).message(12, value_info("output", DType::f32, shape));
}

std::string OnnxFile::data() {
  body_.bytes(2, "echotrain");
  Message file;
  file.integer(1, kIrVersion).bytes(2, "EchoTrain").message(7, body_);
  return file.message(8, Message().bytes(1, "").integer(2, kOpset)).data();
}

}  // namespace etr::nn

#include "ops/onnx_node.h"

namespace etr::ops {
namespace {

constexpr int kAttributeFloat = 1, kAttributeInt = 2, kAttributeString = 3, kAttributeInts = 7;

}  // namespace

OnnxAttributes& OnnxAttributes::integer(const char* name, int64_t value) {
  return add(name, kAttributeInt, Message().integer(3, static_cast<uint64_t>(value)));
}

OnnxAttributes& OnnxAttributes::real(const char* name, double value) {
  return add(name, kAttributeFloat, Message().real(2, static_cast<float>(value)));
}

OnnxAttributes& OnnxAttributes::text(const char* name, const char* value) {
  return add(name, kAttributeString, Message().bytes(4, value));
}

OnnxAttributes& OnnxAttributes::integers(const char* name, const std::vector<int64_t>& values) {
  Message m;
  for (const int64_t value : values) m.integer(8, static_cast<uint64_t>(value));
  return add(name, kAttributeInts, std::move(m));
}

OnnxAttributes& OnnxAttributes::add(const char* name, int type, Message value) {
  list_.push_back(value.bytes(1, name).integer(20, static_cast<uint64_t>(type)));
  return *this;
}

std::vector<int64_t> with_free_batch(const Shape& shape) {
  std::vector<int64_t> out(shape.begin(), shape.end());
  out[0] = 0;
  return out;
}

}  // namespace etr::ops

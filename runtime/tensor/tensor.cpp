#include "tensor/tensor.h"

#include <cstring>

#include "core/error.h"
#include "core/memory.h"

namespace etr {

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::u8: return "u8";
    case DType::i32: return "i32";
    case DType::f32: return "f32";
    case DType::u16: return "u16";
  }
  return "?";
}

size_t dtype_size(DType dtype) { return dtype == DType::u8 ? 1 : dtype == DType::u16 ? 2 : 4; }

void Shape::push_back(int64_t extent) {
  if (rank_ == kMaxRank)
    fail(Code::unsupported, "arrays have at most ", kMaxRank, " axes; this one has more");
  extents_[rank_++] = extent;
}

Shape with_batch(int64_t batch, const Shape& sample) {
  Shape out{batch};
  for (const int64_t extent : sample) out.push_back(extent);
  return out;
}

std::string shape_text(const Shape& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

int64_t element_count(const Shape& shape) {
  int64_t n = 1;
  for (const int64_t extent : shape) n *= extent;
  return n;
}

size_t size_of(DType dtype, const Shape& shape) {
  int64_t size = static_cast<int64_t>(dtype_size(dtype));
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) fail(Code::invalid_argument, "negative extent in shape ", shape_text(shape));
    empty = empty || extent == 0;
    if (extent > 0 && __builtin_mul_overflow(size, extent, &size))
      fail(Code::invalid_argument, "an array of shape ", shape_text(shape),
           " is larger than any memory");
  }
  return empty ? 0 : static_cast<size_t>(size);
}

Tensor::Tensor(DType dtype, Shape shape) : dtype_(dtype), own_(true), shape_(std::move(shape)) {
  bytes_ = allocate_bytes(size_of(dtype_, shape_));
}

Tensor Tensor::off_boundary(DType dtype, Shape shape) {
  constexpr size_t kOff = 16;
  const auto bytes = allocate_bytes(size_of(dtype, shape) + kOff);
  Tensor out(dtype, std::move(shape), {bytes, bytes.get() + kOff});
  out.own_ = true;
  return out;
}

Tensor::Tensor(DType dtype, Shape shape, std::shared_ptr<const std::byte> bytes)
    : dtype_(dtype), shape_(std::move(shape)), bytes_(std::move(bytes)) {
  size_of(dtype_, shape_);
}

Tensor Tensor::text(std::string_view text) {
  Tensor out(DType::u8, {static_cast<int64_t>(text.size())});
  std::copy(text.begin(), text.end(), out.mutable_view<char>().begin());
  return out;
}

Tensor Tensor::compact() const {
  if (own_ || empty()) return *this;
  Tensor copy(dtype_, shape_);
  if (size_bytes() > 0) std::memcpy(copy.mutable_data(), data(), size_bytes());
  return copy;
}

Tensor Tensor::writable() && {
  if (own_ && bytes_.use_count() == 1) {
    // Other threads may just have dropped the last other reference. use_count() does not acquire
    // their reads, but a decrement does. (So would a fence, but thread sanitizers do not understand
    // fences.)
    std::shared_ptr<const std::byte>(bytes_).reset();
    return std::move(*this);
  }
  Tensor copy(dtype_, shape_);
  if (size_bytes() > 0) std::memcpy(copy.mutable_data(), data(), size_bytes());
  return copy;
}

}  // namespace etr

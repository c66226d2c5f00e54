// Host arrays: a shape, an element type and shared, immutable-by-convention bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace etr {

enum class DType : int32_t { u8 = 0, i32 = 1, f32 = 2 };

const char* dtype_name(DType dtype);  // "u8", "i32", "f32"
size_t dtype_size(DType dtype);       // bytes of one element

using Shape = std::vector<int64_t>;

std::string shape_text(const Shape& shape);  // "[64, 28, 28, 1]"
int64_t element_count(const Shape& shape);   // 1 for a scalar's empty shape

// A dense, row-major array. Copying a Tensor shares its bytes, which are counted; whoever has just
// made one may write through `mutable_data`, and nobody may after it was handed on.
class Tensor {
 public:
  Tensor() = default;

  // Uninitialised memory, 64-byte aligned.
  Tensor(DType dtype, Shape shape);

  // A view: `bytes` is an aliasing pointer that keeps the memory alive.
  Tensor(DType dtype, Shape shape, std::shared_ptr<const std::byte> bytes);

  template <typename T>
  static Tensor scalar(DType dtype, T value) {
    Tensor out(dtype, {});
    *static_cast<T*>(out.mutable_data()) = value;
    return out;
  }

  bool empty() const { return !bytes_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t count() const { return element_count(shape_); }
  size_t size_bytes() const {
    return empty() ? 0 : static_cast<size_t>(count()) * dtype_size(dtype_);
  }

  const void* data() const { return bytes_.get(); }
  void* mutable_data() { return const_cast<std::byte*>(bytes_.get()); }

  template <typename T>
  std::span<const T> view() const {
    return {static_cast<const T*>(data()), static_cast<size_t>(count())};
  }
  template <typename T>
  std::span<T> mutable_view() {
    return {static_cast<T*>(mutable_data()), static_cast<size_t>(count())};
  }

  std::span<const std::byte> bytes() const { return {bytes_.get(), size_bytes()}; }

 private:
  DType dtype_ = DType::u8;
  Shape shape_;
  std::shared_ptr<const std::byte> bytes_;
};

}  // namespace etr

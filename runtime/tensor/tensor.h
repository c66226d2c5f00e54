// Host arrays: a shape, an element type and shared, immutable-by-convention bytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace etr {

enum class DType : int32_t { u8 = 0, i32 = 1, f32 = 2, u16 = 3 };

const char* dtype_name(DType dtype);  // "u8", "i32", "f32", "u16"
size_t dtype_size(DType dtype);       // bytes of one element

// The extents of an array, outermost first. Up to kMaxRank of them, held inline: shapes are made
// for every tensor of every sample.
class Shape {
 public:
  static constexpr size_t kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> extents) : Shape(extents.begin(), extents.end()) {}
  template <typename Iterator>
  Shape(Iterator begin, Iterator end) {
    for (; begin != end; ++begin) push_back(*begin);
  }

  void push_back(int64_t extent);  // Error(unsupported) beyond kMaxRank

  size_t size() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  int64_t operator[](size_t i) const { return extents_[i]; }
  int64_t& operator[](size_t i) { return extents_[i]; }
  int64_t back() const { return extents_[rank_ - 1]; }
  const int64_t* begin() const { return extents_; }
  const int64_t* end() const { return extents_ + rank_; }

  friend bool operator==(const Shape& a, const Shape& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  size_t rank_ = 0;
  int64_t extents_[kMaxRank] = {};
};

// The batch axis before a sample's shape: [N, H, W, C].
Shape with_batch(int64_t batch, const Shape& sample);

std::string shape_text(const Shape& shape);  // "[64, 28, 28, 1]"
int64_t element_count(const Shape& shape);   // 1 for a scalar's empty shape

// Bytes of an array, for shapes from outside: Error(invalid_argument) where an extent is negative or the product wraps, of the
// extents that are not 0: what a shape without elements says otherwise must not depend on their order.
// Every Tensor has passed it, so that what is counted of a tensor's shape needs no check.
size_t size_of(DType dtype, const Shape& shape);

// A dense, row-major array. Copying a Tensor shares its bytes, which are counted; whoever has just
// made one may write through `mutable_data`, and nobody may after it was handed on.
class Tensor {
 public:
  Tensor() = default;

  // Uninitialised memory, 64-byte aligned.
  Tensor(DType dtype, Shape shape);

  // Uninitialised memory that begins 16 bytes after such a boundary: libraries that see aligned rows write
  // them past the caches, which is slow where the next stage reads them.
  static Tensor off_boundary(DType dtype, Shape shape);

  // A view: `bytes` is an aliasing pointer that keeps the memory alive.
  Tensor(DType dtype, Shape shape, std::shared_ptr<const std::byte> bytes);

  template <typename T>
  static Tensor scalar(DType dtype, T value) {
    Tensor out(dtype, {});
    *static_cast<T*>(out.mutable_data()) = value;
    return out;
  }

  static Tensor text(std::string_view text);  // its bytes, u8 [length]

  // The same values in memory that may be written: this tensor's own where nobody else holds it.
  Tensor writable() &&;

  // The same values, sharing memory with no more than themselves.
  Tensor compact() const;

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
  bool own_ = false;  // the bytes are not a view of somebody's
  Shape shape_;
  std::shared_ptr<const std::byte> bytes_;
};

}  // namespace etr

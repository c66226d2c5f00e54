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

// The extents of an array, outermost first. Up to kMaxRank extents, stored inline because shapes
// are created for every tensor of every sample.
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

// Prepends the batch axis to a sample's shape: [N, H, W, C].
Shape with_batch(int64_t batch, const Shape& sample);

std::string shape_text(const Shape& shape);  // "[64, 28, 28, 1]"
int64_t element_count(const Shape& shape);   // 1 for a scalar's empty shape

// The size of an array in bytes. Safe for external shapes: throws Error(invalid_argument) if an
// extent is negative, or if the product of the nonzero extents overflows, so that the check of a
// shape without elements does not depend on the order of its extents. Every Tensor has passed this
// check, so code that computes sizes from a tensor's shape needs no check of its own.
size_t size_of(DType dtype, const Shape& shape);

// A dense, row-major array. Copies share reference-counted bytes. The creator of a Tensor may write
// through `mutable_data` until it passes the Tensor on; after that nobody may.
class Tensor {
 public:
  Tensor() = default;

  // Uninitialised memory, 64-byte aligned.
  Tensor(DType dtype, Shape shape);

  // Uninitialised memory 16 bytes off a 64-byte boundary. Libraries write aligned rows with
  // non-temporal stores, which is slow if the next stage reads them.
  static Tensor off_boundary(DType dtype, Shape shape);

  // A view. `bytes` is an aliasing pointer that keeps the memory alive.
  Tensor(DType dtype, Shape shape, std::shared_ptr<const std::byte> bytes);

  template <typename T>
  static Tensor scalar(DType dtype, T value) {
    Tensor out(dtype, {});
    *static_cast<T*>(out.mutable_data()) = value;
    return out;
  }

  static Tensor text(std::string_view text);  // the text's bytes, u8 [length]

  // Returns the same values in writable memory: its own if no other Tensor shares it, else a copy.
  Tensor writable() &&;

  // Returns the same values in memory that holds nothing else: copies a view.
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
  bool own_ = false;  // not a view of other memory
  Shape shape_;
  std::shared_ptr<const std::byte> bytes_;
};

}  // namespace etr

#include "tensor/tensor.h"
#include "core/memory.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "core/error.h"

namespace etr {
namespace {

TEST(Tensor, CopiesShareTheirBytes) {
  Tensor a(DType::f32, {3, 5, 7});
  EXPECT_EQ(a.count(), 105);
  EXPECT_EQ(a.size_bytes(), 420u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 64, 0u);
  a.mutable_view<float>()[104] = 2.5f;
  const Tensor b = a;
  EXPECT_EQ(b.data(), a.data());
  EXPECT_EQ(b.view<float>()[104], 2.5f);
}

TEST(Tensor, ShapesWhoseProductWrapsAreErrors) {
  constexpr int64_t kBig = int64_t{1} << 62;
  for (const Shape& shape : {Shape{kBig}, Shape{kBig, 2}, Shape{1 << 30, 1 << 30, 1 << 30},
                             Shape{kBig, kBig, 0}, Shape{0, kBig, kBig}, Shape{kBig, 0, kBig},
                             Shape{0, kBig}, Shape{0, -1}, Shape{-1}, Shape{-2, -2}}) {
    EXPECT_THROW(Tensor(DType::f32, shape), Error) << shape_text(shape);
    EXPECT_THROW(Tensor(DType::f32, shape, nullptr), Error) << shape_text(shape);
    EXPECT_THROW(Tensor::off_boundary(DType::f32, shape), Error) << shape_text(shape);
  }
  EXPECT_EQ(size_of(DType::f32, {0, kBig / 4}), 0u);
  EXPECT_EQ(size_of(DType::f32, {kBig / 4, 0}), 0u);
}

TEST(Tensor, ViewsKeepTheirOwnerAlive) {
  auto owner = std::make_shared<std::vector<std::byte>>(10, std::byte{9});
  std::weak_ptr<std::vector<std::byte>> watch = owner;
  Tensor view(DType::u8, {4}, std::shared_ptr<const std::byte>(owner, owner->data() + 3));
  owner.reset();
  EXPECT_FALSE(watch.expired());
  EXPECT_EQ(view.view<uint8_t>()[0], 9);
  view = Tensor();
  EXPECT_TRUE(watch.expired());
}

// Memory of batches is kept for the next of its size.
TEST(Tensor, LargeBlocksAreUsedAgain) {
  constexpr int64_t kSize = 3 << 20;
  const void* first = nullptr;
  {
    Tensor a(DType::u8, {kSize});
    first = a.data();
    EXPECT_NE(Tensor(DType::u8, {kSize}).data(), first) << "it is in use";
  }
  if (kMemoryIsReused) {
    EXPECT_EQ(Tensor(DType::u8, {kSize}).data(), first);
  }
  EXPECT_NE(Tensor(DType::u8, {2 * kSize}).data(), first);
}

TEST(Tensor, LargeBlocksStandManyThreadsAndSizes) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      std::vector<Tensor> held;
      for (int i = 0; i < 300; ++i) {
        Tensor tensor(DType::u8, {(1 << 20) + (i * 7 + t) % 13 * 4096});
        const auto bytes = tensor.mutable_view<uint8_t>();
        const auto mark = static_cast<uint8_t>(16 * t + i % 16);
        bytes.front() = bytes.back() = mark;
        held.push_back(std::move(tensor));
        if (held.size() > 6) held.erase(held.begin() + i % 5);
        EXPECT_EQ(held.back().view<uint8_t>().front(), mark);
        EXPECT_EQ(held.back().view<uint8_t>().back(), mark);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Tensor, ScalarsAndEmptyShapes) {
  EXPECT_EQ(Tensor::scalar(DType::i32, int32_t{-4}).view<int32_t>()[0], -4);
  EXPECT_EQ(Tensor(DType::f32, {0, 3}).count(), 0);
  EXPECT_EQ(shape_text({}), "[]");
  EXPECT_EQ(shape_text({2, 3}), "[2, 3]");
  EXPECT_THROW(Tensor(DType::u8, {-1}), Error);
}

}  // namespace
}  // namespace etr

#include "tensor/tensor.h"

#include <gtest/gtest.h>

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

TEST(Tensor, ScalarsAndEmptyShapes) {
  EXPECT_EQ(Tensor::scalar(DType::i32, int32_t{-4}).view<int32_t>()[0], -4);
  EXPECT_EQ(Tensor(DType::f32, {0, 3}).count(), 0);
  EXPECT_EQ(shape_text({}), "[]");
  EXPECT_EQ(shape_text({2, 3}), "[2, 3]");
  EXPECT_THROW(Tensor(DType::u8, {-1}), Error);
}

}  // namespace
}  // namespace etr

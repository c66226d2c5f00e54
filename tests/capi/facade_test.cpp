// The batches of the bindings, which one thread may close while others use them.
#include "facade.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <thread>

namespace {

using echotrain::facade::BatchHandle;

// A batch with a field whose end calls `ended`, as that of an object of a language may.
class Borrowed {
 public:
  explicit Borrowed(std::function<void()> ended)
      : ended_(std::move(ended)), handle_(echotrain::Batch(batch_.get(), true), true) {
    static constexpr int32_t kValue = 1;
    etr_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.dtype = ETR_I32;
    tensor.data = &kValue;
    tensor.size_bytes = sizeof kValue;
    const auto end = [](void* self) { static_cast<Borrowed*>(self)->ended_(); };
    EXPECT_EQ(etr_batch_wrap(batch_.get(), "x", &tensor, end, this), ETR_OK) << etr_last_error();
  }
  BatchHandle& handle() { return handle_; }

 private:
  std::function<void()> ended_;
  echotrain::Batch batch_;
  BatchHandle handle_;
};

TEST(BatchHandle, IsClosedByACallOfTheSameThread) {
  BatchHandle* handle = nullptr;
  Borrowed batch([&] { handle->close(); });
  handle = &batch.handle();
  handle->remove("x");
  EXPECT_TRUE(handle->is_closed());
  EXPECT_THROW(handle->fields(), echotrain::Error);
}

TEST(BatchHandle, IsClosedWhenTheCallsOfOtherThreadsHaveEnded) {
  std::promise<void> entered, let_go;
  std::atomic<bool> ended = false;
  Borrowed batch([&] {
    entered.set_value();
    let_go.get_future().wait();
    ended = true;
  });
  auto use = std::async(std::launch::async, [&] { batch.handle().remove("x"); });
  entered.get_future().wait();
  auto closed = std::async(std::launch::async, [&] {
    batch.handle().close();
    return ended.load();
  });
  while (!batch.handle().is_closed()) std::this_thread::yield();
  let_go.set_value();
  EXPECT_TRUE(closed.get());
  use.get();
}

TEST(BatchHandle, SaysWhatToDoWhereItIsClosed) {
  Borrowed batch([] {});
  batch.handle().close();
  try {
    batch.handle().dlpack("x");
    ADD_FAILURE() << "a closed batch gave a field";
  } catch (const echotrain::Error& error) {
    EXPECT_EQ(error.status(), ETR_STATE);
    EXPECT_NE(std::string(error.what()).find("the batch is closed: read its fields before"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace

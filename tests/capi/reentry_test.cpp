// A transport whose functions call the run that they serve.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "capi/support.h"
#include "support/eventually.h"

namespace {

template <typename T>
void twice(void* data, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) static_cast<T*>(data)[i] *= 2;
}

// The first of two ranks of which the other brings the same, by an etr_engine as a C program has
// it.
struct Mirrored {
  std::atomic<etr_run*> run{nullptr};
  std::function<void()> within;  // called by each reduction, when the run is known
  std::atomic<int> destroyed{0};

  static int32_t all_reduce(void* context, void* data, uint64_t count, int32_t number,
                            int32_t reduction, double, etr_engine_error*) {
    auto& self = *static_cast<Mirrored*>(context);
    if (self.run) self.within();
    if (reduction != ETR_REDUCE_SUM) return ETR_OK;
    if (number == ETR_NUMBER_F32) twice<float>(data, count);
    if (number == ETR_NUMBER_F64) twice<double>(data, count);
    if (number == ETR_NUMBER_I64) twice<int64_t>(data, count);
    return ETR_OK;
  }

  static int32_t all_gather(void*, const void* part, const uint64_t* sizes, void* data, double,
                            etr_engine_error*) {
    auto* const to = static_cast<char*>(data);
    std::memmove(to, part, sizes[0]);
    std::memmove(to + sizes[0], to, sizes[1]);
    return ETR_OK;
  }

  etr_engine table() {
    etr_engine out{};
    out.struct_size = sizeof out;
    out.size = 2;
    out.context = this;
    out.all_reduce = all_reduce;
    out.all_gather = all_gather;
    out.broadcast = [](void*, void*, uint64_t, int32_t, double, etr_engine_error*) {
      return int32_t{ETR_OK};
    };
    out.split = [](void* context, int32_t, int32_t, double, etr_engine* part, etr_engine_error*) {
      *part = static_cast<Mirrored*>(context)->table();
      return int32_t{ETR_OK};
    };
    out.abort = [](void*, const char*) {};
    out.destroy = [](void* context) { ++static_cast<Mirrored*>(context)->destroyed; };
    return out;
  }
};

class Reentry : public testing::Test {
 protected:
  void SetUp() override {
    const char* device = std::getenv("ECHOTRAIN_TEST_DEVICE");
    etr_runtime_options options{};
    options.struct_size = sizeof options;
    options.device = device;
    ASSERT_OK(etr_runtime_create(&options, &runtime_));
    const std::string text =
        R"({"pipeline": {"stages": [{"stage": "folder", "root": ")" + images_.path() +
        R"("}, {"stage": "label"}, {"stage": "decode"}, {"stage": "batch", "size": 4}, {"stage": "normalize"}]},
        "model": {"layers": [{"layer": "flatten"}, {"layer": "dense", "units": 2}]},
        "optimizer": {"optimizer": "sgd"}, "schedule": {"learning_rate": 0.02},
        "train": {"steps": 1000000000}, "output": {"dir": ""}})";
    ASSERT_OK(etr_job_parse(text.c_str(), nullptr, 0, &job_));
    const etr_engine engine = transport_.table();
    ASSERT_OK(etr_run_start_with_engine(runtime_, job_, ETR_START_NEW, &engine, &run_));
    ASSERT_OK(etr_run_trainer(run_, &trainer_));
    transport_.run = run_;
  }
  void TearDown() override {
    etr_trainer_destroy(trainer_);
    etr_job_destroy(job_);
    etr_runtime_destroy(runtime_);
  }

  int32_t next(double seconds) {
    etr_event event{};
    event.struct_size = sizeof event;
    return etr_run_next_event_within(run_, seconds, &event);
  }

  Images images_;
  Mirrored transport_;
  etr_runtime* runtime_ = nullptr;
  etr_job* job_ = nullptr;
  etr_run* run_ = nullptr;
  etr_trainer* trainer_ = nullptr;
};

TEST_F(Reentry, CallsThatWouldWaitForThemselvesAreRefused) {
  const auto caller = std::this_thread::get_id();
  std::atomic<int> calls{0}, of_other_threads{0};
  transport_.within = [&] {
    ++calls;
    if (std::this_thread::get_id() != caller) ++of_other_threads;
    EXPECT_EQ(next(0), ETR_STATE);
    EXPECT_NE(std::string(etr_last_error()).find("a function of a transport"), std::string::npos)
        << etr_last_error();
    EXPECT_EQ(etr_trainer_save(trainer_, "/nowhere"), ETR_STATE);
    if (of_other_threads == 0) return;
    EXPECT_EQ(etr_run_stop(run_), ETR_OK);
  };
  int32_t status = ETR_OK;
  while (status == ETR_OK) status = next(0);
  EXPECT_EQ(status, ETR_END) << etr_last_error();
  EXPECT_GT(of_other_threads, 0);
  EXPECT_GT(calls, of_other_threads);
  etr_trainer_destroy(std::exchange(trainer_, nullptr));
  EXPECT_EQ(transport_.destroyed, 0) << "the run has it";
  etr_run_destroy(run_);
  EXPECT_EQ(transport_.destroyed, 2) << "the group's, and the one that was split off";
}

// The function waits until the run's thread is not in a call: the last user of the run is then the
// function itself. Its trainer, whose run was not over, is of no use then.
TEST_F(Reentry, DestroyingWithinAFunctionTakesPlaceAfterIt) {
  std::mutex mutex;
  std::condition_variable changed;
  bool outside = false, destroyed = false;
  transport_.within = [&, caller = std::this_thread::get_id()] {
    if (std::this_thread::get_id() == caller) return;
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return outside; })) return;
    if (destroyed) return;
    destroyed = true;
    etr_run_destroy(run_);
    changed.notify_all();
  };
  const auto destroyed_within = [&](std::chrono::milliseconds time) {
    std::unique_lock lock(mutex);
    outside = true;
    changed.notify_all();
    changed.wait_for(lock, time, [&] { return destroyed; });
    outside = false;
    return destroyed;
  };
  do {
    ASSERT_OK(next(0.01));
  } while (!destroyed_within(std::chrono::milliseconds(20)));
  EXPECT_TRUE(etr::test::eventually([&] { return transport_.destroyed == 2; }));
  etr_batch* weights = nullptr;
  EXPECT_EQ(etr_trainer_get_weights(trainer_, nullptr, &weights), ETR_STATE);
}

}  // namespace

// Every call of the Vulkan driver fails once, and the device is lost and hangs at every call: a
// typed error or the same results, nothing in use is destroyed, nothing is left behind, and a run
// whose device was lost ends with the same bits.
#include <gtest/gtest.h>

#include "vulkan_loader.h"
#include "vulkan_offer.h"
#include "workloads.h"

namespace etr::failing {
namespace {

namespace fs = std::filesystem;

constexpr double kHangSeconds = 60;  // of which the loader lets none pass

class Driver final : public Injector {
 public:
  explicit Driver(VulkanFault::Kind kind) : kind_(kind) {}
  ~Driver() override { disarm(); }
  void arm(int64_t call, size_t error) override { failing::arm({kind_, call, error}); }
  void disarm() override { failing::arm({}); }
  int64_t calls() const override { return failing::calls(); }
  size_t errors_of(int64_t call) const override {
    return kind_ == VulkanFault::refuse ? failing::errors_of(call) : 1;
  }
  std::string failed_call() const override { return failing::failed_call(); }
  std::string left_behind() const override { return alive(); }
  std::vector<std::string> take_breaches() override { return failing::take_breaches(); }

 private:
  const VulkanFault::Kind kind_;
};

const std::set<int32_t> kRefusals{ETR_OUT_OF_MEMORY, ETR_DEVICE, ETR_NO_DEVICE, ETR_DEVICE_LOST};

class Vulkan : public testing::Test {
 protected:
  void SetUp() override { write_images(images_); }
  void TearDown() override { EXPECT_EQ(alive(), ""); }
  std::string folder(const std::string& name) const { return dir_.path(name); }

  const test::TempDir dir_;
  const fs::path images_ = dir_.path("images");
  // A driver that says why a device was lost; the loader takes note if it is asked for another.
  const Offering offering_{
      {{"VK_EXT_device_fault"}, {"deviceFault"}, {}, {.description = "a fault of the test"}}};
};

TEST_F(Vulkan, OpeningMayFail) {
  Driver driver(VulkanFault::refuse);
  const auto open_all = [&](std::string& results) -> int32_t {
    int32_t count = 0;
    ETR_TRY(etr_device_count(&count));
    etr_device_info info{};
    info.struct_size = sizeof info;
    ETR_TRY(etr_device_get(0, &info));
    Runtime runtime;
    ETR_TRY(open(runtime, folder("cache")));
    ETR_TRY(etr_runtime_device(runtime.p, &info));
    results = info.name;
    return ETR_OK;
  };
  fail_everywhere(driver, through_c(open_all), {.statuses = kRefusals, .runs = 0});
}

// With kernels that are compiled, and compared with the host, in each run.
TEST_F(Vulkan, KernelsMayFail) {
  Driver driver(VulkanFault::refuse);
  const auto compile = [&](std::string& results) -> int32_t {
    Runtime runtime;
    ETR_TRY(open(runtime, "", 0, /*compare=*/true));
    return train_loop(runtime.p, folder("loop"), results);
  };
  fail_everywhere(driver, through_c(compile), {.statuses = kRefusals, .runs = 25});
}

TEST_F(Vulkan, TrainingMayFail) {
  Driver driver(VulkanFault::refuse);
  Runtime runtime;
  ASSERT_EQ(open(runtime), ETR_OK) << etr_last_error();
  const auto train = [&](std::string& results) {
    return train_loop(runtime.p, folder("loop"), results);
  };
  fail_everywhere(driver, through_c(train), {.statuses = kRefusals, .runs = 300});
}

// What a device that hangs may still use is kept.
bool frees_memory(VulkanFault::Kind kind) { return kind != VulkanFault::hang; }

void lose_in_a_loop(VulkanFault::Kind kind, const std::string& folder) {
  const auto says_why = [&](const Outcome& outcome) {
    if (outcome.status == ETR_OK) return;
    const bool said = outcome.message.ends_with(" (the driver reports: a fault of the test)");
    EXPECT_EQ(said, kind == VulkanFault::lose) << outcome.message;
  };
  Driver driver(kind);
  const auto train = [&](std::string& results) -> int32_t {
    Runtime runtime;
    ETR_TRY(open(runtime, "", kHangSeconds));
    return train_loop(runtime.p, folder, results);
  };
  fail_everywhere(driver, through_c(train),
                  {.statuses = {ETR_DEVICE_LOST},
                   .after = says_why,
                   .runs = 40,
                   .frees_memory = frees_memory(kind)});
}

TEST_F(Vulkan, ADeviceMayBeLostInALoop) { lose_in_a_loop(VulkanFault::lose, folder("loop")); }
TEST_F(Vulkan, ADeviceMayHangInALoop) { lose_in_a_loop(VulkanFault::hang, folder("loop")); }

// A job whose echo node is on the host, or on the device.
class VulkanJob : public Vulkan, public testing::WithParamInterface<bool> {
 protected:
  Outcome run(std::string& results, int32_t start) {
    Runtime runtime;
    const int32_t opened = open(runtime, "", kHangSeconds);
    if (opened < 0) return outcome_of(opened);
    const std::string job = job_on(images_, folder("run"), GetParam());
    const Outcome outcome = run_job(runtime.p, job, start);
    if (outcome.status == ETR_OK) results = tensors(folder("run")) + rows(folder("run"));
    return outcome;
  }
  Outcome run_anew(std::string& results) {
    fs::remove_all(folder("run"));
    return run(results, ETR_START_NEW);
  }

  // What a program does after a failure. A run that has a checkpoint opens a lost device by itself.
  void go_on(VulkanFault::Kind kind, const Outcome& failure) {
    if (failure.status == ETR_OK) return;
    std::string results;
    const Outcome resumed = run(results, ETR_START_RESUME);
    if (resumed.status == ETR_NOT_FOUND) return;  // there was no checkpoint yet
    EXPECT_EQ(kind, VulkanFault::refuse) << "the run did not go on by itself";
    EXPECT_EQ(resumed.status, ETR_OK) << resumed.message;
    EXPECT_TRUE(results == whole_) << "the resumed run differs";
  }

  void fail_in_a_job(VulkanFault::Kind kind) {
    const Outcome undisturbed = run_anew(whole_);
    ASSERT_EQ(undisturbed.status, ETR_OK) << undisturbed.message;
    Driver driver(kind);
    fail_everywhere(
        driver, [&](std::string& results) { return run_anew(results); },
        {.statuses = kind == VulkanFault::refuse ? kRefusals : std::set<int32_t>{ETR_DEVICE_LOST},
         .after = [&](const Outcome& outcome) { go_on(kind, outcome); },
         .runs = 40,
         .frees_memory = frees_memory(kind)});
  }

  std::string whole_;
};

TEST_P(VulkanJob, MayFailAnywhere) { fail_in_a_job(VulkanFault::refuse); }
TEST_P(VulkanJob, GoesOnWhereItsDeviceWasLost) { fail_in_a_job(VulkanFault::lose); }
TEST_P(VulkanJob, GoesOnWhereItsDeviceHangs) { fail_in_a_job(VulkanFault::hang); }

INSTANTIATE_TEST_SUITE_P(Echo, VulkanJob, testing::Bool(), [](const auto& echo) {
  return std::string(echo.param ? "OnTheDevice" : "OnTheHost");
});

}  // namespace
}  // namespace etr::failing

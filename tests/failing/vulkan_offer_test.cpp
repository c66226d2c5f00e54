// What is enabled on drivers that have more than the one here, and what is said of a device that
// such a driver has lost. The first part also runs on drivers that compute nothing.
#include <gtest/gtest.h>

#include <algorithm>

#include "failing/heap.h"
#include "vulkan_loader.h"
#include "vulkan_offer.h"
#include "workloads.h"

namespace etr::failing {
namespace {

using Names = std::set<std::string>;
using gpu::MatrixElement;

const std::string kFault = "VK_EXT_device_fault", kMatrix = "VK_KHR_cooperative_matrix",
                  kBfloat16 = "VK_KHR_shader_bfloat16", kMemoryModel = "VK_KHR_vulkan_memory_model",
                  kFloat16 = "VK_KHR_shader_float16_int8";

gpu::MatrixProperties matrix(MatrixElement element, MatrixElement sum = MatrixElement::float32,
                             int32_t scope = 3) {
  gpu::MatrixProperties row;
  row.MSize = row.NSize = row.KSize = 16;
  row.AType = row.BType = element;
  row.CType = row.ResultType = sum;
  row.scope = scope;
  return row;
}

// With every feature of the structures that are asked for, also those that are of no use.
Offer with_matrices(std::vector<gpu::MatrixProperties> rows) {
  return {{kMatrix, kBfloat16, kMemoryModel, kFloat16},
          {"cooperativeMatrix", "cooperativeMatrixRobustBufferAccess", "shaderBFloat16Type",
           "shaderBFloat16DotProduct", "shaderBFloat16CooperativeMatrix", "vulkanMemoryModel",
           "vulkanMemoryModelDeviceScope", "vulkanMemoryModelAvailabilityVisibilityChains",
           "shaderFloat16", "shaderInt8"},
          std::move(rows),
          {}};
}

Offer without(Offer offer, const std::string& name) {
  EXPECT_EQ(offer.extensions.erase(name) + offer.features.erase(name), 1u) << name;
  return offer;
}

const Names kFloat16Features{"cooperativeMatrix", "vulkanMemoryModel", "shaderFloat16"},
    kBfloat16Features{"cooperativeMatrix", "vulkanMemoryModel", "shaderBFloat16Type",
                      "shaderBFloat16CooperativeMatrix"};

Names both(Names a, const Names& b) {
  a.insert(b.begin(), b.end());
  return a;
}

// A driver that computes nothing makes the device, and it is refused for its limits.
Enabled opened_with(const Offer& offer) {
  const Offering offering(offer);
  Runtime runtime;
  const int32_t status = open(runtime);
  EXPECT_TRUE(status == ETR_OK || status == ETR_UNSUPPORTED) << etr_last_error();
  return last_enabled();
}

TEST(VulkanOffer, WhatIsOfUseIsEnabledAndNothingElse) {
  const auto f16 = matrix(MatrixElement::float16), bf16 = matrix(MatrixElement::bfloat16);
  const Offer all = with_matrices({f16, bf16});
  const struct {
    const char* what;
    Offer offer;
    Names extensions, features;
  } cases[] = {
      {"faults",
       {{kFault}, {"deviceFault", "deviceFaultVendorBinary"}, {}, {}},
       {kFault},
       {"deviceFault"}},
      {"faults, without the feature", {{kFault}, {"deviceFaultVendorBinary"}, {}, {}}, {}, {}},
      {"faults, without the extension", {{}, {"deviceFault"}, {}, {}}, {}, {}},
      {"both formats",
       all,
       {kMatrix, kMemoryModel, kFloat16, kBfloat16},
       both(kFloat16Features, kBfloat16Features)},
      {"float16", with_matrices({f16}), {kMatrix, kMemoryModel, kFloat16}, kFloat16Features},
      {"bfloat16", with_matrices({bf16}), {kMatrix, kMemoryModel, kBfloat16}, kBfloat16Features},
      {"no shaderFloat16",
       without(all, "shaderFloat16"),
       {kMatrix, kMemoryModel, kBfloat16},
       kBfloat16Features},
      {"no extension for float16",
       without(all, kFloat16),
       {kMatrix, kMemoryModel, kBfloat16},
       kBfloat16Features},
      {"no extension for bfloat16",
       without(all, kBfloat16),
       {kMatrix, kMemoryModel, kFloat16},
       kFloat16Features},
      {"bfloat16 but not in matrices",
       without(all, "shaderBFloat16CooperativeMatrix"),
       {kMatrix, kMemoryModel, kFloat16},
       kFloat16Features},
      {"no cooperativeMatrix", without(all, "cooperativeMatrix"), {}, {}},
      {"no extension for matrices", without(all, kMatrix), {}, {}},
      {"no memory model", without(all, "vulkanMemoryModel"), {}, {}},
      {"no extension for the memory model", without(all, kMemoryModel), {}, {}},
      {"other formats, sums and scopes",
       with_matrices({matrix(MatrixElement::float32), matrix(MatrixElement{3}),
                      matrix(MatrixElement::float16, MatrixElement::float16),
                      matrix(MatrixElement::float16, MatrixElement::float32, 2)}),
       {},
       {}},
  };
  const Enabled nothing = opened_with({});
  ASSERT_FALSE(nothing.others.empty()) << "no device was made";
  EXPECT_TRUE(nothing.features.empty());
  for (const auto& one : cases) {
    SCOPED_TRACE(one.what);
    const Enabled enabled = opened_with(one.offer);
    EXPECT_EQ(enabled.extensions, both(nothing.extensions, one.extensions));
    EXPECT_EQ(enabled.features, one.features);
    EXPECT_EQ(enabled.others, nothing.others);
  }
  EXPECT_EQ(take_breaches(), std::vector<std::string>{});
}

// ---- faults -------------------------------------------------------------------------------------

constexpr const char* kPlain = "the device was lost; open it again and load a checkpoint";

Offer with_report(FaultReport report) { return {{kFault}, {"deviceFault"}, {}, std::move(report)}; }

class VulkanReport : public testing::Test {
 protected:
  void TearDown() override {
    arm({});
    EXPECT_EQ(take_breaches(), std::vector<std::string>{});
    EXPECT_EQ(alive(), "");
  }

  // Trains on a device that is lost amid, and returns the error. `fails`: the number, from the
  // last one back, of the allocation that fails; 0: none does.
  Outcome lose(int64_t fails = 0) {
    Runtime runtime;
    const int32_t opened = open(runtime);
    if (opened < 0) return outcome_of(opened);
    std::string results;
    arm({VulkanFault::lose, kCall, 0});
    heap::fail(fails ? allocations_ + 1 - fails : 0, false);
    const Outcome outcome = outcome_of(train_loop(runtime.p, dir_.path("loop"), results));
    if (!fails) allocations_ = heap::allocations();
    heap::fail(0, false);
    arm({});
    return outcome;
  }
  std::string message_of(const FaultReport& report) {
    const Offering offering(with_report(report));
    const Outcome outcome = lose();
    EXPECT_EQ(outcome.status, ETR_DEVICE_LOST);
    return outcome.message;
  }
  // What a driver without the extension leads to.
  std::string plain_message() {
    const Offering offering(Offer{});
    const Outcome outcome = lose();
    EXPECT_EQ(outcome.status, ETR_DEVICE_LOST);
    EXPECT_TRUE(outcome.message.ends_with(kPlain)) << outcome.message;
    return outcome.message;
  }

 private:
  static constexpr int64_t kCall = 100;
  const test::TempDir dir_;
  int64_t allocations_ = 0;
};

VkDeviceFaultVendorInfoEXT vendor(const std::string& description, uint64_t code, uint64_t data) {
  VkDeviceFaultVendorInfoEXT row{{}, code, data};
  std::copy(description.begin(), description.end(), row.description);
  return row;
}

TEST_F(VulkanReport, SaysWhyTheDeviceWasLost) {
  const std::string plain = plain_message();
  FaultReport report;
  report.description = "MMU fault on channel 7";
  report.addresses = {{VK_DEVICE_FAULT_ADDRESS_TYPE_WRITE_INVALID_EXT, 0x7f0000001234, 0x1000},
                      {VK_DEVICE_FAULT_ADDRESS_TYPE_INSTRUCTION_POINTER_FAULT_EXT, 0x40, 1}};
  report.vendors = {vendor("shader engine 2", 0x11, 0xabc), vendor("", 1, 2)};
  report.binary_bytes = 4096;  // of which nothing is asked for
  EXPECT_EQ(message_of(report),
            plain +
                " (the driver reports: MMU fault on channel 7; invalid write at 0x7f0000001234 "
                "(within 0x7f0000001000 to 0x7f0000001fff); instruction pointer of the fault "
                "0x40; shader engine 2: vendor fault code 0x11, data 0xabc; vendor fault code 0x1, "
                "data 0x2)");
  report = {};
  report.addresses = {{VK_DEVICE_FAULT_ADDRESS_TYPE_READ_INVALID_EXT, 0x10, 0},
                      {VK_DEVICE_FAULT_ADDRESS_TYPE_EXECUTE_INVALID_EXT, 0x20, 3},
                      {VK_DEVICE_FAULT_ADDRESS_TYPE_NONE_EXT, ~uint64_t{0}, uint64_t{1} << 63},
                      {static_cast<VkDeviceFaultAddressTypeEXT>(99), 0, 1},
                      {VK_DEVICE_FAULT_ADDRESS_TYPE_READ_INVALID_EXT, 0x30, 1}};
  EXPECT_EQ(message_of(report),
            plain +
                " (the driver reports: invalid read at 0x10; invalid execution at 0x20; address "
                "(type 99) 0x0; 1 more address)");
}

TEST_F(VulkanReport, IsLeftOutWhereTheDriverHasNone) {
  const std::string plain = plain_message();
  FaultReport report;
  EXPECT_EQ(message_of(report), plain);
  report.description = " \n";
  EXPECT_EQ(message_of(report), plain);
  report.description = "some";
  for (const VkResult error : {VK_ERROR_OUT_OF_HOST_MEMORY, VK_ERROR_DEVICE_LOST}) {
    report.counts = error;
    EXPECT_EQ(message_of(report), plain);
    report.counts = VK_SUCCESS;
    report.rows = error;
    EXPECT_EQ(message_of(report), plain);
  }
  report.counts = report.rows = VK_INCOMPLETE;
  EXPECT_EQ(message_of(report), plain + " (the driver reports: some)");
}

TEST_F(VulkanReport, IsOneLineOfBoundedLength) {
  const std::string plain = plain_message();
  FaultReport report;
  report.description = "two\nlines\t\xff" + std::string(1000, 'x');
  const auto full = vendor(std::string(VK_MAX_DESCRIPTION_SIZE, 'y'), ~uint64_t{0}, ~uint64_t{0});
  report.addresses.assign(
      100'000, {VK_DEVICE_FAULT_ADDRESS_TYPE_WRITE_INVALID_EXT, ~uint64_t{0}, uint64_t{1} << 63});
  report.vendors.assign(1000, full);
  const std::string message = message_of(report);
  EXPECT_TRUE(message.starts_with(plain + " (the driver reports: two lines ")) << message;
  EXPECT_EQ(message.find_first_of("\n\t\xff"), std::string::npos) << message;
  EXPECT_NE(message.find("; 99996 more addresses; "), std::string::npos) << message;
  EXPECT_TRUE(message.ends_with("; 996 more vendor fault codes)")) << message;
  EXPECT_LT(message.size(), 2500u);
}

// The loss is told of whether there is memory to tell its reason or not.
TEST_F(VulkanReport, NeedsNoMemory) {
  heap::watch();
  const std::string plain = plain_message();
  FaultReport report;
  report.description = std::string(100, 'x');
  report.vendors = {vendor(std::string(100, 'y'), 1, 2)};
  const std::string whole = message_of(report);
  const Offering offering(with_report(report));
  int lost = 0, without_reason = 0;
  constexpr int64_t kLast = 50;  // of the allocations, among which are all of the report's
  for (int64_t back = 1; back <= kLast && !HasFailure(); ++back) {
    const Outcome outcome = lose(back);
    SCOPED_TRACE(testing::Message() << back << ": " << outcome.message);
    EXPECT_TRUE(outcome.status == ETR_DEVICE_LOST || outcome.status == ETR_OUT_OF_MEMORY);
    if (outcome.status != ETR_DEVICE_LOST) continue;
    ++lost;
    without_reason += outcome.message == plain;
    EXPECT_TRUE(outcome.message == plain || outcome.message == whole ||
                outcome.message == "out of memory");
  }
  EXPECT_GT(lost, 0);
  EXPECT_GT(without_reason, 0) << "no allocation of the report's has failed";
}

}  // namespace
}  // namespace etr::failing

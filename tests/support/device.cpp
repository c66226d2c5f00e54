#include "support/device.h"

#include <cstdlib>
#include <iostream>
#include <map>
#include <set>

#include "core/log.h"

namespace etr::test {
namespace {

std::map<gpu::KernelFamily, std::unique_ptr<gpu::Kernels>>& cache() {
  static std::map<gpu::KernelFamily, std::unique_ptr<gpu::Kernels>> the_cache;
  return the_cache;
}

bool asked(const char* variable) {
  const char* flag = std::getenv(variable);
  return flag && std::string(flag) == "1";
}

// Says once for each kernel that the host cannot run it.
void tell_not_compared(const std::string& message) {
  static std::set<std::string> told;
  const size_t kernel = message.find("kernel '");
  if (message.find("was not compared with the host") != std::string::npos &&
      told.insert(message.substr(kernel)).second)
    std::cerr << message << "\n";
}

// Fails the program if the validation layers reported anything. Closes the devices before exit
// handlers run.
class DeviceEnvironment final : public testing::Environment {
 public:
  void SetUp() override {
    set_log_hook([](LogLevel level, const char* message) {
      if (level >= LogLevel::warning)
        std::cerr << message << "\n";
      else
        tell_not_compared(message);
    });
  }
  void TearDown() override {
    for (const auto& [family, kernels] : cache()) {
      EXPECT_EQ(kernels->device()->validation_messages(), 0) << "the validation layers complained";
      if (asked("ECHOTRAIN_TEST_VALIDATION")) {
        EXPECT_TRUE(kernels->device()->validating());
      }
    }
    cache().clear();
  }
};

[[maybe_unused]] const auto* const kEnvironment =
    testing::AddGlobalTestEnvironment(new DeviceEnvironment);

}  // namespace

gpu::DeviceOptions device_options(gpu::KernelFamily family) {
  gpu::DeviceOptions options;
  if (const char* selector = std::getenv("ECHOTRAIN_TEST_DEVICE")) options.selector = selector;
  options.validation = asked("ECHOTRAIN_TEST_VALIDATION");
  options.family = family;
  if (asked("ECHOTRAIN_TEST_COMPARE")) options.compare = gpu::Compare::dispatches;
  if (asked("ECHOTRAIN_TEST_LOW_LIMITS"))
    options.lowered = {.max_storage_bytes = uint64_t{128} << 20,
                       .max_storage_buffers = 9,
                       .max_shared_bytes = 16 << 10,
                       .subgroups = false,
                       .buffer_addresses = false,
                       .matrix_units = false,
                       .uploads_apart = true};
  return options;
}

gpu::Kernels& kernels(gpu::KernelFamily family) {
  if (const auto found = cache().find(family); found != cache().end()) return *found->second;
  auto opened =
      std::make_unique<gpu::Kernels>(std::make_shared<gpu::Device>(device_options(family)));
  return *cache().emplace(family, std::move(opened)).first->second;
}

std::shared_ptr<gpu::Kernels> open_selected(const std::string& selector) {
  gpu::DeviceOptions options = device_options();
  options.selector = selector;
  return std::make_shared<gpu::Kernels>(std::make_shared<gpu::Device>(options));
}

gpu::DevicePtr device(gpu::KernelFamily family) { return kernels(family).device(); }

std::vector<gpu::KernelFamily> families() {
  std::vector<gpu::KernelFamily> out{gpu::KernelFamily::tiled};
  if (device()->family() == gpu::KernelFamily::cpu) out.push_back(gpu::KernelFamily::cpu);
  if (!device()->info().matrix_units.empty()) out.push_back(gpu::KernelFamily::matrix);
  return out;
}

std::string family_name(gpu::KernelFamily family) {
  const char* const names[] = {"automatic", "cpu", "tiled", "matrix"};
  return names[static_cast<int>(family)];
}

}  // namespace etr::test

#include "gpu/wide_vectors.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "core/error.h"
#include "core/platform.h"

namespace etr::gpu {

int lavapipe_version(const DeviceInfo& device) {
  constexpr std::string_view kLavapipe = "llvmpipe Mesa ";  // and the version: 25.0.7 (LLVM 15.0.6)
  if (!device.driver.starts_with(kLavapipe)) return 0;
  int mesa = 0;
  const char* const end = device.driver.data() + device.driver.size();
  std::from_chars(device.driver.data() + kLavapipe.size(), end, mesa);
  return mesa;
}

bool gains_by_wide_vectors(const DeviceInfo& device) {
  constexpr int kFirstFasterMesa = 25;
  return lavapipe_version(device) >= kFirstFasterMesa;
}

void prefer_wide_cpu_vectors() {
  if (!platform::may_widen_cpu_vectors()) return;
  try {
    const auto devices = list_devices();
    if (std::any_of(devices.begin(), devices.end(), gains_by_wide_vectors))
      platform::widen_cpu_vectors();
  } catch (const Error& error) {
    if (error.code() != Code::no_device) throw;  // without Vulkan there is nothing to prefer
  }
}

}  // namespace etr::gpu

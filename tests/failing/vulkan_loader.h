// A Vulkan loader that fails. The library of this name is loaded before EchoTrain asks for
// libvulkan.so.1, so EchoTrain gets this one. It passes every call on to the system's loader,
// counts those that can fail, and makes one of them fail as the specification allows. It also keeps
// account of objects: what is destroyed twice, too early, or never.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace etr::failing {

// What happens at the call with the number `at`, counted from 1 since arm().
struct VulkanFault {
  enum Kind {
    nothing,
    refuse,  // the call returns the error number `error` of those that it may return
    lose,    // the device is lost: every call that may say so says so, from this one on
    hang,    // the device's queues take work but never finish any, from this call on
  } kind = nothing;
  int64_t at = 0;
  size_t error = 0;  // modulo the number of errors
};

void arm(const VulkanFault& fault);

int64_t calls();            // since arm()
std::string failed_call();  // "" if call `at` was not reached; such as "vkCreateFence: VkResult -1"

// Returns how many errors the call with this number, since arm(), may return.
size_t errors_of(int64_t call);

// What was done wrongly since the last time, such as destroying what is in use.
std::vector<std::string> take_breaches();
// Kinds and numbers of the objects that exist, instances included, such as "1 fence"; "" for none.
// Objects of devices that hang are left out: their driver may still use them.
std::string alive();

}  // namespace etr::failing

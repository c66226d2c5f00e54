#include "vulkan_calls.h"

#include <algorithm>
#include <utility>

namespace etr::failing {

State& state() {
  static State& the_state = *new State;
  return the_state;
}

bool is_stuck(const State& s, VkDevice device) {
  return s.hung.contains(device) &&
         std::any_of(s.pending.begin(), s.pending.end(),
                     [&](const Submission& one) { return one.device == device; });
}

void breach(State& s, std::string text) { s.breaches.push_back(std::move(text)); }

void add(const char* kind, uint64_t handle, VkDevice device) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  Object& object = s.objects[handle];
  object.kind = kind;
  object.device = device;
  ++object.count;
}

void remove(const char* kind, uint64_t handle) {
  if (!handle) return;
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  const auto found = s.objects.find(handle);
  if (found == s.objects.end() || found->second.kind != kind)
    return breach(s, std::string("destroys a ") + kind + " that does not exist");
  if (is_stuck(s, found->second.device))
    breach(s, std::string("destroys a ") + kind + " of a device that hangs");
  for (const Submission& submission : s.pending)
    if (submission.used.contains(handle) || number(submission.fence) == handle)
      breach(s, std::string("destroys a ") + kind + " that the device uses");
  if (--found->second.count == 0) s.objects.erase(found);
}

void arm(const VulkanFault& fault) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  s.fault = fault;
  s.calls = 0;
  s.error_counts.clear();
  s.failed_call.clear();
}

int64_t calls() {
  const std::scoped_lock lock(state().mutex);
  return state().calls;
}

std::string failed_call() {
  const std::scoped_lock lock(state().mutex);
  return state().failed_call;
}

size_t errors_of(int64_t call) {
  const std::scoped_lock lock(state().mutex);
  return state().error_counts.at(static_cast<size_t>(call - 1));
}

std::vector<std::string> take_breaches() {
  const std::scoped_lock lock(state().mutex);
  return std::exchange(state().breaches, {});
}

std::string alive() {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  std::map<std::string, int64_t> counts;
  for (const auto& [handle, object] : s.objects) {
    if (!is_stuck(s, object.device))
      counts[object.kind] += object.count;
    else if (object.kind == "device")
      --counts["instance"];  // it cannot go before its device
  }
  std::string out;
  for (const auto& [kind, count] : counts)
    if (count != 0) out += (out.empty() ? "" : ", ") + std::to_string(count) + " " + kind;
  return out;
}

}  // namespace etr::failing

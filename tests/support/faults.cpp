#include "support/faults.h"

#include <atomic>
#include <type_traits>

namespace etr::test {
namespace {

struct {
  std::atomic<int> calls{0};
  int fail_at = 0;  // 0: never
  bool for_ever = false;
  VkResult result = VK_SUCCESS;
} plan;

bool trips() {
  const int call = ++plan.calls;
  return plan.fail_at > 0 && (call == plan.fail_at || (plan.for_ever && call > plan.fail_at));
}

// Stands in for one function of the table.
template <auto Member>
struct Hook;
template <typename... A, VkResult (VKAPI_PTR* gpu::VulkanApi::*Member)(A...)>
struct Hook<Member> {
  static inline VkResult(VKAPI_PTR* real)(A...) = nullptr;

  static VKAPI_ATTR VkResult VKAPI_CALL call(A... arguments) {
    if constexpr (std::is_same_v<VkResult(VKAPI_PTR*)(A...), PFN_vkWaitForFences>) {
      if (!trips()) return real(arguments...);
      wait_to_the_end(arguments...);  // nothing may be destroyed while it runs
      return plan.result;
    }
    return trips() ? plan.result : real(arguments...);
  }
  static void wait_to_the_end(VkDevice device, uint32_t count, const VkFence* fences, VkBool32 all,
                              uint64_t) {
    real(device, count, fences, all, UINT64_MAX);
  }
  static void install(gpu::VulkanApi& api) {
    real = api.*Member;
    api.*Member = call;
  }
  static void remove(gpu::VulkanApi& api) { api.*Member = real; }
};

#define ETR_FALLIBLE(X)                                                                            \
  X(CreateBuffer)                                                                                  \
  X(AllocateMemory)                                                                                \
  X(BindBufferMemory)                                                                              \
  X(MapMemory)                                                                                     \
  X(CreateShaderModule) X(CreateDescriptorSetLayout) X(CreatePipelineLayout)                       \
      X(CreateComputePipelines) X(CreateDescriptorPool) X(AllocateDescriptorSets)                  \
          X(CreateCommandPool) X(AllocateCommandBuffers) X(BeginCommandBuffer) X(EndCommandBuffer) \
              X(CreateQueryPool) X(GetQueryPoolResults) X(CreateFence) X(ResetFences)              \
                  X(WaitForFences) X(QueueSubmit)

}  // namespace

Faults::Faults(gpu::Device& device) : api_(device.vk().api) {
  off();
#define X(name) Hook<&gpu::VulkanApi::name>::install(api_);
  ETR_FALLIBLE(X)
#undef X
}

Faults::~Faults() {
#define X(name) Hook<&gpu::VulkanApi::name>::remove(api_);
  ETR_FALLIBLE(X)
#undef X
}

void Faults::fail_at(int call, VkResult result, bool for_ever) {
  plan.calls = 0;
  plan.result = result;
  plan.for_ever = for_ever;
  plan.fail_at = call;
}

void Faults::off() {
  plan.calls = 0;
  plan.fail_at = 0;
}

int Faults::calls() const { return plan.calls; }

}  // namespace etr::test

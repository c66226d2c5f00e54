// The parts of VK_KHR_cooperative_matrix and VK_KHR_shader_bfloat16 that the runtime uses; older
// Vulkan headers lack both. Names and numbers are the specification's. Internal to gpu/.
#pragma once

#include "gpu/vulkan_api.h"

namespace etr::gpu {

constexpr const char* kMatrixExtension = "VK_KHR_cooperative_matrix";
constexpr const char* kBfloat16Extension = "VK_KHR_shader_bfloat16";

// VkPhysicalDeviceCooperativeMatrixFeaturesKHR
struct MatrixFeatures {
  VkStructureType sType = static_cast<VkStructureType>(1000506000);
  void* pNext = nullptr;
  VkBool32 cooperativeMatrix = VK_FALSE;
  VkBool32 cooperativeMatrixRobustBufferAccess = VK_FALSE;
};

// VkPhysicalDeviceShaderBfloat16FeaturesKHR
struct Bfloat16Features {
  VkStructureType sType = static_cast<VkStructureType>(1000141000);
  void* pNext = nullptr;
  VkBool32 shaderBFloat16Type = VK_FALSE;
  VkBool32 shaderBFloat16DotProduct = VK_FALSE;
  VkBool32 shaderBFloat16CooperativeMatrix = VK_FALSE;
};

// VkComponentTypeKHR
enum class MatrixElement : int32_t { float16 = 0, float32 = 1, bfloat16 = 1000141000 };

// VkCooperativeMatrixPropertiesKHR
struct MatrixProperties {
  VkStructureType sType = static_cast<VkStructureType>(1000506001);
  void* pNext = nullptr;
  uint32_t MSize = 0, NSize = 0, KSize = 0;
  MatrixElement AType{}, BType{}, CType{}, ResultType{};
  VkBool32 saturatingAccumulation = VK_FALSE;
  int32_t scope = 0;  // VkScopeKHR; 3: a subgroup
};

using GetMatrixProperties = VkResult(VKAPI_PTR*)(VkPhysicalDevice, uint32_t*, MatrixProperties*);

}  // namespace etr::gpu

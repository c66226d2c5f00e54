#include "gpu/memory.h"

#include <algorithm>

#include "core/error.h"
#include "core/platform.h"
#include "gpu/vulkan_device.h"

namespace etr::gpu {
namespace {

// Blocks grow with the arena: small models use little memory, large ones need few allocations.
constexpr uint64_t kSmallestBlock = uint64_t{64} << 10, kLargestBlock = uint64_t{16} << 20;

// Alignment of imported memory: the most that drivers may require.
constexpr uint64_t kImportAlignment = kSmallestBlock;

bool is_on_device(MemoryUse use) { return use == MemoryUse::device || use == MemoryUse::landing; }

VkMemoryPropertyFlags flags_for(const VulkanDevice& vk, MemoryUse use) {
  constexpr VkMemoryPropertyFlags kMapped =
      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  if (is_on_device(use)) return VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  constexpr VkMemoryPropertyFlags kCached = kMapped | VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
  return use == MemoryUse::readback && vk.find_memory_type(~0u, kCached) ? kCached : kMapped;
}

constexpr VkExternalMemoryHandleTypeFlagBits kHostMemory =
    VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;

uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

}  // namespace

Buffer Buffer::slice(uint64_t begin, uint64_t bytes) const {
  if (begin > size_bytes || bytes > size_bytes - begin)
    fail(Code::internal, "slice [", begin, ", +", bytes, ") of a buffer of ", size_bytes, " bytes");
  return {
      handle, offset + begin, bytes, address ? address + begin : 0, host ? host + begin : nullptr,
      planned};
}

// One VkBuffer with its own memory.
struct Arena::Block {
  Block(VulkanDevice& device, MemoryUse use, uint64_t bytes, HostPages* of_host)
      : vk(device), size(bytes), source(of_host) {
    try {
      create(use);
    } catch (...) {
      release();
      throw;
    }
  }
  ~Block() { release(); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void create(MemoryUse use) {
    const bool addresses = vk.physical.info.buffer_addresses;
    if (size > vk.physical.info.max_buffer_bytes)
      fail(Code::out_of_memory, "device '", vk.physical.info.name, "' cannot make a buffer of ",
           size, " bytes, only of ", vk.physical.info.max_buffer_bytes,
           " (maxBufferSize); use a smaller batch or model");
    VkBufferCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
    info.size = size;
    info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
                 VK_BUFFER_USAGE_TRANSFER_DST_BIT;
    if (addresses) info.usage |= VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;
    // Copies on another queue family access these buffers.
    const uint32_t families[] = {vk.physical.queue_family, vk.upload_family()};
    if ((use == MemoryUse::upload || use == MemoryUse::landing) && vk.upload_queue &&
        families[0] != families[1]) {
      info.sharingMode = VK_SHARING_MODE_CONCURRENT;
      info.queueFamilyIndexCount = 2;
      info.pQueueFamilyIndices = families;
    }
    const bool own_pages = wants_own_pages();
    const VkExternalMemoryBufferCreateInfo external{
        VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO, nullptr, kHostMemory};
    if (own_pages) info.pNext = &external;
    vk.check(vk.api.CreateBuffer(vk.handle, &info, nullptr, &buffer), "vkCreateBuffer");

    VkMemoryRequirements needs;
    vk.api.GetBufferMemoryRequirements(vk.handle, buffer, &needs);
    VkMemoryAllocateFlagsInfo flags{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO};
    flags.flags = addresses ? VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT : 0;
    VkMemoryAllocateInfo allocate{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO, &flags, needs.size,
                                  vk.memory_type(needs.memoryTypeBits, flags_for(vk, use))};
    VkImportMemoryHostPointerInfoEXT import{VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
                                            nullptr, kHostMemory, nullptr};
    if (own_pages && import_pages(needs, import, allocate)) flags.pNext = &import;
    take_memory(allocate.allocationSize);
    const VkResult result = vk.api.AllocateMemory(vk.handle, &allocate, nullptr, &memory);
    if (result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY)
      fail(Code::out_of_memory, "device '", vk.physical.info.name, "' cannot allocate ", size,
           " bytes; use a smaller batch or model");
    vk.check(result, "vkAllocateMemory");
    vk.check(vk.api.BindBufferMemory(vk.handle, buffer, memory, 0), "vkBindBufferMemory");
    if (!is_on_device(use)) {
      void* mapped = nullptr;
      vk.check(vk.api.MapMemory(vk.handle, memory, 0, VK_WHOLE_SIZE, 0, &mapped), "vkMapMemory");
      host = pages ? pages : static_cast<std::byte*>(mapped);
    }
    if (addresses) {
      const VkBufferDeviceAddressInfo query{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, nullptr,
                                            buffer};
      address = vk.api.GetBufferDeviceAddress(vk.handle, &query);
    }
  }

  // A CPU driver backs its memory with small pages, like those of a file. A step walks through tens
  // of megabytes and would miss the TLB all the time.
  bool wants_own_pages() const {
    const DeviceInfo& device = vk.physical.info;
    return device.kind == DeviceKind::cpu && device.imports_memory &&
           (source || size >= platform::kHugePage);
  }

  bool import_pages(const VkMemoryRequirements& needs, VkImportMemoryHostPointerInfoEXT& import,
                    VkMemoryAllocateInfo& allocate) {
    if (source) {
      pages_bytes = align_up(needs.size, kImportAlignment);
      pages = source->take(pages_bytes);
    } else {
      pages_bytes = align_up(needs.size, platform::kHugePage);
      pages = platform::map_huge_memory(pages_bytes);
      if (!pages) return false;
    }
    VkMemoryHostPointerPropertiesEXT fit{VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
    vk.check(vk.api.GetMemoryHostPointerPropertiesEXT(vk.handle, kHostMemory, pages, &fit),
             "vkGetMemoryHostPointerPropertiesEXT");
    const auto type = vk.find_memory_type(needs.memoryTypeBits & fit.memoryTypeBits, 0);
    if (!type) {
      drop_pages();
      return false;
    }
    import.pHostPointer = pages;
    allocate.memoryTypeIndex = *type;
    allocate.allocationSize = pages_bytes;
    return true;
  }

  void take_memory(uint64_t bytes) {
    const uint64_t before = vk.memory_taken.fetch_add(bytes);
    taken = bytes;
    if (vk.memory_limit && before + bytes > vk.memory_limit)
      fail(Code::out_of_memory, "the memory limit of ", vk.memory_limit, " bytes on device '",
           vk.physical.info.name, "' leaves no room for ", bytes, " more bytes beside the ", before,
           " in use; use a smaller batch or model, set 'recompute' in the model, or raise the "
           "limit");
  }

  void release() {
    vk.memory_taken -= taken;
    if (vk.abandoned) return;
    if (buffer) vk.api.DestroyBuffer(vk.handle, buffer, nullptr);
    if (memory) vk.api.FreeMemory(vk.handle, memory, nullptr);
    drop_pages();
  }

  void drop_pages() {
    if (pages && !source) platform::unmap_memory(pages, pages_bytes);
    pages = nullptr;
  }

  VulkanDevice& vk;
  uint64_t size;
  uint64_t used = 0, taken = 0;
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  std::byte* host = nullptr;
  HostPages* source;
  std::byte* pages = nullptr;  // pages that the driver works on, our own or the source's
  uint64_t pages_bytes = 0;
  uint64_t address = 0;
};

Arena::Arena(DevicePtr device, MemoryUse use) : device_(std::move(device)), use_(use) {}
Arena::Arena(DevicePtr device, MemoryUse use, HostPages& pages)
    : device_(std::move(device)), use_(use), pages_(&pages) {}
Arena::~Arena() = default;
Arena::Arena(Arena&&) noexcept = default;

void check_bindable(const Device& device, uint64_t size_bytes) {
  if (size_bytes > device.max_tensor_bytes())
    fail(Code::unsupported, "a tensor of ", size_bytes, " bytes is larger than device '",
         device.info().name, "' can bind (", device.max_tensor_bytes(),
         " bytes); use a smaller batch");
}

Buffer Arena::allocate(uint64_t size_bytes) {
  check_bindable(*device_, size_bytes);
  return allocate_whole(size_bytes);
}

Buffer Arena::allocate_whole(uint64_t size_bytes) {
  VulkanDevice& vk = device_->vk();
  const uint64_t bytes = align_up(std::max<uint64_t>(size_bytes, 4), vk.storage_alignment);
  if (blocks_.empty() || blocks_.back()->size - blocks_.back()->used < bytes)
    blocks_.push_back(std::make_unique<Block>(
        vk, use_, std::max(bytes, std::clamp(reserved_bytes(), kSmallestBlock, kLargestBlock)),
        pages_));
  Block& block = *blocks_.back();
  const uint64_t offset = block.used;
  block.used += bytes;
  return {block.buffer,
          offset,
          align_up(std::max<uint64_t>(size_bytes, 4), 4),
          block.address ? block.address + offset : 0,
          block.host ? block.host + offset : nullptr,
          0};
}

uint64_t Arena::reserved_bytes() const {
  uint64_t total = 0;
  for (const auto& block : blocks_) total += block->size;
  return total;
}

}  // namespace etr::gpu

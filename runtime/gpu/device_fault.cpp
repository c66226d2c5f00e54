#include "gpu/device_fault.h"

#include <algorithm>
#include <array>
#include <bit>

#include "core/error.h"
#include "core/text.h"

namespace etr::gpu {
namespace {

constexpr uint32_t kMostRows = 4;  // of addresses, and of vendor fault codes, in a message

std::string hex(uint64_t value) { return cat("0x", std::hex, value); }

// Drivers may fill the whole array, without a NUL.
std::string line_of(const char (&text)[VK_MAX_DESCRIPTION_SIZE]) {
  std::string out(std::begin(text), std::find(std::begin(text), std::end(text), '\0'));
  for (char& c : out)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  return std::string(trim(out));
}

std::string what_at(VkDeviceFaultAddressTypeEXT type) {
  switch (type) {
    case VK_DEVICE_FAULT_ADDRESS_TYPE_READ_INVALID_EXT: return "invalid read at";
    case VK_DEVICE_FAULT_ADDRESS_TYPE_WRITE_INVALID_EXT: return "invalid write at";
    case VK_DEVICE_FAULT_ADDRESS_TYPE_EXECUTE_INVALID_EXT: return "invalid execution at";
    case VK_DEVICE_FAULT_ADDRESS_TYPE_INSTRUCTION_POINTER_UNKNOWN_EXT: return "instruction pointer";
    case VK_DEVICE_FAULT_ADDRESS_TYPE_INSTRUCTION_POINTER_INVALID_EXT:
      return "invalid instruction pointer";
    case VK_DEVICE_FAULT_ADDRESS_TYPE_INSTRUCTION_POINTER_FAULT_EXT:
      return "instruction pointer of the fault";
    default: return cat("address (type ", static_cast<int>(type), ")");
  }
}

std::string text_of(const VkDeviceFaultAddressInfoEXT& row) {
  if (row.addressType == VK_DEVICE_FAULT_ADDRESS_TYPE_NONE_EXT) return {};  // no address
  const std::string out = cat(what_at(row.addressType), " ", hex(row.reportedAddress));
  if (row.addressPrecision <= 1 || !std::has_single_bit(row.addressPrecision)) return out;
  const uint64_t within = row.addressPrecision - 1;
  return cat(out, " (within ", hex(row.reportedAddress & ~within), " to ",
             hex(row.reportedAddress | within), ")");
}

std::string text_of(const VkDeviceFaultVendorInfoEXT& row) {
  const std::string description = line_of(row.description);
  return cat(description, description.empty() ? "vendor fault code " : ": vendor fault code ",
             hex(row.vendorFaultCode), ", data ", hex(row.vendorFaultData));
}

void append(std::string& out, const std::string& part) {
  if (!part.empty()) out += (out.empty() ? "" : "; ") + part;
}

template <typename Row>
void append_rows(std::string& out, const std::array<Row, kMostRows>& rows, uint32_t given,
                 uint32_t known, std::string_view one, std::string_view more) {
  const uint32_t shown = std::min(given, kMostRows);
  for (uint32_t i = 0; i < shown; ++i) append(out, text_of(rows[i]));
  if (shown == kMostRows && known > shown) append(out, counted(known - shown, one, more));
}

}  // namespace

std::string device_fault(const VulkanApi& api, VkDevice device) noexcept {
  try {
    VkDeviceFaultCountsEXT counts{VK_STRUCTURE_TYPE_DEVICE_FAULT_COUNTS_EXT};
    if (api.GetDeviceFaultInfoEXT(device, &counts, nullptr) < 0) return {};
    const VkDeviceFaultCountsEXT known = counts;
    counts.addressInfoCount = std::min(counts.addressInfoCount, kMostRows);
    counts.vendorInfoCount = std::min(counts.vendorInfoCount, kMostRows);
    counts.vendorBinarySize = 0;  // deviceFaultVendorBinary is not enabled
    std::array<VkDeviceFaultAddressInfoEXT, kMostRows> addresses{};
    std::array<VkDeviceFaultVendorInfoEXT, kMostRows> vendors{};
    VkDeviceFaultInfoEXT info{VK_STRUCTURE_TYPE_DEVICE_FAULT_INFO_EXT};
    info.pAddressInfos = addresses.data();
    info.pVendorInfos = vendors.data();
    // VK_INCOMPLETE, where rows were left out, is no error.
    if (api.GetDeviceFaultInfoEXT(device, &counts, &info) < 0) return {};

    std::string out;
    append(out, line_of(info.description));
    append_rows(out, addresses, counts.addressInfoCount, known.addressInfoCount, "more address",
                "more addresses");
    append_rows(out, vendors, counts.vendorInfoCount, known.vendorInfoCount, "more vendor fault code",
                "more vendor fault codes");
    return out.empty() ? out : cat(" (the driver reports: ", out, ")");
  } catch (...) {
    return {};
  }
}

}  // namespace etr::gpu

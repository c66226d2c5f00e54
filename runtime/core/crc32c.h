// CRC-32C (Castagnoli, polynomial 0x1EDC6F41, reflected), as RFC 3720 defines it. Guards checkpoint
// files and frames TensorBoard records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace etr {

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t seed = 0);

}  // namespace etr

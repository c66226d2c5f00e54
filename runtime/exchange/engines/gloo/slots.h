// How Gloo's slots are used. Gloo's own operations have 0x01 to 0x08 in the first byte.
#pragma once

#include <cstdint>

namespace etr::exchange {

inline uint64_t message_slot(uint32_t tag) { return (uint64_t{0x40} << 56) | tag; }
constexpr uint64_t kNoticeSlot = uint64_t{0x41} << 56;

}  // namespace etr::exchange

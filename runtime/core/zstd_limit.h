// What a zstd frame can hold.
#pragma once

#include <cstdint>

namespace etr {

// Bytes of content for each byte of a frame, at most: a block of 128 KB takes 4.
constexpr uint64_t kMostOfZstd = 32768;

}  // namespace etr

// The maximum compression ratio of zstd.
#pragma once

#include <cstdint>

namespace etr {

// The maximum number of content bytes per frame byte: a block of 128 KB takes at least 4 bytes.
constexpr uint64_t kMostOfZstd = 32768;

}  // namespace etr

// Lists of numbers as short text, for saved positions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace etr {

// Variable-length bytes, compressed (zstd), in base64. A million small numbers of low entropy take some
// hundred kilobytes; order rising lists as differences first.
std::string pack_numbers(std::span<const uint64_t> numbers);

// Throws Error(corrupt_data) where `text` is not what pack_numbers wrote.
std::vector<uint64_t> unpack_numbers(std::string_view text);

}  // namespace etr

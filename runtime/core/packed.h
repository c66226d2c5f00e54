// Lists of numbers as compact text, for saved positions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace etr {

// Encodes numbers as variable-length bytes, compressed with zstd, in base64. A million small
// numbers of low entropy take a few hundred kilobytes. Store ascending lists as differences.
std::string pack_numbers(std::span<const uint64_t> numbers);

// Throws Error(corrupt_data) if `text` was not written by pack_numbers.
std::vector<uint64_t> unpack_numbers(std::string_view text);

}  // namespace etr

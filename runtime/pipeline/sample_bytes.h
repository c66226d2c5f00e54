// A sample as bytes on a disk: a head that says what it is, then the values of its fields, one after the other.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "pipeline/item.h"

namespace etr::pipeline {

// Record, origin, and each field's name, type and shape. All integers are little endian; texts have a length of 4 bytes in front.
std::vector<std::byte> sample_head(const Item& item);

// Sets origin and fields, whose values are still to be read; `bytes` is what they take. Error(corrupt_data) where this is no head,
// of another record or of other values.
void read_sample_head(std::span<const std::byte> head, uint64_t bytes, Item& item);

}  // namespace etr::pipeline

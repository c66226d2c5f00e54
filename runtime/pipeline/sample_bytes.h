// Serialises a sample: a head that describes it, then the concatenated values of its fields.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "pipeline/item.h"

namespace etr::pipeline {

// The head: record, origin, and each field's name, type and shape. Integers are little endian;
// strings are preceded by a 4-byte length.
std::vector<std::byte> sample_head(const Item& item);

// Sets origin and fields, whose values are read separately; `bytes` is their total size. Throws
// Error(corrupt_data) if the head is damaged or belongs to another record or size.
void read_sample_head(std::span<const std::byte> head, uint64_t bytes, Item& item);

}  // namespace etr::pipeline

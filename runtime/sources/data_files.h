// What the data of a source is, wherever it lies: see pipeline::Source::data().
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/json_fwd.h"

namespace etr::sources {

// Files by their names below the folder that they have in common, in the order in which they are read. `sizes`: with the bytes
// of those that lie on a disk; without, where there is a file for each sample and asking for all would take its time.
Json describe_files(std::span<const std::string> paths, bool sizes = true);

// When each was last changed, or of many files a digest: see pipeline::Source::changed().
Json times_of(std::span<const std::string> paths);

// Of a file that is a record: its size, its time and `more`, in a number above 0. See pipeline::Source::stamp().
uint64_t stamp_of(const std::string& path, std::string_view more = {});

}  // namespace etr::sources

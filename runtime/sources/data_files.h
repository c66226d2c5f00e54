// Identifies a source's data, wherever it is stored: see pipeline::Source::data().
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/json_fwd.h"

namespace etr::sources {

// Describes files in reading order, by their names relative to their common folder. `sizes`:
// include the sizes of files on the disk. Without sizes for sources with a file per sample, where
// querying all would take long.
Json describe_files(std::span<const std::string> paths, bool sizes = true);

// The modification times of the files, or a digest for many files: see pipeline::Source::changed().
Json times_of(std::span<const std::string> paths);

// Combines size, time and `more` of a file that is a record into a positive number. See
// pipeline::Source::stamp().
uint64_t stamp_of(const std::string& path, std::string_view more = {});

}  // namespace etr::sources

// Packs a folder of images into shards.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/options.h"
#include "sources/class_folders.h"

namespace etr::sources {

Schema pack_schema();

struct PackResult {
  int64_t samples = 0, bytes = 0;    // bytes: of the images as they were
  int64_t packed_bytes = 0;          // of the shards
  int64_t validation_samples = 0;    // of the samples, those that were set aside
  std::vector<std::string> shards;   // those for validation come last
  std::vector<std::string> classes;  // in the order of their numbers
  std::string classes_file;
  std::vector<Skipped> skipped;
};

// root/CLASS/NAME.EXT into PREFIX-000000.tar.zst, .tar or .ets and so on; samples are shuffled over all shards, and CLASS/NAME is
// the key. The folder of PREFIX, which must lie outside of root, is made if it is missing, and gets classes.txt; where that file
// exists, its numbers count. On an error no shard of this packing is left. `progress(done, total)` is called now and then;
// returning false stops with Error(cancelled).
PackResult pack_folder(const std::string& root, const std::string& prefix, const Options& options,
                       const std::function<bool(int64_t done, int64_t total)>& progress);

}  // namespace etr::sources

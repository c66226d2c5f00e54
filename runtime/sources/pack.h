// Packs a folder of images into shards.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/options.h"

namespace etr::sources {

Schema pack_schema();

struct PackResult {
  int64_t samples = 0, bytes = 0;  // bytes: of the images as they were
  int64_t packed_bytes = 0;        // of the shards
  std::vector<std::string> shards;
  std::vector<std::string> classes;  // in the order of their numbers
};

// root/CLASS/NAME.EXT into PREFIX-000000.tar.zst, .tar or .ets and so on; samples are shuffled over all
// shards. `progress(done, total)` is called now and then; returning false stops with Error(cancelled).
PackResult pack_folder(const std::string& root, const std::string& prefix, const Options& options,
                       const std::function<bool(int64_t done, int64_t total)>& progress);

}  // namespace etr::sources

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
  int64_t samples = 0, bytes = 0;    // bytes: of the original images
  int64_t packed_bytes = 0;          // size of the shards
  int64_t validation_samples = 0;    // of the samples, those set aside for validation
  std::vector<std::string> shards;   // validation shards come last
  std::vector<std::string> classes;  // in the order of their numbers
  std::string classes_file;
  std::vector<Skipped> skipped;
};

// Packs root/CLASS/NAME.EXT into PREFIX-000000.tar.zst, .tar or .ets and so on. Samples are
// shuffled over all shards; the key is CLASS/NAME. Creates the folder of PREFIX, which must be
// outside of root, and writes classes.txt there; an existing classes.txt determines the class
// numbers. On an error all shards of this packing are removed. `progress(done, total)` is called
// now and then; returning false stops with Error(cancelled).
PackResult pack_folder(const std::string& root, const std::string& prefix, const Options& options,
                       const std::function<bool(int64_t done, int64_t total)>& progress);

}  // namespace etr::sources

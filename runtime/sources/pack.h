// Packs a folder of images into WebDataset shards.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace etr::sources {

struct PackOptions {
  std::string root;    // root/CLASS/NAME.png
  std::string prefix;  // shards are PREFIX-000000.tar.zst, ...
  int64_t samples_per_shard = 1000;
  int zstd_level = 3;  // 0 writes plain .tar
  uint64_t seed = 0;   // samples are shuffled over all shards
};

struct PackResult {
  int64_t samples = 0, bytes = 0;
  std::vector<std::string> shards;
  std::vector<std::string> classes;  // in the order of their numbers
};

// `progress(done, total)` is called now and then; returning false stops with Error(cancelled).
PackResult pack_folder(const PackOptions& options,
                       const std::function<bool(int64_t done, int64_t total)>& progress);

}  // namespace etr::sources

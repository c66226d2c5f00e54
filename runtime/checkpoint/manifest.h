// A checkpoint's manifest.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json_fwd.h"

namespace etr::checkpoint {

constexpr const char* kManifestName = "manifest.json";

struct ManifestFile {
  std::string name;
  uint64_t bytes = 0;
  uint32_t crc32c = 0;
};

struct Manifest {
  std::string folder;
  uint64_t step = 0;
  uint64_t generation = 0;  // 0: written by a version without generations
  std::vector<ManifestFile> files;
};

Json manifest_json(const Manifest& manifest);

// Throws Error(not_found) if there is no manifest, Error(io) if it cannot be read,
// Error(corrupt_data) that names the file if it is damaged.
Manifest read_manifest(const std::string& folder);

// Says which file next to the manifest is missing or has the wrong length; "" if none.
std::string missing_of(const Manifest& manifest);

}  // namespace etr::checkpoint

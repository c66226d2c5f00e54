// What a checkpoint's manifest.json says.
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
  uint64_t generation = 0;  // 0: written by a version that had none
  std::vector<ManifestFile> files;
};

Json manifest_json(const Manifest& manifest);

// Throws Error(io) where there is none, Error(corrupt_data) that names the file where it is damaged.
Manifest read_manifest(const std::string& folder);

// Why the files beside the manifest cannot be its own: one is missing or has another length. "" where they can.
std::string missing_of(const Manifest& manifest);

}  // namespace etr::checkpoint

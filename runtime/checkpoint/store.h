// A directory of checkpoints.
//
//   DIR/step-000000001200/manifest.json     {"step", "files": {"NAME": {"bytes", "crc32c"}}}
//                         NAME ...          weights.safetensors, optimizer.safetensors, state.json
//
// A checkpoint is written beside the others under a temporary name, flushed to the disk, then
// renamed: it is there whole or not at all. The two newest are kept.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace etr::checkpoint {

using Files = std::map<std::string, std::vector<std::byte>>;

struct Loaded {
  uint64_t step = 0;
  Files files;
  std::string path;
};

class Store {
 public:
  explicit Store(std::string directory, int keep = 2)
      : directory_(std::move(directory)), keep_(keep) {}

  // Throws Error(io). Returns the checkpoint's path.
  std::string save(uint64_t step, const Files& files) const;

  // The newest checkpoint whose checksums match; damaged ones are passed over with a log line.
  // Nothing where there is no checkpoint; Error(corrupt_data) where all are damaged.
  std::optional<Loaded> load_latest() const;

 private:
  std::string directory_;
  int keep_;
};

// One checkpoint directory. Throws Error(not_found / corrupt_data) that names the file.
Loaded load_checkpoint(const std::string& path);

}  // namespace etr::checkpoint

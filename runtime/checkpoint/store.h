// A directory of checkpoints.
//
//   DIR/step-000000001200/manifest.json  {"step", "generation",
//                                        "files": {"NAME": {"bytes", "crc32c"}}}
//                         NAME ...       weights.safetensors, optimizer.safetensors, state.json
//
// A checkpoint is written under a temporary name, flushed to the disk, then renamed, so it is there
// entirely or not at all. Its generation is one more than the highest in the directory, so the
// newest checkpoint is the one written last, whatever its step. Checkpoints without a generation,
// from older versions, come before all others, ordered by step. The two newest are kept. Other
// content of the directory, including damaged checkpoints, is ignored and not touched.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_fwd.h"

namespace etr::checkpoint {

using Files = std::map<std::string, std::vector<std::byte>>;

struct Loaded {
  uint64_t step = 0;
  Files files;
  std::string path;
};

void put_text(Files& files, const std::string& name, std::string_view text);

// Throws Error(corrupt_data) that begins with `origin` if the file is missing or not JSON.
Json json_of(const Files& files, const std::string& name, const std::string& origin);

class Store {
 public:
  explicit Store(std::string directory, int keep = 2)
      : directory_(std::move(directory)), keep_(keep) {}

  // Returns the checkpoint's path. If the step already exists, the name gets a suffix: "-2". Throws
  // Error(io), and Error(state) while another process or thread saves there.
  std::string save(uint64_t step, const Files& files) const;

  // Loads the newest checkpoint with matching checksums. Skips damaged ones with a log line.
  // Returns nothing if there is no checkpoint. Throws Error(corrupt_data) if all are damaged.
  std::optional<Loaded> load_latest() const;

  // The step of the newest checkpoint that is complete, judged by the lengths of its files.
  std::optional<uint64_t> newest_step() const;

  // Returns whether any of its checkpoints has a file of this name.
  bool has(std::string_view file) const;

  // Throws Error(state) if the path exists but is not a directory.
  void check_usable() const;

  // Throws Error(state) that names what clear() would have to remove but save() cannot have
  // written.
  void check_clearable() const;

  // Removes the files named in manifests, the manifests, and unfinished writes. Logs what remains.
  void clear() const;

 private:
  std::string directory_;
  int keep_;
};

// Loads one checkpoint directory. Throws Error(not_found / corrupt_data) that names the file.
Loaded load_checkpoint(const std::string& path);

}  // namespace etr::checkpoint

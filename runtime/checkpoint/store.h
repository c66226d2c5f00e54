// A directory of checkpoints.
//
//   DIR/step-000000001200/manifest.json     {"step", "generation", "files": {"NAME": {"bytes", "crc32c"}}}
//                         NAME ...          weights.safetensors, optimizer.safetensors, state.json
//
// A checkpoint is written beside the others under a temporary name, flushed to the disk, then
// renamed: it is there whole or not at all. Its generation is one more than the highest in the directory,
// so the newest is the one that was written last, whatever its step; checkpoints of versions that wrote no
// generation come before all others, in the order of their steps. The two newest are kept. What else lies
// in the directory, damaged checkpoints too, counts for nothing and is not touched.
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

// Error(corrupt_data) that begins with `origin` where the file is missing or no JSON.
Json json_of(const Files& files, const std::string& name, const std::string& origin);

class Store {
 public:
  explicit Store(std::string directory, int keep = 2)
      : directory_(std::move(directory)), keep_(keep) {}

  // Throws Error(io), and Error(state) while another process or thread saves there. Returns the checkpoint's path; where its
  // step is there already, the name gets a number: "-2".
  std::string save(uint64_t step, const Files& files) const;

  // The newest checkpoint whose checksums match; damaged ones are passed over with a log line.
  // Nothing where there is no checkpoint; Error(corrupt_data) where all are damaged.
  std::optional<Loaded> load_latest() const;

  // The step of the newest checkpoint that is whole, as far as the lengths of its files tell.
  std::optional<uint64_t> newest_step() const;

  // Error(state) where the directory is there and is none.
  void check_usable() const;

  // Error(state) that names what clear() would have to remove and save() cannot have made.
  void check_clearable() const;

  // Removes the files that manifests name, the manifests, and unfinished writes. What remains is in a log line.
  void clear() const;

 private:
  std::string directory_;
  int keep_;
};

// One checkpoint directory. Throws Error(not_found / corrupt_data) that names the file.
Loaded load_checkpoint(const std::string& path);

}  // namespace etr::checkpoint

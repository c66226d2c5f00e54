// Writes numbered shards of labelled images.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace etr::sources {

// Writes PREFIX-000000.tar.zst and so on. Without keep(), the destructor removes the shards.
class ShardSet {
 public:
  struct Form {
    bool fast = false;  // .ets; otherwise .tar or .tar.zst
    int level = 3;      // zstd level
    int64_t per_shard = 1000;
    bool upright = true;  // apply the EXIF orientation of PNGs in fast shards
  };

  // If there are shards of an earlier packing, throws Error(invalid_argument), or with `overwrite`
  // replaces them when the first sample is added.
  ShardSet(std::string prefix, const Form& form, bool overwrite);
  ~ShardSet();
  ShardSet(const ShardSet&) = delete;
  ShardSet& operator=(const ShardSet&) = delete;

  // `name` is "CLASS/NAME.EXT" and determines the key. `format` is "png" or "jpg". Returns "", or
  // why the sample was not added: fast shards take no PNGs that cannot be decoded.
  std::string add(const std::string& name, const std::string& format,
                  std::span<const std::byte> bytes, int label);
  void finish();  // completes the last shard
  void keep() { kept_ = true; }

  bool replaces() const { return !old_.empty(); }

  const std::vector<std::filesystem::path>& shards() const { return shards_; }
  int64_t samples() const { return samples_; }

  class Writer;

 private:
  std::string key_of(const std::string& name);
  void remove_old();
  void open_next();

  const std::string prefix_;
  const Form form_;
  std::unique_ptr<Writer> writer_;
  std::vector<std::filesystem::path> old_;
  std::vector<std::filesystem::path> shards_;  // paths: removing them takes no memory
  std::set<std::string> keys_;
  int64_t samples_ = 0;
  bool kept_ = false;
};

// The files named PREFIX-NUMBER with the form's extension, in order.
std::vector<std::filesystem::path> shards_there(const std::filesystem::path& prefix,
                                                const ShardSet::Form& form);

}  // namespace etr::sources

// Writes numbered shards of images with their classes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace etr::sources {

// PREFIX-000000.tar.zst and so on. What finish() has not completed is removed.
class ShardSet {
 public:
  struct Form {
    bool fast = false;  // .ets, else .tar or .tar.zst
    int level = 3;      // zstd's
    int64_t per_shard = 1000;
    bool upright = true;  // PNGs of fast shards are turned as their EXIF data says
  };

  // Shards of an earlier packing: Error(invalid_argument), or with `overwrite` the first sample replaces them.
  ShardSet(std::string prefix, const Form& form, bool overwrite);
  ~ShardSet();
  ShardSet(const ShardSet&) = delete;
  ShardSet& operator=(const ShardSet&) = delete;

  // `name` is "CLASS/NAME.EXT"; the key is made from it. `format` is "png" or "jpg". Returns why nothing was added: fast
  // shards take no PNG that cannot be decoded. "" where it was added.
  std::string add(const std::string& name, const std::string& format,
                  std::span<const std::byte> bytes, int label);
  void finish();

  bool replaces() const { return !old_.empty(); }

  const std::vector<std::string>& shards() const { return shards_; }
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
  std::vector<std::string> shards_;
  std::set<std::string> keys_;
  int64_t samples_ = 0;
  bool finished_ = false;
};

// Files named PREFIX-NUMBER with the form's ending, in order.
std::vector<std::filesystem::path> shards_there(const std::filesystem::path& prefix,
                                                const ShardSet::Form& form);

}  // namespace etr::sources

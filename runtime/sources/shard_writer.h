// Writes numbered shards of images with their classes.
#pragma once

#include <cstdint>
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

  // Shards of an earlier packing: Error(invalid_argument), or with `overwrite` they are removed.
  ShardSet(std::string prefix, const Form& form, bool overwrite);
  ~ShardSet();
  ShardSet(const ShardSet&) = delete;
  ShardSet& operator=(const ShardSet&) = delete;

  // `name` is "CLASS/NAME.EXT"; the key is made from it. `format` is "png" or "jpg".
  void add(const std::string& name, const std::string& format, std::span<const std::byte> bytes,
           int label);
  void finish();

  const std::vector<std::string>& shards() const { return shards_; }
  int64_t samples() const { return samples_; }

  class Writer;

 private:
  std::string key_of(const std::string& name);

  const std::string prefix_;
  const Form form_;
  std::unique_ptr<Writer> writer_;
  std::vector<std::string> shards_;
  std::set<std::string> keys_;
  int64_t samples_ = 0;
  bool finished_ = false;
};

}  // namespace etr::sources

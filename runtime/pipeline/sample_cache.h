// Caches samples as they are at one point of the pipeline, by the source's record number.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "core/json_fwd.h"
#include "core/platform.h"
#include "pipeline/item.h"

namespace etr::pipeline {

// A memo: it returns what reading and mapping the record again would give. It keeps what fits and
// never evicts anything, so a sample that has() finds is still there when recall() is called.
// Thread safe.
class SampleCache {
 public:
  virtual ~SampleCache() = default;

  // Called during construction of the pipeline. `stages`: those before the cache. Throws
  // Error(invalid_argument) if the cache cannot follow them.
  virtual void check_stages(const Json& /*stages*/) const {}

  // Whether other pipelines use the cache too, so that it must know what its samples are made from.
  virtual bool is_shared() const { return false; }

  // Opens a shared cache. Called once, before the first has(), on the source's thread. `upstream`:
  // what the samples are made from (cache_upstream.h).
  virtual void open(const Json& /*upstream*/) {}

  // Whether recall() will return the record, as it was with that stamp (Source::stamp()).
  virtual bool has(uint64_t record, uint64_t stamp) = 0;
  void keep(const Item& item);
  // Sets origin and fields of the item from its record. Throws Error(io / corrupt_data) if it
  // cannot be read.
  void recall(Item& item);

  // {"hits", "misses", "kept"}: the number of samples recalled, computed here, and stored by this
  // pipeline. Shared caches add more.
  virtual Json stats() const;

 protected:
  virtual bool store(const Item& item) = 0;  // returns whether it stored the item
  virtual void load(Item& item) = 0;

 private:
  std::atomic<int64_t> hits_{0}, misses_{0}, kept_{0};
};

// A cache for this pipeline only.
class OwnCache final : public SampleCache {
 public:
  // `limit_bytes`: total size of all fields. `directory`: "" keeps them in memory, else in an
  // unnamed file there, which disappears with the process. Throws Error(io).
  OwnCache(int64_t limit_bytes, const std::string& directory);

  bool has(uint64_t record, uint64_t stamp) override;

 protected:
  bool store(const Item& item) override;
  void load(Item& item) override;

 private:
  struct Meta {
    std::string name;
    DType dtype;
    Shape shape;
  };
  struct Held {
    std::shared_ptr<const Origin> origin;
    std::vector<Field> fields;  // if in memory
    std::vector<Meta> metas;    // if in the file, consecutively from `offset`
    uint64_t offset = 0;
  };

  // Keeps nothing more after the file could not be written.
  void give_up(uint64_t record, const Error& error);

  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<const Held>> held_;
  int64_t left_bytes_;
  std::unique_ptr<platform::ScratchFile> file_;
  uint64_t file_end_ = 0;
};

}  // namespace etr::pipeline

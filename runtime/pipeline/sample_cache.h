// Samples as they were at one place of the pipeline, by the source's number of the record.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/json_fwd.h"
#include "core/platform.h"
#include "pipeline/item.h"

namespace etr::pipeline {

// A memo: what it holds is what reading and mapping the record again would give. Keeps what fits, and never
// drops anything, so that a sample found when the source reads is still there when it is needed. Thread safe.
class SampleCache {
 public:
  virtual ~SampleCache() = default;

  // While the pipeline is made; `stages`: in front of it. Error(invalid_argument) where it cannot stand there.
  virtual void check_stages(const Json& /*stages*/) const {}

  // Whether others use it too, so that it has to know what its samples are made of.
  virtual bool is_shared() const { return false; }

  // Of a shared one, once, before the first has(), on the source's thread. `upstream`: what the samples are made of (cache_upstream.h).
  virtual void open(const Json& /*upstream*/) {}

  // Whether recall() will give that record, as it was with that stamp (Source::stamp()).
  virtual bool has(uint64_t record, uint64_t stamp) = 0;
  void keep(const Item& item);
  // Sets origin and fields of the item whose record it is. Error(io / corrupt_data) where it cannot be read.
  void recall(Item& item);

  // {"hits", "misses", "kept"}: samples recalled, made here, and put into it by this pipeline; and where it is shared more.
  virtual Json stats() const;

 protected:
  virtual bool store(const Item& item) = 0;  // whether it did
  virtual void load(Item& item) = 0;

 private:
  std::atomic<int64_t> hits_{0}, misses_{0}, kept_{0};
};

// Of this pipeline alone.
class OwnCache final : public SampleCache {
 public:
  // `limit_bytes`: of all fields. `directory`: "" keeps them in memory; else in a file there, which has no
  // name and goes with the process. Throws Error(io).
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
    std::vector<Field> fields;  // in memory
    std::vector<Meta> metas;    // or in the file, from `offset`, one after the other
    uint64_t offset = 0;
  };

  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<const Held>> held_;
  int64_t left_bytes_;
  std::unique_ptr<platform::ScratchFile> file_;
  uint64_t file_end_ = 0;
};

}  // namespace etr::pipeline

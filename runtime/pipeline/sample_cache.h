// Samples as they were at one place of the pipeline, by the source's number of the record.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/platform.h"
#include "pipeline/item.h"

namespace etr::pipeline {

// A memo: what it holds is what reading and mapping the record again would give. Keeps what fits, and never
// drops anything, so that a sample found when the source reads is still there when it is needed. Thread safe.
class SampleCache {
 public:
  // `limit_bytes`: of all fields. `directory`: "" keeps them in memory; else in a file there, which has no
  // name and goes with the process. Throws Error(io).
  SampleCache(int64_t limit_bytes, const std::string& directory);

  bool has(uint64_t record) const;
  void keep(uint64_t record, const Item& item);
  // Sets origin and fields. Error(io) where the file cannot be read.
  void recall(uint64_t record, Item& item) const;

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

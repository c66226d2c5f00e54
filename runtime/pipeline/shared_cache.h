// A cache in a folder that all processes of a machine share, and that later runs find.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "core/json.h"
#include "pipeline/cache_part.h"
#include "pipeline/sample_cache.h"

namespace etr::pipeline {

// Takes what fits into `limit_bytes`, all processes together, and drops nothing: the order of an epoch is a new one each time, so
// there is no sample that is wanted less than others. Nobody waits for another process. What cannot be written is told once and
// not kept; what cannot be read as it was written is told, and made again.
class SharedCache final : public SampleCache {
 public:
  // `version` is a part of what the samples are made of; stages that call functions of the program need one. Opens nothing.
  SharedCache(std::string folder, int64_t limit_bytes, std::string version);

  bool is_shared() const override { return true; }
  void check_stages(const Json& stages) const override;
  // Error(state / io / corrupt_data) that names the folder: see claim_cache_folder().
  void open(const Json& upstream) override;
  bool has(uint64_t record, uint64_t stamp) override;
  Json stats() const override;

 protected:
  bool store(const Item& item) override;
  void load(Item& item) override;

 private:
  struct Held {
    CacheEntry entry;
    bool checked = false;  // its checksum was right, or this process has written it
  };
  std::optional<Held> find(uint64_t record) const;
  std::optional<Held> find_anew(uint64_t record, uint64_t stamp);
  void refresh();
  bool open_part(uint32_t number);
  void take(const CacheEntry& entry);
  bool is_good(const Held& held);
  void read_sample(const CacheEntry& entry, Item& item) const;
  std::shared_ptr<CachePart> part(uint32_t number) const;

  bool write(const Item& item);
  std::optional<uint64_t> reserve(uint64_t bytes);
  CacheWriter& writer();
  void withdraw(const CacheEntry& entry, const std::string& why);
  void stop_writing(const std::string& why);
  bool fits(uint64_t more) const;

  CacheIdentity identity_;
  const uint64_t limit_bytes_;
  const std::string version_;
  std::atomic<bool> opened_{false}, writes_{true}, told_full_{false}, told_withdrawal_{false};

  std::mutex refresh_mutex_;  // before mutex_
  std::mutex writer_mutex_;   // before refresh_mutex_
  std::unique_ptr<CacheWriter> writer_;
  uint32_t next_part_ = 0;  // guarded by refresh_mutex_

  mutable std::mutex mutex_;                              // guards what follows
  std::map<uint32_t, std::shared_ptr<CachePart>> parts_;  // nullptr: one that cannot be used
  std::unordered_map<uint64_t, Held> held_;               // by record
  std::set<CachePlace> withdrawn_;
  int64_t withdrawals_ = 0;
};

}  // namespace etr::pipeline

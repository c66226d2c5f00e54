// A cache in a folder that all processes of a machine share and later runs reuse.
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

// All processes together keep up to `limit_bytes`. Nothing is evicted: each epoch has a new order,
// so no sample is less likely to be needed than another. Nobody waits for other processes. A
// failure to write is logged once, and the sample is not kept. A damaged sample is logged and
// computed again.
class SharedCache final : public SampleCache {
 public:
  // `version` is part of what identifies the samples; it is required if stages call functions of
  // the program. Opens nothing.
  SharedCache(std::string folder, int64_t limit_bytes, std::string version);

  bool is_shared() const override { return true; }
  void check_stages(const Json& stages) const override;
  // Throws Error(state / io / corrupt_data) that names the folder: see claim_cache_folder().
  void open(const Json& upstream) override;
  bool has(uint64_t record, uint64_t stamp) override;
  Json stats() const override;

 protected:
  bool store(const Item& item) override;
  void load(Item& item) override;

 private:
  struct Held {
    CacheEntry entry;
    bool checked = false;  // checksum verified, or written by this process
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

  std::mutex refresh_mutex_;  // locked before mutex_
  std::mutex writer_mutex_;   // locked before refresh_mutex_
  std::unique_ptr<CacheWriter> writer_;
  uint32_t next_part_ = 0;  // guarded by refresh_mutex_

  mutable std::mutex mutex_;                              // guards what follows
  std::map<uint32_t, std::shared_ptr<CachePart>> parts_;  // nullptr: an unusable part
  std::unordered_map<uint64_t, Held> held_;               // by record
  std::set<CachePlace> withdrawn_;
  int64_t withdrawals_ = 0;
};

}  // namespace etr::pipeline

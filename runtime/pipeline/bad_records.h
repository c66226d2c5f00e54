// What happens to records that cannot be used.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json_fwd.h"
#include "pipeline/item.h"

namespace etr::pipeline {

enum class ErrorPolicy { fail, skip, quarantine };

struct BadRecord {
  std::string stage, shard, key, reason;
};

using Drop = std::pair<uint64_t, uint64_t>;  // stage number, ordinal

// Counts, lists and sets aside bad records. Thread safe.
class BadRecords {
 public:
  // `limit`: that many are tolerated, one more ends the run. `directory` receives quarantined
  // records: their raw fields as files, and bad_records.jsonl with the reasons.
  BadRecords(ErrorPolicy policy, int64_t limit, std::string directory);

  // Applies the policy to `error`, raised by stage number `position` on `item`: returns where the
  // record is to be dropped, throws Error that names stage, shard and key where the run must end.
  void handle(const std::string& stage, uint64_t position, const Item& item, const Error& error,
              uint64_t epoch);

  // A sample that is left out and is not bad; a restored run must know of it too.
  void note_drop(uint64_t position, uint64_t ordinal, uint64_t epoch);

  int64_t count() const;
  Json list() const;  // the first 1,000: [{"stage", "shard", "key", "reason"}]

  // The samples dropped in an epoch: (stage number, ordinal), sorted.
  std::vector<Drop> dropped(uint64_t epoch) const;
  void forget_before(uint64_t epoch);

 private:
  void quarantine(const Item& item, const BadRecord& record) const;

  const ErrorPolicy policy_;
  const int64_t limit_;
  const std::string directory_;
  mutable std::mutex mutex_;
  int64_t count_ = 0;
  std::vector<BadRecord> records_;
  std::map<uint64_t, std::vector<Drop>> dropped_;  // by epoch
};

}  // namespace etr::pipeline

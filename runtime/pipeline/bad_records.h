// Handling of records that cannot be used.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/json_fwd.h"
#include "pipeline/drop_set.h"
#include "pipeline/item.h"

namespace etr::pipeline {

enum class ErrorPolicy { fail, skip, quarantine, substitute };

struct ErrorRules {
  ErrorPolicy policy = ErrorPolicy::fail;
  std::map<uint64_t, ErrorPolicy> by_stage;  // exceptions by stage number
  int64_t limit = 0;                         // number of different bad records that are tolerated
  double share = 1;  // tolerated share of the records read so far, or of 100 if fewer were read
  std::string directory;  // for quarantined records: their raw fields and bad_records.jsonl
  std::string list;       // file that gets a line of JSON per bad record; "": none
};

// All strings are UTF-8.
struct BadRecord {
  std::string stage, shard, key, reason;
  int64_t offset = -1;
};

// Counts, lists and quarantines bad records. Thread safe.
class BadRecords {
 public:
  explicit BadRecords(ErrorRules rules);

  // Called by the source for good and bad records. Epochs are counted separately, because the
  // source and the maps are ahead of the consumer: bad records of a later epoch must not end an
  // earlier one.
  void count_read(int64_t records, uint64_t epoch);

  // Applies the rules to `error`, raised by stage number `position` on `item`. Throws Error that
  // names stage, shard and key if the run must end. Returns whether a good sample should replace
  // the record; otherwise it is dropped. `may_replace`: whether the caller can do the former.
  bool handle(const std::string& stage, uint64_t position, const Item& item, const Error& error,
              uint64_t epoch, bool may_replace = true);

  // To be called at the end of `epoch`, when all bad records of the epochs up to it are known.
  // Returns the error that ends the run if they are too many, else nullptr.
  std::shared_ptr<const Error> too_many(uint64_t epoch) const;

  bool uses(ErrorPolicy policy) const;  // in any stage

  // Records that an item was dropped without being bad: a restored run has to drop it, too.
  void note_drop(uint64_t position, const Item& item, uint64_t epoch);

  int64_t count() const;  // different records, over all epochs
  int64_t times() const;  // occurrences of bad records
  // "2 bad records were dropped, the first by ...", or "met" if some may have been replaced; "":
  // none
  std::string summary() const;
  // The first 1,000: [{"stage", "shard", "key", "offset", "reason", "occurrences"}].
  Json list() const;

  // Returns the records that were dropped in an epoch, sorted.
  std::vector<Drop> dropped(uint64_t epoch) const;
  void restore_dropped(uint64_t epoch, const std::vector<Drop>& drops);  // of the restored run
  void forget_before(uint64_t epoch);

 private:
  struct Listed {
    BadRecord record;
    int64_t times = 0;
  };

  // A bad record seen before.
  struct Known {
    size_t place = 0;    // index in records_, or beyond its end
    uint64_t epoch = 0;  // the earliest that met it
    bool listed = false;
  };
  struct Tally {
    int64_t records = 0, times = 0, read = 0;  // records: those not met in an earlier epoch
    std::shared_ptr<const Error> latest;
  };

  Known& note(const Item& item, const BadRecord& record, uint64_t epoch);
  std::shared_ptr<const Error> excess(uint64_t epoch) const;
  void list(ErrorPolicy policy, bool replaced, const std::string& where, const Item& item,
            const BadRecord& record);
  void quarantine(const Item& item, const BadRecord& record);
  void drop(uint64_t position, const Item& item, uint64_t epoch);

  const ErrorRules rules_;
  mutable std::mutex mutex_;
  int64_t count_ = 0, times_ = 0;
  std::unordered_map<std::string, Known> known_;  // by hash
  Known untold_{};                                // stands for records beyond kTold
  Tally before_;                                  // of the epochs that the consumer has left
  std::map<uint64_t, Tally> tallies_;             // of the other epochs
  std::vector<Listed> records_;
  std::set<std::string> stems_;                    // name stems of quarantined files
  std::map<uint64_t, std::vector<Drop>> dropped_;  // by epoch
};

}  // namespace etr::pipeline

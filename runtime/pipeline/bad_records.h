// What happens to records that cannot be used.
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
  std::map<uint64_t, ErrorPolicy> by_stage;  // by stage number, where it differs
  int64_t limit = 0;      // so many different records are tolerated, one more ends the run
  double share = 1;       // of the records read so far that may be bad, from the hundredth on
  std::string directory;  // receives quarantined records: their raw fields, bad_records.jsonl
  std::string list;       // file that receives a line of JSON for each; "": none
};

// All of it UTF-8.
struct BadRecord {
  std::string stage, shard, key, reason;
  int64_t offset = -1;
};

// Counts, lists and sets aside bad records. Thread safe.
class BadRecords {
 public:
  explicit BadRecords(ErrorRules rules);

  // By the source, good and bad. Epochs are counted each for themselves, for the source and the maps are ahead of the
  // consumer: what a later epoch meets ends no earlier one.
  void count_read(int64_t records, uint64_t epoch);

  // Applies the rules to `error`, raised by stage number `position` on `item`; throws Error that names stage,
  // shard and key where the run must end. Returns whether a good sample shall stand in for the record; else it
  // is to be dropped.
  bool handle(const std::string& stage, uint64_t position, const Item& item, const Error& error,
              uint64_t epoch);

  // At the end of `epoch`, when all that it and the epochs before it have met is known: the error that ends the run where
  // that is too many; nullptr where it is not.
  std::shared_ptr<const Error> too_many(uint64_t epoch) const;

  bool uses(ErrorPolicy policy) const;  // in any stage

  // A sample that is left out and is not bad; a restored run must know of it too.
  void note_drop(uint64_t position, uint64_t ordinal, uint64_t epoch);

  int64_t count() const;  // different records: the same one in another epoch is no other
  int64_t times() const;  // how often one was bad
  std::string summary() const;  // "2 bad records were dropped, the first by ..."; "" for none
  Json list() const;  // the first 1,000: [{"stage", "shard", "key", "offset", "reason", "times"}]

  // The samples dropped in an epoch: (stage number, ordinal), sorted.
  std::vector<Drop> dropped(uint64_t epoch) const;
  void restore_dropped(uint64_t epoch, const std::vector<Drop>& drops);  // of the run that goes on
  void forget_before(uint64_t epoch);

 private:
  struct Listed {
    BadRecord record;
    int64_t times = 0;
  };

  // A record that was met.
  struct Known {
    size_t place = 0;    // in records_, or beyond
    uint64_t epoch = 0;  // the earliest that met it
    bool listed = false;
  };
  struct Tally {
    int64_t records = 0, times = 0, read = 0;  // records: those that no earlier epoch has met
    std::shared_ptr<const Error> latest;
  };

  Known& note(const Item& item, const BadRecord& record, uint64_t epoch);
  std::shared_ptr<const Error> excess(uint64_t epoch) const;
  void list(ErrorPolicy policy, const std::string& where, const Item& item,
            const BadRecord& record);
  void quarantine(const Item& item, const BadRecord& record);

  const ErrorRules rules_;
  mutable std::mutex mutex_;
  int64_t count_ = 0, times_ = 0;
  std::unordered_map<std::string, Known> known_;  // by hash
  Known untold_{};                                // of a record beyond those told apart
  Tally before_;                                  // of the epochs that the consumer has left
  std::map<uint64_t, Tally> tallies_;             // of the others
  std::vector<Listed> records_;
  std::set<std::string> stems_;                    // of quarantined files
  std::map<uint64_t, std::vector<Drop>> dropped_;  // by epoch
};

}  // namespace etr::pipeline

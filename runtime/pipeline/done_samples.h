// What of an epoch the ranks of another world have had, where it is shared out anew among this one's.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/json_fwd.h"

namespace etr::pipeline {

// A sample, by its ordinal, and the number of its copy (Item::replica).
using SampleCopy = std::pair<uint64_t, uint32_t>;

// Samples of which nothing is to come any more, by pass and number in the source's order; the others are left. Those that
// the other ranks still held are left, too: of these it knows which copies were delivered.
class DoneSamples {
 public:
  void add(uint64_t pass, std::vector<uint64_t> numbers);
  void add_copy(SampleCopy copy) { copies_.insert(copy); }
  void forget_copies_of_done();
  void begin_with(uint64_t pass) { first_pass_ = pass; }

  // Nothing is left of the passes before it.
  uint64_t first_pass() const { return first_pass_; }
  // After this one nobody has read anything.
  uint64_t passes() const;

  uint64_t left(uint64_t pass, uint64_t nth) const;  // the number of the nth sample that is left
  uint64_t left_before(uint64_t pass, uint64_t number) const;  // how many
  bool is_done(uint64_t pass, uint64_t number) const;
  const std::set<SampleCopy>& copies() const { return copies_; }

  Json json() const;
  // Error(corrupt_data) where `json` is not what json() gave.
  static DoneSamples from(const Json& json);

 private:
  struct Run {
    uint64_t begin, end;   // numbers that are done
    uint64_t done_before;  // in the runs before
    uint64_t left_before() const { return begin - done_before; }
  };
  using Runs = std::vector<Run>;

  const Run* run_before(uint64_t pass, uint64_t number) const;

  uint64_t first_pass_ = 0;
  std::map<uint64_t, Runs> passes_;
  std::set<SampleCopy> copies_;
};

}  // namespace etr::pipeline

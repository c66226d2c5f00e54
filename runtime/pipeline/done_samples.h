// The samples of an epoch that the ranks of a previous world have delivered, when the rest of the
// epoch is redistributed among the ranks of this world.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/json_fwd.h"

namespace etr::pipeline {

// A sample's ordinal and its copy number (Item::replica).
using SampleCopy = std::pair<uint64_t, uint32_t>;

// The samples that are done, by pass and by number in the source's order; the others are left. A
// sample that a rank still held at its position is left, too; its delivered copies are recorded.
class DoneSamples {
 public:
  void add(uint64_t pass, std::vector<uint64_t> numbers);
  void add_copy(SampleCopy copy) { copies_.insert(copy); }
  void forget_copies_of_done();
  void begin_with(uint64_t pass) { first_pass_ = pass; }

  // No sample of an earlier pass is left.
  uint64_t first_pass() const { return first_pass_; }
  // Nobody has read anything of later passes.
  uint64_t passes() const;

  uint64_t left(uint64_t pass, uint64_t nth) const;  // number of the nth sample left
  // Returns how many samples are left before `number`.
  uint64_t left_before(uint64_t pass, uint64_t number) const;
  bool is_done(uint64_t pass, uint64_t number) const;
  const std::set<SampleCopy>& copies() const { return copies_; }

  Json json() const;
  // Throws Error(corrupt_data) if `json` was not made by json().
  static DoneSamples from(const Json& json);

 private:
  struct Run {
    uint64_t begin, end;   // a range of numbers that are done
    uint64_t done_before;  // total in the previous runs
    uint64_t left_before() const { return begin - done_before; }
  };
  using Runs = std::vector<Run>;

  const Run* run_before(uint64_t pass, uint64_t number) const;

  uint64_t first_pass_ = 0;
  std::map<uint64_t, Runs> passes_;
  std::set<SampleCopy> copies_;
};

}  // namespace etr::pipeline

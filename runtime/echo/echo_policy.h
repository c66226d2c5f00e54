// How often each item is repeated, and which one is next. Pure policy, without queues, threads or
// clocks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "core/rng.h"
#include "pipeline/stage.h"

namespace etr::echo {

// Limit on the uses of an item by one node. Nodes may be chained, and copies of copies need
// distinct numbers: the `use`-th copy of replica r has the number r * kUseNumbers + use.
constexpr uint32_t kMostUses = 1023, kUseNumbers = 1024;

// Makes an item its own `use`-th copy, counted from 0. In a repeated batch no sample counts as
// fresh.
void make_copy(pipeline::Item& item, uint32_t use);

// Numbers of copies of successive items for a real factor e >= 1, by error diffusion: floor(e) or
// ceil(e) each, and after any n items their sum is within 1 of n * e.
class CopyCounter {
 public:
  explicit CopyCounter(double factor) : factor_(factor) {}
  uint32_t next();
  void reset() { owed_ = 0; }
  double factor() const { return factor_; }
  uint32_t most() const { return static_cast<uint32_t>(std::ceil(factor_)); }

 private:
  const double factor_;
  double owed_ = 0;
};

// The order in which an echo repeats held samples.
enum class Draw {
  spread,      // each again after about as many echoes as samples are held
  least_used,  // the least used, of these the oldest: keeps use balanced
  uniform,     // any, at random
  newest,      // keeps the mean age low
};

// Samples that may be repeated, each with a number of uses. A sample stays after its last planned
// use if it may be used beyond them.
class EchoBuffer {
 public:
  EchoBuffer(Draw draw, int64_t limit_bytes) : draw_(draw), limit_bytes_(limit_bytes) {}

  // The number of planned uses of a sample, the maximum, and how many were consumed. If the uses of
  // a sample are held separately, they share `given`, which numbers them in the order in which they
  // are drawn: the first one is the fresh one.
  struct Uses {
    uint32_t planned = 1, most = 1, used = 0;
    std::shared_ptr<uint32_t> given = nullptr;

    uint32_t left() const { return planned - std::min(used, planned); }
  };

  // `bytes`: the item's size. Throws Error(out_of_memory) beyond the byte limit: if samples were
  // dropped instead, echoes would depend on their sizes.
  void add(pipeline::Item item, Uses uses, int64_t bytes, Rng& rng);
  // Takes the next planned use, as a replica with its own number. Returns false if no sample has
  // planned uses left.
  bool draw(pipeline::Item& out, Rng& rng);
  // Takes an extra use of a sample without planned uses left, the least used of these. Returns
  // false if there is none.
  bool draw_spent(pipeline::Item& out, Rng& rng);
  // Evicts the least valuable sample: with `spread` the oldest; otherwise one without planned uses
  // left, if any, else the most used (`least_used`), the oldest (`newest`) or any (`uniform`).
  // Returns the planned uses that it had left.
  uint32_t evict(Rng& rng);
  void clear();

  size_t size() const { return samples_.size(); }
  uint64_t copies() const { return copies_; }  // planned uses left

 private:
  struct Held;
  using Samples = std::list<Held>;  // oldest first
  // Has no planned uses left, rank by `draw_`, number.
  using Key = std::tuple<bool, uint64_t, uint64_t>;
  using Order = std::map<Key, Samples::iterator>;  // the first is drawn next
  struct Held {
    pipeline::Item item;
    Uses uses;
    int64_t bytes;
    Order::iterator place;  // unless in mixed_
    size_t mixed;           // index in mixed_
  };

  void use(Held& held, pipeline::Item& out);
  void put(Samples::iterator held, Rng& rng);
  void take(const Held& held);
  bool use_next(Samples::iterator held, pipeline::Item& out, Rng& rng);
  Samples::iterator least_worth(Rng& rng);

  const Draw draw_;
  const int64_t limit_bytes_;
  Samples samples_;
  Order order_;
  std::vector<Samples::iterator> mixed_;  // for `uniform`: those with planned uses left
  uint64_t numbers_ = 0, draws_ = 0, copies_ = 0;
  int64_t bytes_ = 0;
};

// Balances the uses of samples: unused uses of evicted samples are saved, and extra uses of others
// are taken on credit, to be paid back by later samples. Savings and debt are limited to `band`.
class Credit {
 public:
  explicit Credit(uint64_t band) : band_(static_cast<int64_t>(band)) {}
  void save(uint32_t uses) { uses_ = std::min<int64_t>(uses_ + uses, band_); }
  bool may_spend() const { return uses_ > -band_; }
  void spend() { --uses_; }
  // The uses that a fresh sample with `uses` has left after paying back as much debt as it can. It
  // always keeps its first use.
  uint32_t repaid(uint32_t uses);
  void reset() { uses_ = 0; }

 private:
  const int64_t band_;
  int64_t uses_ = 0;  // negative: debt
};

// For `auto`: the factor e that the run needs, and the number of echoes that are therefore due
// after each fresh item. Echoes emitted beyond these, because the consumer would have waited, are a
// debt that later ones repay. So the ratio of the run follows e, and a bursty upstream is echoed
// evenly.
//
// e is the number of items emitted per fresh item, reduced by the share of time in which upstream
// was held back:
//
//   e = clamp(given / fresh * (1 - held / elapsed), 1, cap)
//
// where `held` is the time that upstream waited because its queue was full.
//
// If e is too low, given / fresh approaches the right ratio by itself, because the consumer always
// gets what it needs. If e is too high, upstream is held back. Sums and debts decay over some
// seconds and items.
class EchoPlan {
 public:
  EchoPlan(double cap, uint64_t most_debt)
      : cap_(cap), most_debt_(static_cast<double>(most_debt)) {}

  uint32_t echoes_after_fresh();
  void gave_extra() { owed_ = std::max(owed_ - 1, -most_debt_); }
  void start_pass() { owed_ = 0; }

  // `pace` and the counts are totals since the start.
  void observe(const pipeline::Pace& pace, uint64_t fresh, uint64_t given);
  double factor() const { return factor_; }

 private:
  static constexpr double kSeconds = 5, kItems = 64, kHealthy = 1.05;

  struct Sums {
    double elapsed_s = 0, held_s = 0, fresh = 0, given = 0;
  };

  const double cap_, most_debt_;
  double factor_ = 1, owed_ = 0;
  bool started_ = false;
  Sums last_, sums_;
};

}  // namespace etr::echo

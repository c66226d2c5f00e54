// How often each item is repeated, and which one next. Pure policy: no queues, no threads, no clocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <tuple>
#include <vector>

#include "core/rng.h"
#include "pipeline/stage.h"

namespace etr::echo {

// The number of the `use`-th copy of an item: echo nodes may follow each other, and replicas of replicas keep
// distinct numbers.
constexpr uint32_t replica_of(uint32_t replica, uint32_t use) { return replica * 1024 + use; }
constexpr uint32_t kMostReplicas = 1023;

// Copies of successive items for a real factor e >= 1, by error diffusion: floor(e) or ceil(e)
// each, and after n items the sum is within 1 of n * e, for every n.
class CopyCounter {
 public:
  explicit CopyCounter(double factor) : factor_(factor) {}
  uint32_t next();
  void reset() { owed_ = 0; }
  double factor() const { return factor_; }

 private:
  const double factor_;
  double owed_ = 0;
};

// Which of the held samples an echo repeats.
enum class Draw {
  spread,      // each about as many echoes after its last use as samples are held
  least_used,  // of these the oldest: use stays balanced
  uniform,     // any, at random
  newest,      // the mean age stays low
};

// Samples that may be repeated, each with a number of uses. One that has been used up stays, where it may be used beyond that.
class EchoBuffer {
 public:
  EchoBuffer(Draw draw, int64_t limit_bytes) : draw_(draw), limit_bytes_(limit_bytes) {}

  // How often a sample may be used, of which `used` have been.
  struct Uses {
    uint32_t planned = 1, most = 1, used = 0;
  };

  // `item` weighs `bytes`. Throws Error(out_of_memory) beyond the byte limit: a limit that dropped samples instead would make
  // echoes depend on their size.
  void add(pipeline::Item item, Uses uses, int64_t bytes, Rng& rng);
  // The next use, a replica with a number of its own; false where every sample has been used up.
  bool draw(pipeline::Item& out, Rng& rng);
  // One more use of a sample that was used up, the least used of these; false where none may be.
  bool draw_spent(pipeline::Item& out, Rng& rng);
  // Gives up the sample of least worth: the oldest (`spread`), else one that was used up, the most used, the oldest, or any.
  // Returns the uses that it had left.
  uint32_t evict(Rng& rng);
  void clear();

  size_t size() const { return samples_.size(); }
  uint64_t copies() const { return copies_; }  // uses that are left

 private:
  struct Held;
  using Samples = std::list<Held>;                   // the oldest first
  using Key = std::tuple<bool, uint64_t, uint64_t>;  // was used up; what `draw_` orders by; number
  using Order = std::map<Key, Samples::iterator>;    // the first is drawn next
  struct Held {
    pipeline::Item item;
    Uses uses;
    int64_t bytes;
    Order::iterator place;  // but of samples that are in mixed_
    size_t mixed;           // the place there
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
  std::vector<Samples::iterator> mixed_;  // `uniform`: those that have uses left
  uint64_t numbers_ = 0, draws_ = 0, copies_ = 0;
  int64_t bytes_ = 0;
};

// How many echoes may be given beyond those that the held samples have left, in all: uses that earlier samples left when they
// went are saved up, and later samples' uses are taken on credit; of each at most `band`.
class Credit {
 public:
  explicit Credit(uint64_t band) : band_(static_cast<int64_t>(band)) {}
  void save(uint32_t uses) { uses_ = std::min<int64_t>(uses_ + uses, band_); }
  bool may_spend() const { return uses_ > -band_; }
  void spend() { --uses_; }
  // What a fresh sample of `uses` has left of them for echoes of its own, when it has paid back what it can. Its first use is its own.
  uint32_t repaid(uint32_t uses);
  void reset() { uses_ = 0; }

 private:
  const int64_t band_;
  int64_t uses_ = 0;  // below 0: owed
};

// `auto`: the factor e that the run needs, and the echoes that are due after each fresh item by it. Echoes that were given
// beyond these, because the consumer would have waited, are a debt that later items' repay: so the run's ratio follows e,
// and an upstream that comes in bursts is echoed evenly.
//
// e is what was given for each fresh item, as long as upstream was not held back by it:
//
//   e = clamp(given / fresh * (1 - held / elapsed), 1, cap)      held: upstream waited because its queue was full
//
// As the consumer always gets what it needs, given / fresh finds the ratio of the times by itself where e is too low; where it is
// too high, upstream is held. Sums and debts forget what is some seconds and items old.
class EchoPlan {
 public:
  EchoPlan(double cap, uint64_t most_debt)
      : cap_(cap), most_debt_(static_cast<double>(most_debt)) {}

  uint32_t echoes_after_fresh();
  void gave_extra() { owed_ = std::max(owed_ - 1, -most_debt_); }
  void start_epoch() { owed_ = 0; }

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

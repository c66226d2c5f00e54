// How often each item is repeated, and which one next. Pure policy: no queues, no threads, no clocks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "pipeline/stage.h"

namespace etr::echo {

// The number of the `use`-th copy of an item: echo nodes may follow each other, and replicas of replicas keep
// distinct numbers.
constexpr uint32_t replica_of(uint32_t replica, uint32_t use) { return replica * 1024 + use; }

// Copies of successive items for a real factor e >= 1, by error diffusion: floor(e) or ceil(e)
// each, and after n items the sum is within 1 of n * e, for every n.
class CopyCounter {
 public:
  explicit CopyCounter(double factor) : factor_(factor) {}
  uint32_t next();
  void reset() { owed_ = 0; }
  void set_factor(double factor) { factor_ = factor; }  // of the items from here on
  double factor() const { return factor_; }

 private:
  double factor_;
  double owed_ = 0;
};

// Which of the held samples an echo repeats.
enum class Draw {
  least_used,  // of these the oldest: use stays balanced
  uniform,     // any, at random
  newest,      // the mean age stays low
};

// Samples that may be repeated, each with a number of uses.
class EchoBuffer {
 public:
  EchoBuffer(Draw draw, int64_t limit_bytes) : draw_(draw), limit_bytes_(limit_bytes) {}

  // `item` may be used `uses` times, of which `used` have been; it weighs `bytes`. Throws
  // Error(out_of_memory) beyond the byte limit: a limit that dropped samples instead would make echoes
  // depend on their size.
  void add(pipeline::Item item, uint32_t uses, uint32_t used, int64_t bytes);
  // The next use, a replica with a number of its own; false where every sample has been used up.
  bool draw(pipeline::Item& out, Rng& rng);
  // Gives up the sample of least worth: most used, oldest, or any.
  void evict(Rng& rng);
  void clear();

  size_t size() const { return ordered_.size() + mixed_.size(); }  // samples
  uint64_t copies() const { return copies_; }                      // uses that are left

 private:
  struct Held {
    pipeline::Item item;
    uint32_t uses, used;
    int64_t bytes;
  };
  using Key = std::pair<uint64_t, uint64_t>;

  Key key_of(const Held& held) {
    return draw_ == Draw::newest ? Key(UINT64_MAX - added_++, 0) : Key(held.used, added_++);
  }
  void use(Held& held, pipeline::Item& out);
  void forget(const Held& held);
  void forget_mixed(size_t index);

  const Draw draw_;
  const int64_t limit_bytes_;
  std::map<Key, Held> ordered_;  // the first is drawn next; all but `uniform`
  std::vector<Held> mixed_;      // `uniform`
  uint64_t added_ = 0, copies_ = 0;
  int64_t bytes_ = 0;
};

// The factor of `auto`: e = clamp(t_up / t_down, 1, cap), with t_up the time that upstream needs for an
// item and t_down the time that everything downstream needs for one, from what a window of the run shows:
//
//   t_up   = (elapsed - held) / fresh      held: upstream waited because its queue was full
//   t_down = (elapsed - starved) / given   starved: the consumer waited for a batch
//
// Where upstream is held back, downstream is the slow side and its waiting has other reasons: then
// t_down = elapsed / given. Estimates are averaged over windows, and the factor moves only when it is off
// by more than a tenth, so that noise does not move it.
class FactorController {
 public:
  explicit FactorController(double cap) : cap_(cap) {}

  struct Decision {
    double factor, t_up_s, t_down_s;
  };
  // `pace` and the counts are totals since the start. A decision, where the factor should change.
  std::optional<Decision> observe(const pipeline::Pace& pace, uint64_t fresh, uint64_t given,
                                  double factor);

 private:
  static constexpr double kWindowSeconds = 0.5, kHysteresis = 0.1, kWeight = 0.5;
  static constexpr uint64_t kWindowItems = 8;

  const double cap_;
  bool started_ = false;
  pipeline::Pace begin_;  // of the window
  uint64_t fresh_ = 0, given_ = 0;
  double t_up_ = 0, t_down_ = 0;  // averages; 0: none yet
};

}  // namespace etr::echo

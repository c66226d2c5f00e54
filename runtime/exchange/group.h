// Groups of processes or threads: collective operations, and messages between ranks.
#pragma once

#include <echotrain/engine.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exchange/failure.h"
#include "exchange/numbers.h"

namespace etr::exchange {

constexpr double kDefaultTimeout = 60;  // seconds

class Buffer;

// Returns whether this thread is inside a function of an engine's table. Code that waited there for
// the group would wait for itself.
bool in_engine();

// One rank's end of a group, on an engine (echotrain/engine.h). All ranks make the same collective
// calls in the same order.
//
// A call returns when its work is done. If ranks are dead, frozen, unreachable or late, it throws
// RankLost, which names them, within the time-out plus three seconds. Other failures throw Error.
// After either the group is dead: every further call fails at once with the same error, and the
// survivors have to form a new group. A wrong argument throws Error(invalid_argument) and changes
// nothing.
//
// One thread at a time, except for abort(). For concurrent collective operations use duplicate().
class Group {
 public:
  // Takes ownership of the engine, also if it throws. Throws Error(invalid_argument) if the table
  // is incomplete. An operation whose function the table lacks throws Error(unsupported).
  explicit Group(const etr_engine& engine, double timeout_s = kDefaultTimeout);
  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;
  ~Group();

  int rank() const;
  int size() const;

  double timeout() const;
  void set_timeout(double seconds);  // for further calls, and for groups split off later

  // Returns the bytes of the arrays that this rank has contributed to operations of this group and
  // of the groups split off it. What the engine sends for them depends on its algorithm. Any
  // thread.
  uint64_t bytes() const;

  // Allocates zeroed memory for data to exchange. Engines work on it in place; some have to copy
  // other memory. The call is local to this rank. Any thread. Error(out_of_memory) leaves the group
  // intact.
  Buffer allocate(uint64_t size_bytes);

  // Replaces every value by its reduction over all ranks. Sums have the same bits on all ranks.
  template <typename T>
  void all_reduce(std::span<T> values, Reduction reduction = Reduction::sum) {
    all_reduce(values.data(), values.size(), NumberOf<T>::value, reduction);
  }

  // `values` holds counts[0] + counts[1] + ... numbers. `part` receives the reduction of the
  // counts[rank()] numbers that belong to this rank.
  template <typename T>
  void reduce_scatter(std::span<const T> values, std::span<const uint64_t> counts,
                      std::span<T> part, Reduction reduction = Reduction::sum) {
    reduce_scatter(values.data(), values.size(), counts, part.data(), part.size(),
                   NumberOf<T>::value, reduction);
  }

  // `all` receives the parts of all ranks in rank order. All parts have the length of this one, or
  // rank r's has sizes[r] bytes. `part` may already lie at its place in `all`.
  void all_gather(std::span<const std::byte> part, std::span<std::byte> all);
  void all_gather(std::span<const std::byte> part, std::span<const uint64_t> sizes,
                  std::span<std::byte> all);

  void broadcast(std::span<std::byte> data, int root);  // copies the data of `root` to all ranks
  void barrier();                                       // returns when all ranks have called it

  // The n-th send with a tag matches the n-th receive with that tag, which must have the same
  // length. A send may wait for its receive. The largest tag is ETR_ENGINE_TAG_MAX.
  void send(std::span<const std::byte> data, int to, uint32_t tag);
  void receive(std::span<std::byte> data, int from, uint32_t tag);

  // Returns the group of the ranks that give the same colour, ordered by key, then by rank; none
  // for a negative colour. Collective. Error(invalid_argument) if the engine gives no group for
  // another colour.
  std::optional<Group> split(int colour, int key);
  // Returns another group of the same ranks, for concurrent operations. Collective.
  Group duplicate();

  // For a group along one axis of a mesh of ranks: errors of this group and of its duplicates call
  // rank r `numbers[r]`, its number in the whole mesh, and name the axis, `along`. Call it before
  // any operation of the group.
  void number_ranks(std::vector<int> numbers, std::string along);

  // Ends the group on all ranks: calls that wait throw with this reason. Any thread.
  void abort(const std::string& reason);

 private:
  friend class Buffer;
  class State;
  Group(const etr_engine& engine, const State& split_off);

  void all_reduce(void* values, uint64_t count, Number number, Reduction reduction);
  void reduce_scatter(const void* values, uint64_t count, std::span<const uint64_t> counts,
                      void* part, uint64_t part_count, Number number, Reduction reduction);

  std::shared_ptr<State> state_;
};

// Memory from Group::allocate(). It begins at a page boundary. The buffer keeps the group open: the
// group is left only when its last buffer is gone. After an error of the group the memory remains
// valid, with undefined contents.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  std::span<std::byte> bytes() const { return {memory_, size_}; }

 private:
  friend class Group;
  Buffer(std::shared_ptr<Group::State> group, uint64_t size_bytes);

  std::shared_ptr<Group::State> group_;
  std::byte* memory_ = nullptr;
  size_t size_ = 0;
};

}  // namespace etr::exchange

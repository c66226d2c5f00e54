// Processes, or threads, that work together: collective operations and messages between ranks.
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

// Whether this thread is in a function of an engine's table. What waits there for the group would wait for itself.
bool in_engine();

// One rank's end of a group, on an engine (echotrain/engine.h). All ranks make the same collective calls in the same order.
//
// A call returns when its work is done. Where ranks are dead, frozen, unreachable or late it throws RankLost, which names them,
// within the time-out and one second; other failures are Error. After either the group is dead: every further call says so
// at once, and the survivors form a new one. A wrong argument is Error(invalid_argument) and changes nothing.
//
// One thread at a time, apart from abort(); for collective operations that go on at the same time there is duplicate().
class Group {
 public:
  // Owns the engine, and ends it also where this throws: Error(invalid_argument) where its table is not whole. What a function
  // that the table lacks is needed for is Error(unsupported).
  explicit Group(const etr_engine& engine, double timeout_s = kDefaultTimeout);
  Group(Group&&) noexcept;
  Group& operator=(Group&&) noexcept;
  ~Group();

  int rank() const;
  int size() const;

  double timeout() const;
  void set_timeout(double seconds);  // of the calls to come; of groups that are split off, too

  // Bytes of the arrays that this rank has brought to operations on this group and those split off it. What an engine sends for
  // them depends on how it works. Any thread.
  uint64_t bytes() const;

  // Memory for what is exchanged, zeros at first. Engines work on it where it lies; for other memory some have to copy. It is this
  // rank's affair alone. Any thread. Error(out_of_memory) leaves the group as it was.
  Buffer allocate(uint64_t size_bytes);

  // Every value becomes the reduction of that value on all ranks. Sums have the same bits on all ranks.
  template <typename T>
  void all_reduce(std::span<T> values, Reduction reduction = Reduction::sum) {
    all_reduce(values.data(), values.size(), NumberOf<T>::value, reduction);
  }

  // `values` are counts[0] + counts[1] + ... numbers; `part` becomes the reduction of this rank's counts[rank()] of them.
  template <typename T>
  void reduce_scatter(std::span<const T> values, std::span<const uint64_t> counts,
                      std::span<T> part, Reduction reduction = Reduction::sum) {
    reduce_scatter(values.data(), values.size(), counts, part.data(), part.size(),
                   NumberOf<T>::value, reduction);
  }

  // `all` becomes the parts of all ranks in their order: each as long as this one's, or sizes[rank] bytes. `part` may lie at its
  // place in `all` already.
  void all_gather(std::span<const std::byte> part, std::span<std::byte> all);
  void all_gather(std::span<const std::byte> part, std::span<const uint64_t> sizes,
                  std::span<std::byte> all);

  void broadcast(std::span<std::byte> data, int root);  // becomes that of the rank `root`
  void barrier();                                       // returns when all ranks have come

  // The n-th send with a tag meets the n-th receive with it, of the same length. A send may wait for its receive. Tags go
  // up to ETR_ENGINE_TAG_MAX.
  void send(std::span<const std::byte> data, int to, uint32_t tag);
  void receive(std::span<std::byte> data, int from, uint32_t tag);

  // The group of the ranks that give the same colour, ordered by key, then by rank; none for a negative colour. A call of all ranks.
  std::optional<Group> split(int colour, int key);
  // The same ranks once more, for operations at the same time. A call of all ranks.
  Group duplicate();

  // For a group that is a line of a larger one: errors give rank r its number there, `numbers[r]`, and name the line (`along`), as do
  // those of duplicates. To be called before any operation of the group.
  void number_ranks(std::vector<int> numbers, std::string along);

  // Ends the group on all ranks: calls that wait throw, with this reason. Any thread.
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

// What Group::allocate() gives; begins at a page of memory. The group is left when its last buffer is gone, too; after an error of
// the group the memory is there with undefined contents.
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

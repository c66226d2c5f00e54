// A worker's end of the pair that it makes with one shard.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "exchange/group.h"
#include "server/message.h"
#include "server/table.h"

namespace etr::server {

// Calls return when the shard has answered. They throw RankLost that names the shard where it does not, and Error(state) with the
// reason where it refuses. One thread at a time, apart from abort().
class Pair {
 public:
  Pair(exchange::Group group, int shard, int shards);

  int shard() const { return shard_; }
  Slice slice(uint64_t count) const { return slice_of(count, shard_, shards_); }
  double timeout() const { return group_.timeout(); }

  int hello(int wanted);  // the number that the worker has
  // Whether there is something to train; otherwise this worker is to begin(). One that `waits` is not told to.
  bool ready(uint64_t count, bool waits = false);

  // `numbers` are this shard's slice, of `count` parameters in all.
  void begin(uint64_t count, uint64_t decayed, std::span<const float> weights,
             std::span<const float> state);
  // `rows`: the gradients of rows, of each table that was declared.
  void push(std::span<const float> gradient, float rate, std::span<const Rows> rows = {});
  void fetch(std::span<float> weights);  // may wait for other workers
  void gate();                           // likewise
  void average(std::span<const float> weights, float rate, std::span<float> centre);
  void state(std::span<float> weights, std::span<float> state);
  // Of the model's tables with rows of their own, before ready(). Of rows that are given each shard has, and takes, its own.
  void declare(std::span<const TableSpec> tables);
  void fetch_rows(
      std::span<Rows> tables);  // those of their ids, into `values`, which have their length
  void put_rows(uint64_t table, const Rows& rows);                 // before begin()
  Rows take_rows(uint64_t table, uint64_t begin, uint32_t width);  // a piece: see Table::piece()

  void here();
  void leave(bool all_end);

  uint64_t acknowledged() const { return acknowledged_; }  // pushes
  uint64_t bytes() const { return bytes_; }                // that have gone either way
  bool told_to_end() const { return told_to_end_; }
  void abort(const std::string& why) { group_.abort(why); }

 private:
  Message ask(const Message& message, std::span<const float> numbers = {},
              const RowParts& rows = {});
  Message answer();
  void receive(std::span<float> numbers);
  void count(uint64_t bytes) { bytes_ += bytes; }
  template <typename Body>
  auto named(Body&& body);

  exchange::Group group_;
  const int shard_, shards_;
  std::atomic<uint64_t> acknowledged_{0}, bytes_{0};
  std::atomic<bool> told_to_end_{false};
};

}  // namespace etr::server

// A worker's end of the pair that it makes with one shard.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
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
  // `stopped`: where an answer has to wait for other workers the call throws Error(cancelled) when this says so.
  Pair(exchange::Group group, int shard, int shards, std::function<bool()> stopped = {});

  int shard() const { return shard_; }
  bool leads() const { return shard_ == 0; }  // decides for the others
  Slice slice(uint64_t count) const { return slice_of(count, shard_, shards_); }
  double timeout() const { return group_.timeout(); }

  struct Name {
    int number = -1;       // the one wanted, or any; then the one that the worker has
    uint64_t ticket = 0;   // what the first shard has given
    uint64_t workers = 1;  // that are to come
    std::string terms;
  };
  Name hello(const Name& name);

  // Of the first shard: whether there is something to train; otherwise this worker is to begin, in this attempt. One that `waits` is
  // not told to. May wait for other workers.
  struct Ready {
    enum class Is { there, yours, over } is = Is::there;
    uint64_t attempt = 0;
  };
  Ready ready(bool waits = false);
  // Error(state) where this worker's model, of `count` parameters, is another one; the tables as the servers have them.
  std::vector<TableSpec> check(uint64_t count, std::span<const TableSpec> tables);

  // `numbers` are this shard's slice, of `count` parameters in all.
  void begin(uint64_t attempt, uint64_t count, uint64_t decayed, std::span<const float> weights,
             std::span<const float> state);
  // Before begin(): of the model's tables with rows of their own. Of rows that are given each shard has, and takes, its own.
  void declare(uint64_t attempt, std::span<const TableSpec> tables);
  void put_rows(uint64_t attempt, uint64_t table, const Rows& rows);

  // `rows`: the gradients of rows, of each table that was declared.
  void push(std::span<const float> gradient, float rate, std::span<const Rows> rows = {});
  void fetch(std::span<float> weights);  // of the first shard: may wait for other workers
  void gate();                           // likewise, of the first shard alone
  void average(std::span<const float> weights, float rate, std::span<float> centre);
  void state(std::span<float> weights, std::span<float> state);
  void fetch_rows(
      std::span<Rows> tables);  // those of their ids, into `values`, which have their length
  Rows take_rows(uint64_t table, uint64_t begin, uint32_t width);  // a piece: see Table::piece()

  void here();
  // `over`: so the first shard has said, which says it here.
  bool leave(bool all_end, bool over = false);

  uint64_t bytes() const { return bytes_; }  // that have gone either way
  bool told_to_end() const { return told_to_end_; }
  bool in_order() const { return in_order_; }  // the first shard has pushes last
  void abort(const std::string& why) { group_.abort(why); }

 private:
  Message ask(const Message& message, std::span<const float> numbers = {},
              const RowParts& rows = {});
  void send(const Message& message);
  Message answer();
  void receive(std::span<float> numbers);
  void count(uint64_t bytes) { bytes_ += bytes; }
  template <typename Body>
  auto named(Body&& body);

  exchange::Group group_;
  const int shard_, shards_;
  const std::function<bool()> stopped_;
  std::atomic<uint64_t> bytes_{0};
  std::atomic<bool> told_to_end_{false}, in_order_{false};
};

}  // namespace etr::server

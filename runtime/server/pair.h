// A worker's end of the pair that it forms with one shard.
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

// Calls return when the shard has answered. If it does not answer, they throw RankLost, which names
// the shard; if it refuses, they throw Error(state) with its reason. One thread at a time, except
// for abort().
class Pair {
 public:
  // `stopped`: calls that wait for other workers throw Error(cancelled) once it returns true.
  Pair(exchange::Group group, int shard, int shards, std::function<bool()> stopped = {});

  int shard() const { return shard_; }
  bool leads() const { return shard_ == 0; }  // whether its shard decides for the others
  Slice slice(uint64_t count) const { return slice_of(count, shard_, shards_); }
  double timeout() const { return group_.timeout(); }

  struct Name {
    int number = -1;       // the number asked for, -1: any; in the answer, the number given
    uint64_t ticket = 0;   // given by the first shard
    uint64_t workers = 1;  // the number of workers that are to come
    std::string terms;
  };
  Name hello(const Name& name);

  // First shard: waits until there are weights to train (`there`), until this worker is to provide
  // them (`yours`, with the number of the attempt), or until the run has ended (`over`). With
  // `waits` this worker never provides them.
  struct Ready {
    enum class Is { there, yours, over } is = Is::there;
    uint64_t attempt = 0;
  };
  Ready ready(bool waits = false);
  // Error(state) if this worker's model, with `count` parameters, differs from the shard's. Returns
  // the tables as the servers have them.
  std::vector<TableSpec> check(uint64_t count, std::span<const TableSpec> tables);

  // Sends the initial weights and state: this shard's slice of `count` parameters in all.
  void begin(uint64_t attempt, uint64_t count, uint64_t decayed, std::span<const float> weights,
             std::span<const float> state);
  // To be called before begin(): send the model's sparse tables, and rows of them. Each shard gets
  // its own rows.
  void declare(uint64_t attempt, std::span<const TableSpec> tables);
  void put_rows(uint64_t attempt, uint64_t table, const Rows& rows);

  // Sends gradients of the slice. `rows`: gradients of rows, for each declared table.
  void push(std::span<const float> gradient, float rate, std::span<const Rows> rows = {});
  void fetch(std::span<float> weights);  // the first shard may wait for other workers
  void gate();                           // first shard only; may wait for other workers
  void average(std::span<const float> weights, float rate, std::span<float> centre);
  void state(std::span<float> weights, std::span<float> state);
  // Fetches the rows of the tables' ids to their `values`, which must have the right length.
  void fetch_rows(std::span<Rows> tables);
  Rows take_rows(uint64_t table, uint64_t begin, uint32_t width);  // a piece: see Table::piece()

  void here();  // reports that the worker is alive
  // `over`: to other shards, what the first one has returned. Returns whether the run is over.
  bool leave(bool all_end, bool over = false);

  uint64_t bytes() const { return bytes_; }  // sent and received
  bool told_to_end() const { return told_to_end_; }
  bool in_order() const { return in_order_; }  // whether the first shard must get pushes last
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

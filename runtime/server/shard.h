// One slice of the parameters, and its updates.
//
// Dean et al., "Large Scale Distributed Deep Networks", 2012 (Downpour SGD, Adagrad on the shards,
// warm start); Li et al., "Scaling Distributed Machine Learning with the Parameter Server", 2014
// (consistency); Zhang, Choromanska and LeCun, "Deep Learning with Elastic Averaging SGD", 2015.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "server/message.h"
#include "server/options.h"
#include "server/table.h"

namespace etr::server {

// Thread-safe.
class Shard {
 public:
  Shard(const ShardOptions& options, int shard, int shards)
      : options_(options),
        shard_(shard),
        shards_(shards),
        tables_({options.adagrad, options.epsilon}, shard, shards) {}

  // Set the initial weights: the sparse tables, rows of them, then the slice. All belong to one
  // attempt, which the first shard numbers. A later attempt discards what an earlier one has set;
  // the earlier one gets Error(state) from then on.
  void declare_tables(uint64_t attempt, std::span<const TableSpec> specs);
  void put_rows(uint64_t attempt, uint64_t table, const Rows& rows);
  // `weights` and `state` (empty for a new run) are those of the slice; the model has `count`
  // parameters. `decayed`: how many leading parameters of the slice are under weight decay.
  void begin(uint64_t attempt, uint64_t count, std::span<const float> weights,
             std::span<const float> state, uint64_t decayed);

  Slice slice(uint64_t count) const { return slice_of(count, shard_, shards_); }
  uint64_t size() const;  // 0 before begin()

  // Error(invalid_argument) if a worker's model differs from the one trained here. Returns the
  // tables with the run's seeds, which may differ from the worker's.
  std::vector<TableSpec> check_model(uint64_t count, std::span<const TableSpec> tables) const;

  uint64_t most_words() const;  // in a message of rows
  uint64_t widest_row() const;
  void read_rows(std::span<const uint32_t> words, std::vector<float>& to) const;
  Rows piece_of_rows(uint64_t table, uint64_t begin) const;

  // Applies an update to the slice and to rows, or to neither. Error(invalid_argument) if the
  // gradient has the wrong length or the rows are malformed.
  void push(std::span<const float> gradient, float rate, const RowParts& rows = {});

  void copy_weights(std::vector<float>& to) const;
  void copy_state(std::vector<float>& to) const;

  // Elastic averaging: a worker's `weights` are replaced by the centre, and the centre moves
  // towards them by `rate` of the distance.
  void average(std::span<float> weights, float rate);

  uint64_t rows() const;  // rows of sparse tables that take memory

 private:
  void go_on_with(uint64_t attempt);
  void check_length(size_t numbers) const;
  float decay_at(size_t i) const { return i < decayed_ ? options_.weight_decay : 0; }

  const ShardOptions options_;
  const int shard_, shards_;
  mutable std::mutex mutex_;
  uint64_t attempt_ = 0;
  uint64_t count_ = 0;  // of all shards' parameters
  std::vector<float> weights_, state_;
  Tables tables_;
  uint64_t decayed_ = 0;
};

}  // namespace etr::server

// The rows of sparse tables that a shard holds. Workers fetch and push single rows.
//
// Until a row is first pushed, it is drawn from the seed whenever it is read; from then on it takes
// memory. Its initial values are those that it would have if the whole table were drawn at once:
// the generator is counter-based, so row `id` begins at draw 2 * width * id of the table's stream.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "server/rows.h"

namespace etr::server {

// Describes a table. Sent as it lies in memory.
struct TableSpec {
  uint64_t entries = 0;
  uint64_t seed = 0, stream = 0;  // of initial values: Rng(seed, stream).fill_normal()
  uint32_t width = 0;
  float deviation = 0;
  bool operator==(const TableSpec&) const = default;
};

struct RowOptimizer {
  bool adagrad = true;  // otherwise SGD
  float epsilon = 1e-10f;
};

// The rows of a table that are on one shard. Ids must be below the number of entries.
class Table {
 public:
  Table(const TableSpec& spec, const RowOptimizer& optimizer)
      : spec_(spec), optimizer_(optimizer) {}

  const TableSpec& spec() const { return spec_; }
  uint64_t rows() const { return ids_.size(); }  // that take memory

  // Reads rows. Rows that do not exist yet are read as their initial values, and are not made.
  void read(std::span<const uint32_t> ids, float* to) const;

  // Makes the rows that do not exist yet, and so allocates all the memory that push() needs.
  void make(std::span<const uint32_t> ids);

  // Updates rows, which must exist: w -= rate g, or Adagrad: s += g^2, w -= rate g / (sqrt(s) +
  // epsilon).
  void push(std::span<const uint32_t> ids, const float* gradient, float rate);

  // Sets the rows' values, and makes rows that do not exist. An empty state leaves the state as it
  // is, which is 0 in a new row.
  void put(const Rows& rows);

  // Returns at most `most` rows, in the order in which they were made, from the `begin`-th on. Rows
  // are never removed, so consecutive pieces contain every row once.
  Rows piece(uint64_t begin, uint64_t most) const;

 private:
  static constexpr uint64_t kChunk = 1024;  // rows per allocation, so that growth moves none

  uint64_t slot_of(uint32_t id);  // makes the row if it does not exist
  void draw(uint32_t id, std::span<float> to) const;
  std::span<float> row(std::vector<std::vector<float>>& chunks, uint64_t slot) const;
  std::span<const float> row(const std::vector<std::vector<float>>& chunks, uint64_t slot) const;

  const TableSpec spec_;
  const RowOptimizer optimizer_;
  std::unordered_map<uint32_t, uint64_t> slots_;
  std::vector<uint32_t> ids_;  // by slot
  std::vector<std::vector<float>> values_, sums_;
};

// All tables of a shard. Malformed arguments throw Error(invalid_argument) and change nothing.
class Tables {
 public:
  explicit Tables(const RowOptimizer& optimizer, int shard = 0, int shards = 1)
      : optimizer_(optimizer), shard_(shard), shards_(shards) {}

  void declare(std::span<const TableSpec> specs);
  uint64_t rows() const;

  // Error(invalid_argument) if a worker's tables differ from this shard's in more than their seeds.
  // Returns this shard's tables.
  std::vector<TableSpec> check_like(std::span<const TableSpec> specs) const;

  uint64_t most_words() const;  // in a message that names every row once
  uint64_t widest() const;      // the largest width of a row

  void read(std::span<const uint32_t> words, std::vector<float>& to) const;
  void push(const RowParts& parts, float rate);
  void put(uint64_t table, const Rows& rows);
  Rows piece(uint64_t table, uint64_t begin) const;

 private:
  std::vector<std::span<const uint32_t>> checked(std::span<const uint32_t> words) const;
  void check_ids(size_t table, std::span<const uint32_t> ids) const;
  uint64_t numbers_of(std::span<const std::span<const uint32_t>> ids) const;
  const Table& at(uint64_t table) const;

  const RowOptimizer optimizer_;
  const int shard_, shards_;
  std::vector<Table> tables_;
};

}  // namespace etr::server

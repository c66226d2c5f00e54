// The rows that a shard holds of sparse tables, of which workers fetch and push single rows.
//
// A row is drawn from the seed until it is first pushed, and takes memory from then on. Its initial value is the one that it has in an
// array that is drawn as a whole: the generator is counter-based, so row `id` begins at draw 2 * width * id of the table's stream.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "server/rows.h"

namespace etr::server {

// As it lies in messages.
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

// The rows of a table that are on one shard. Ids are below the number of entries.
class Table {
 public:
  Table(const TableSpec& spec, const RowOptimizer& optimizer)
      : spec_(spec), optimizer_(optimizer) {}

  const TableSpec& spec() const { return spec_; }
  uint64_t rows() const { return ids_.size(); }  // that take memory

  // Rows that are not there have their initial values, and are not made.
  void read(std::span<const uint32_t> ids, float* to) const;

  // Makes the rows that are not there, and so takes all memory that push() needs.
  void make(std::span<const uint32_t> ids);

  // Of rows that are there: w -= rate g, or Adagrad: s += g^2, w -= rate g / (sqrt(s) + epsilon). Other rows stay as they are.
  void push(std::span<const uint32_t> ids, const float* gradient, float rate);

  // Sets rows, which are made if they are not there. An empty state counts as 0.
  void put(const Rows& rows);

  // At most `most` rows, in the order in which they were made, from the `begin`-th on. Rows are never removed, so consecutive pieces
  // have every row once.
  Rows piece(uint64_t begin, uint64_t most) const;

 private:
  static constexpr uint64_t kChunk = 1024;  // rows; growing moves none

  uint64_t slot_of(uint32_t id);  // makes the row where it is not there
  void draw(uint32_t id, std::span<float> to) const;
  std::span<float> row(std::vector<std::vector<float>>& chunks, uint64_t slot) const;
  std::span<const float> row(const std::vector<std::vector<float>>& chunks, uint64_t slot) const;

  const TableSpec spec_;
  const RowOptimizer optimizer_;
  std::unordered_map<uint32_t, uint64_t> slots_;
  std::vector<uint32_t> ids_;  // by slot
  std::vector<std::vector<float>> values_, sums_;
};

// All tables of a shard. Malformed arguments are Error(invalid_argument), and change nothing.
class Tables {
 public:
  explicit Tables(const RowOptimizer& optimizer, int shard = 0, int shards = 1)
      : optimizer_(optimizer), shard_(shard), shards_(shards) {}

  void declare(std::span<const TableSpec> specs);
  uint64_t rows() const;

  // Error(invalid_argument) if a worker's tables differ in more than their seeds. Returns this shard's.
  std::vector<TableSpec> check_like(std::span<const TableSpec> specs) const;

  uint64_t most_words() const;  // of a message that names every row once
  uint64_t widest() const;      // in numbers

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

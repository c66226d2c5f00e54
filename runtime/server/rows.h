// Rows of sparse tables as workers and shards exchange them.
//
// Row `id` of a table is on shard id mod (number of shards). A message about several tables has
// words and numbers. The words are, for each table in turn, the number of its ids and the ids. The
// numbers are the rows' values in the same order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace etr::server {

// Rows of one table; row i is the i-th run of `width` values.
struct Rows {
  std::vector<uint32_t> ids;
  std::vector<float> values;
  std::vector<float> state;  // optimizer state, one for each value; may be empty
};

struct RowParts {
  std::span<const uint32_t> words;
  std::span<const float> numbers;
};

inline bool is_of_shard(uint32_t id, int shard, int shards) {
  return id % static_cast<uint32_t>(shards) == static_cast<uint32_t>(shard);
}

// Return the part of the rows that is on a shard.
std::vector<uint32_t> words_for(std::span<const Rows> tables, int shard, int shards);
std::vector<float> values_for(std::span<const Rows> tables, int shard, int shards);
Rows part_for(const Rows& table, int shard, int shards);
// Returns the length of values_for().
size_t count_values(std::span<const Rows> tables, int shard, int shards);

// The reverse of values_for(): copies a shard's values to their rows. Each table's `values` must
// have the length of all its rows.
void take_values(std::span<Rows> tables, std::span<const float> from, int shard, int shards);

// Returns the ids of each of `tables` tables. Error(invalid_argument) if the words are malformed.
std::vector<std::span<const uint32_t>> ids_in(std::span<const uint32_t> words, size_t tables);

// Appends rows. Returns whether there were any.
bool append(Rows& to, const Rows& more);

// Calls take(piece) for pieces of at most about a million numbers until all rows have been passed.
template <typename Take>
void for_pieces(const Rows& rows, const Take& take) {
  const size_t count = rows.ids.size(), width = count ? rows.values.size() / count : 0,
               step = std::max<size_t>((1 << 20) / std::max<size_t>(width, 1), 1);
  const auto part = [&](const auto& of, size_t begin, size_t end) {
    const auto at = [&](size_t i) { return of.begin() + static_cast<ptrdiff_t>(i); };
    return std::vector(at(begin), at(end));
  };
  for (size_t begin = 0; begin < count; begin += step) {
    const size_t end = std::min(begin + step, count);
    Rows piece{part(rows.ids, begin, end), part(rows.values, begin * width, end * width), {}};
    if (!rows.state.empty()) piece.state = part(rows.state, begin * width, end * width);
    take(piece);
  }
}

// Sorts the rows by id. Ids are unique.
void sort(Rows& rows);

}  // namespace etr::server

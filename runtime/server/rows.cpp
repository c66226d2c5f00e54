#include "server/rows.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace etr::server {
namespace {

size_t width_of(const std::vector<float>& values, const Rows& table) {
  return table.ids.empty() ? 0 : values.size() / table.ids.size();
}

// Calls visit(offset of the row in `values`, width) for each of the table's rows that the shard
// has.
template <typename Visit>
void for_rows(const std::vector<float>& values, const Rows& table, int shard, int shards,
              const Visit& visit) {
  const size_t width = width_of(values, table);
  for (size_t i = 0; i < table.ids.size(); ++i)
    if (is_of_shard(table.ids[i], shard, shards)) visit(i * width, width);
}

void append(std::vector<float>& to, const std::vector<float>& values, const Rows& table, int shard,
            int shards) {
  for_rows(values, table, shard, shards, [&](size_t begin, size_t width) {
    const auto from = values.begin() + static_cast<ptrdiff_t>(begin);
    to.insert(to.end(), from, from + static_cast<ptrdiff_t>(width));
  });
}

std::vector<float> permuted(const std::vector<float>& values, const std::vector<size_t>& order,
                            size_t width) {
  std::vector<float> out;
  out.reserve(values.size());
  for (const size_t i : order) {
    const auto from = values.begin() + static_cast<ptrdiff_t>(i * width);
    out.insert(out.end(), from, from + static_cast<ptrdiff_t>(width));
  }
  return out;
}

}  // namespace

std::vector<uint32_t> words_for(std::span<const Rows> tables, int shard, int shards) {
  std::vector<uint32_t> words;
  for (const Rows& table : tables) {
    const size_t head = words.size();
    words.push_back(0);
    for (const uint32_t id : table.ids)
      if (is_of_shard(id, shard, shards)) words.push_back(id);
    words[head] = static_cast<uint32_t>(words.size() - head - 1);
  }
  return words;
}

std::vector<float> values_for(std::span<const Rows> tables, int shard, int shards) {
  std::vector<float> out;
  for (const Rows& table : tables) append(out, table.values, table, shard, shards);
  return out;
}

size_t count_values(std::span<const Rows> tables, int shard, int shards) {
  size_t count = 0;
  for (const Rows& table : tables)
    for_rows(table.values, table, shard, shards, [&](size_t, size_t width) { count += width; });
  return count;
}

Rows part_for(const Rows& table, int shard, int shards) {
  Rows out;
  for (const uint32_t id : table.ids)
    if (is_of_shard(id, shard, shards)) out.ids.push_back(id);
  append(out.values, table.values, table, shard, shards);
  append(out.state, table.state, table, shard, shards);
  return out;
}

void take_values(std::span<Rows> tables, std::span<const float> from, int shard, int shards) {
  size_t at = 0;
  for (Rows& table : tables)
    for_rows(table.values, table, shard, shards, [&](size_t begin, size_t width) {
      std::copy_n(from.begin() + static_cast<ptrdiff_t>(at), width,
                  table.values.begin() + static_cast<ptrdiff_t>(begin));
      at += width;
    });
}

std::vector<std::span<const uint32_t>> ids_in(std::span<const uint32_t> words, size_t tables) {
  std::vector<std::span<const uint32_t>> out;
  for (size_t table = 0; table < tables; ++table) {
    if (words.empty() || words[0] > words.size() - 1)
      fail(Code::invalid_argument, "the ids of table ", table, " of ", tables, " are cut short");
    out.push_back(words.subspan(1, words[0]));
    words = words.subspan(1 + size_t{words[0]});
  }
  if (!words.empty())
    fail(Code::invalid_argument, words.size(), " words follow the ids of ", tables, " tables");
  return out;
}

bool append(Rows& to, const Rows& more) {
  to.ids.insert(to.ids.end(), more.ids.begin(), more.ids.end());
  to.values.insert(to.values.end(), more.values.begin(), more.values.end());
  to.state.insert(to.state.end(), more.state.begin(), more.state.end());
  return !more.ids.empty();
}

void sort(Rows& rows) {
  std::vector<size_t> order(rows.ids.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return rows.ids[a] < rows.ids[b]; });
  rows.values = permuted(rows.values, order, width_of(rows.values, rows));
  rows.state = permuted(rows.state, order, width_of(rows.state, rows));
  std::vector<uint32_t> ids;
  ids.reserve(order.size());
  for (const size_t i : order) ids.push_back(rows.ids[i]);
  rows.ids = std::move(ids);
}

}  // namespace etr::server

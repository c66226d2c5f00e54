#include "server/table.h"

#include <algorithm>
#include <string>

#include "core/error.h"
#include "core/rng.h"
#include "server/message.h"
#include "server/update_rule.h"

namespace etr::server {

std::span<float> Table::row(std::vector<std::vector<float>>& chunks, uint64_t slot) const {
  return std::span(chunks[slot / kChunk]).subspan(slot % kChunk * spec_.width, spec_.width);
}

std::span<const float> Table::row(const std::vector<std::vector<float>>& chunks,
                                  uint64_t slot) const {
  return std::span(chunks[slot / kChunk]).subspan(slot % kChunk * spec_.width, spec_.width);
}

void Table::draw(uint32_t id, std::span<float> to) const {
  Rng rng(spec_.seed, spec_.stream);
  rng.skip(Rng::kDrawsOfNormal * spec_.width * id);
  rng.fill_normal(to, spec_.deviation);
}

// Allocates memory before an id refers to it.
uint64_t Table::slot_of(uint32_t id) {
  if (const auto found = slots_.find(id); found != slots_.end()) return found->second;
  const uint64_t slot = ids_.size();
  if (slot == values_.size() * kChunk) {
    values_.reserve(values_.size() + 1);
    if (optimizer_.adagrad) sums_.emplace_back(kChunk * spec_.width);
    values_.emplace_back(kChunk * spec_.width);
  }
  draw(id, row(values_, slot));
  ids_.push_back(id);
  slots_.emplace(id, slot);
  return slot;
}

void Table::read(std::span<const uint32_t> ids, float* to) const {
  for (const uint32_t id : ids) {
    const std::span<float> out(to, spec_.width);
    if (const auto found = slots_.find(id); found != slots_.end())
      std::ranges::copy(row(values_, found->second), out.begin());
    else
      draw(id, out);
    to += spec_.width;
  }
}

void Table::make(std::span<const uint32_t> ids) {
  for (const uint32_t id : ids) slot_of(id);
}

void Table::push(std::span<const uint32_t> ids, const float* gradient, float rate) {
  for (const uint32_t id : ids) {
    const uint64_t slot = slots_.at(id);
    const std::span<float> w = row(values_, slot);
    if (optimizer_.adagrad) {
      const std::span<float> s = row(sums_, slot);
      for (size_t k = 0; k < w.size(); ++k)
        adagrad(w[k], s[k], gradient[k], rate, optimizer_.epsilon);
    } else {
      for (size_t k = 0; k < w.size(); ++k) descend(w[k], gradient[k], rate);
    }
    gradient += spec_.width;
  }
}

void Table::put(const Rows& rows) {
  for (size_t i = 0; i < rows.ids.size(); ++i) {
    const uint64_t slot = slot_of(rows.ids[i]);
    const auto copy = [&](const std::vector<float>& from, std::span<float> to) {
      std::copy_n(from.begin() + static_cast<ptrdiff_t>(i * spec_.width), spec_.width, to.begin());
    };
    copy(rows.values, row(values_, slot));
    if (optimizer_.adagrad && !rows.state.empty()) copy(rows.state, row(sums_, slot));
  }
}

Rows Table::piece(uint64_t begin, uint64_t most) const {
  Rows out;
  const uint64_t end = std::min<uint64_t>(ids_.size(), begin + most);
  for (uint64_t slot = begin; slot < end; ++slot) {
    out.ids.push_back(ids_[slot]);
    const auto values = row(values_, slot);
    out.values.insert(out.values.end(), values.begin(), values.end());
    if (!optimizer_.adagrad) continue;
    const auto sums = row(sums_, slot);
    out.state.insert(out.state.end(), sums.begin(), sums.end());
  }
  return out;
}

void Tables::declare(std::span<const TableSpec> specs) {
  tables_.clear();
  for (const TableSpec& spec : specs) tables_.emplace_back(spec, optimizer_);
}

namespace {

std::string text_of(const TableSpec& spec) {
  return cat(spec.entries, " entries of ", spec.width, " numbers with a deviation of ",
             spec.deviation);
}

}  // namespace

std::vector<TableSpec> Tables::check_like(std::span<const TableSpec> specs) const {
  constexpr const char* kFix = ": run the same job on all workers";
  if (specs.size() != tables_.size())
    fail(Code::invalid_argument, "this worker's model has ",
         specs.empty() ? "no" : std::to_string(specs.size()),
         " sparse tables, and the one that is "
         "trained here has ",
         tables_.empty() ? "none" : std::to_string(tables_.size()), kFix);
  std::vector<TableSpec> out;
  for (size_t table = 0; table < specs.size(); ++table) {
    const TableSpec& is = tables_[table].spec();
    TableSpec alike = specs[table];
    alike.seed = is.seed;
    if (alike != is)
      fail(Code::invalid_argument, "sparse table ", table, " of this worker's model has ",
           text_of(alike), ", and that of the one that is trained here ", text_of(is),
           alike.stream == is.stream ? "" : ", and another name", kFix);
    out.push_back(is);
  }
  return out;
}

uint64_t Tables::rows() const {
  uint64_t all = 0;
  for (const Table& table : tables_) all += table.rows();
  return all;
}

void Tables::check_ids(size_t table, std::span<const uint32_t> ids) const {
  for (const uint32_t id : ids) {
    if (id >= tables_[table].spec().entries)
      fail(Code::invalid_argument, "id ", id, " is outside of sparse table ", table, ", which has ",
           tables_[table].spec().entries, " entries");
    if (!is_of_shard(id, shard_, shards_))
      fail(Code::invalid_argument, "row ", id, " of sparse table ", table, " is not on shard ",
           shard_, " of ", shards_);
  }
}

std::vector<std::span<const uint32_t>> Tables::checked(std::span<const uint32_t> words) const {
  auto ids = ids_in(words, tables_.size());
  for (size_t table = 0; table < ids.size(); ++table) check_ids(table, ids[table]);
  return ids;
}

uint64_t Tables::numbers_of(std::span<const std::span<const uint32_t>> ids) const {
  uint64_t all = 0;
  for (size_t table = 0; table < ids.size(); ++table)
    all += ids[table].size() * tables_[table].spec().width;
  return all;
}

void Tables::read(std::span<const uint32_t> words, std::vector<float>& to) const {
  const auto ids = checked(words);
  to.resize(numbers_of(ids));
  float* at = to.data();
  for (size_t table = 0; table < ids.size(); ++table) {
    tables_[table].read(ids[table], at);
    at += ids[table].size() * tables_[table].spec().width;
  }
}

uint64_t Tables::most_words() const {
  uint64_t all = 0;
  for (const Table& table : tables_) all += 1 + table.spec().entries;
  return all;
}

uint64_t Tables::widest() const {
  uint64_t most = 0;
  for (const Table& table : tables_) most = std::max<uint64_t>(most, table.spec().width);
  return most;
}

void Tables::push(const RowParts& parts, float rate) {
  const uint64_t expected = numbers_of(checked(parts.words));
  if (parts.numbers.size() != expected)
    fail(Code::invalid_argument, "gradients of ", parts.numbers.size(), " numbers for rows of ",
         expected);
  const float* at = parts.numbers.data();
  const auto ids = ids_in(parts.words, tables_.size());
  for (size_t table = 0; table < ids.size(); ++table) tables_[table].make(ids[table]);
  for (size_t table = 0; table < ids.size(); ++table) {
    tables_[table].push(ids[table], at, rate);
    at += ids[table].size() * tables_[table].spec().width;
  }
}

const Table& Tables::at(uint64_t table) const {
  if (table >= tables_.size())
    fail(Code::invalid_argument, "there is no sparse table ", table, ": there are ",
         tables_.size());
  return tables_[table];
}

void Tables::put(uint64_t table, const Rows& rows) {
  const uint64_t expected = rows.ids.size() * at(table).spec().width;
  check_ids(table, rows.ids);
  if (rows.values.size() != expected || (!rows.state.empty() && rows.state.size() != expected))
    fail(Code::invalid_argument, "rows of ", rows.values.size(), " numbers, with a state of ",
         rows.state.size(), ", where ", expected, " are expected");
  tables_[table].put(rows);
}

Rows Tables::piece(uint64_t table, uint64_t begin) const {
  const Table& from = at(table);
  return from.piece(begin, rows_in_piece(from.spec().width));
}

}  // namespace etr::server

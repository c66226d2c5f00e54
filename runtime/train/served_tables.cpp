#include "train/served_tables.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "pipeline/stage.h"

namespace etr::train {
namespace {

// Describes element `at` of a field by sample and position: "sample 3 of 8 in the batch, position
// [1, 7]".
std::string place_text(const Shape& shape, int64_t at) {
  std::string position;
  for (size_t axis = shape.size(); axis-- > 1; at /= shape[axis])
    position = cat(at % shape[axis], position.empty() ? "" : ", ", position);
  const std::string sample = cat("sample ", at + 1, " of ", shape[0], " in the batch");
  return position.empty() ? sample : cat(sample, ", position [", position, "]");
}

const Tensor& ids_of(const pipeline::Item& batch, const std::string& field,
                     const std::string& table) {
  if (batch.find_opaque(field))
    fail(Code::unsupported, "field '", field, "' lies in a device buffer, but holds ids of '",
         table, "', whose rows the host fetches: pass it in host memory");
  const Tensor& ids = pipeline::require_field(batch, field);
  if (ids.dtype() != DType::i32)
    fail(Code::invalid_argument, "field '", field, "' is ", dtype_name(ids.dtype()), " ",
         shape_text(ids.shape()), "; ids of '", table, "' are i32");
  return ids;
}

std::vector<uint32_t> unique_ids(const Tensor& ids, const std::string& field,
                                 const std::string& table, int64_t entries) {
  const auto given = ids.view<int32_t>();
  std::vector<uint32_t> out;
  out.reserve(given.size());
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] < 0 || given[i] >= entries)
      fail(Code::invalid_argument, "field '", field, "', ",
           place_text(ids.shape(), static_cast<int64_t>(i)), ": id ", given[i],
           " is not in the table '", table, "', which has ", counted(entries, "entry", "entries"),
           " (0 to ", entries - 1, ")");
    out.push_back(static_cast<uint32_t>(given[i]));
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Tensor numbered(const Tensor& ids, const std::vector<uint32_t>& unique) {
  Tensor out(DType::i32, ids.shape());
  const auto number = [&](int32_t id) {
    const auto at = std::lower_bound(unique.begin(), unique.end(), static_cast<uint32_t>(id));
    return static_cast<int32_t>(at - unique.begin());
  };
  std::ranges::transform(ids.view<int32_t>(), out.mutable_view<int32_t>().begin(), number);
  return out;
}

}  // namespace

struct ServedTables::Looked {
  pipeline::Item batch;
  std::vector<server::Rows> rows;  // without values, which the batch has
};

ServedTables::ServedTables(parallel::ServedRows& rows, const nn::ModelGraph& net, uint64_t seed)
    : rows_(rows) {
  const auto name = [&](graph::ValueId id) { return net.graph.value(id).name; };
  std::vector<parallel::ServedTable> declared;
  for (const nn::ServedTable& of : net.served) {
    tables_.push_back({of.name, name(of.ids), name(of.rows), name(of.table), of.entries, of.width});
    declared.push_back({of.name,
                        {static_cast<uint64_t>(of.entries), seed, graph::parameter_stream(of.name),
                         static_cast<uint32_t>(of.width), of.deviation}});
  }
  rows_.declare(std::move(declared));
}

ServedTables::Looked ServedTables::look_up(const pipeline::Item& batch) const {
  Looked out{batch, std::vector<server::Rows>(tables_.size())};
  for (size_t i = 0; i < tables_.size(); ++i) {
    const Table& table = tables_[i];
    server::Rows& rows = out.rows[i];
    rows.ids =
        unique_ids(ids_of(batch, table.ids, table.name), table.ids, table.name, table.entries);
    rows.values.resize(rows.ids.size() * static_cast<size_t>(table.width));
  }
  rows_.fetch(out.rows);
  for (size_t i = 0; i < tables_.size(); ++i) {
    const Table& table = tables_[i];
    server::Rows& rows = out.rows[i];
    Tensor values(DType::f32, {static_cast<int64_t>(rows.ids.size()), table.width});
    std::ranges::copy(rows.values, values.mutable_view<float>().begin());
    rows.values = {};
    out.batch.set(table.rows, numbered(*batch.find(table.ids), rows.ids));
    out.batch.set(table.table, std::move(values));
  }
  return out;
}

pipeline::Item ServedTables::with_rows(const pipeline::Item& batch) const {
  return look_up(batch).batch;
}

pipeline::Item ServedTables::with_rows_of_step(const pipeline::Item& batch, uint32_t step) const {
  Looked looked = look_up(batch);
  std::vector<std::vector<uint32_t>> ids;
  for (server::Rows& rows : looked.rows) ids.push_back(std::move(rows.ids));
  rows_.expect(step, std::move(ids));
  return std::move(looked.batch);
}

std::unique_ptr<ServedTables> served_tables(parallel::ServedRows* rows, const nn::ModelGraph& net,
                                            const optim::UpdateSpec& update, uint64_t seed) {
  if (!rows || net.served.empty()) return nullptr;
  const Options& common = update.common();
  for (const char* option : {"clip_norm", "clip_value", "proximal", "ema_decay"})
    if (common.number(option) > 0)
      fail(Code::unsupported, "optimizer: '", option, "' would not apply to the rows of '",
           net.served[0].name,
           "', which the servers update: leave it out, or leave out the embedding's 'sparse'");
  if (update.accumulate() > 1)
    fail(Code::unsupported,
         "optimizer: 'accumulate' is not supported with sparse embeddings: use "
         "parallel.n_push, which sums the gradients of several steps, too");
  return std::make_unique<ServedTables>(*rows, net, seed);
}

}  // namespace etr::train

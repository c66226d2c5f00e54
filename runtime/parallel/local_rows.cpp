#include "parallel/local_rows.h"

#include <utility>

#include "core/error.h"

namespace etr::parallel {

gpu::CommandList LocalRows::with_update(const gpu::CommandList&, optim::Update&,
                                        const graph::ParameterStore&, const Step&, gpu::Kernels&,
                                        gpu::Allocator&) {
  fail(Code::state,
       "a model with tables on parameter servers cannot be trained without these servers");
}

void LocalRows::declare(std::vector<ServedTable> tables) {
  declared_ = std::move(tables);
  fill();
}

void LocalRows::load(const checkpoint::Files& files, const std::string& origin) {
  saved_.load(files, origin);
  if (!declared_.empty()) fill();
}

// Drops the saved rows, so that they are not kept twice.
void LocalRows::fill() {
  const std::vector<server::Rows> rows = saved_.match(declared_);
  saved_ = {};
  tables_.clear();
  for (const ServedTable& table : declared_)
    tables_.emplace_back(table.spec, server::RowOptimizer{.adagrad = false});
  for (size_t i = 0; i < rows.size(); ++i) tables_[i].put(rows[i]);
}

void LocalRows::fetch(std::span<server::Rows> tables) {
  for (size_t i = 0; i < tables.size(); ++i)
    tables_[i].read(tables[i].ids, tables[i].values.data());
}

}  // namespace etr::parallel

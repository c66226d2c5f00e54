// What a batch needs of tables whose rows lie elsewhere: the rows that it names, and for each id its row among these.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "nn/model.h"
#include "optim/update.h"
#include "parallel/served_rows.h"
#include "pipeline/item.h"

namespace etr::train {

class ServedTables {
 public:
  // The tables of `net`, which has some, begin as `seed` says where nothing else is known of them. `rows` outlives this.
  ServedTables(parallel::ServedRows& rows, const nn::ModelGraph& net, uint64_t seed);

  // The batch with fields for the inputs `table` and `rows` of each table (see nn::ServedTable). Error(invalid_argument) that names
  // field, sample and position of an id which is not in the table.
  pipeline::Item with_rows(const pipeline::Item& batch) const;

  // The same for a training step, whose gradients go back to where the rows are.
  pipeline::Item with_rows_of_step(const pipeline::Item& batch, uint32_t step) const;

 private:
  struct Table {
    std::string name, ids, rows, table;  // the parameter, and fields
    int64_t entries, width;
  };

  struct Looked;

  Looked look_up(const pipeline::Item& batch) const;

  parallel::ServedRows& rows_;
  std::vector<Table> tables_;
};

// nullptr where the model's tables are parameters like any other. Error(unsupported) where the update does more to gradients
// than the servers know of.
std::unique_ptr<ServedTables> served_tables(parallel::ServedRows* rows, const nn::ModelGraph& net,
                                            const optim::UpdateSpec& update, uint64_t seed);

}  // namespace etr::train

// Sparse tables whose rows lie elsewhere: adds to a batch the rows that it names, and for each id
// its place among them.
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
  // The tables of `net`, which has at least one, are initialized from `seed` unless something else
  // is known of them. `rows` must outlive this object.
  ServedTables(parallel::ServedRows& rows, const nn::ModelGraph& net, uint64_t seed);

  // Returns the batch with fields for the inputs `table` and `rows` of each table (see
  // nn::ServedTable). Error(invalid_argument) names field, sample and position of an id that is not
  // in the table.
  pipeline::Item with_rows(const pipeline::Item& batch) const;

  // The same for a training step, whose gradients go back to the owner of the rows.
  pipeline::Item with_rows_of_step(const pipeline::Item& batch, uint32_t step) const;

 private:
  struct Table {
    std::string name, ids, rows, table;  // the parameter, and three fields
    int64_t entries, width;
  };

  struct Looked;

  Looked look_up(const pipeline::Item& batch) const;

  parallel::ServedRows& rows_;
  std::vector<Table> tables_;
};

// Returns nullptr if the model's tables are ordinary parameters. Error(unsupported) if the update
// does something to gradients that the servers do not support.
std::unique_ptr<ServedTables> served_tables(parallel::ServedRows* rows, const nn::ModelGraph& net,
                                            const optim::UpdateSpec& update, uint64_t seed);

}  // namespace etr::train

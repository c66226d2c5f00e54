// Sparse tables whose rows lie elsewhere: a learner fetches the rows that a batch names.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/store.h"
#include "server/table.h"

namespace etr::parallel {

struct ServedTable {
  std::string name;
  server::TableSpec spec;
};

class ServedRows {
 public:
  virtual ~ServedRows() = default;

  // Called once, before any other function and before Sharing::share().
  virtual void declare(std::vector<ServedTable> tables) = 0;

  // Fetches the rows whose ids, ascending and unique, are given for each table, into `values`,
  // which already has the right length.
  virtual void fetch(std::span<server::Rows> tables) = 0;

  // Announces that the step with this number (ops::StepValues::step) trains on these rows of each
  // table.
  virtual void expect(uint32_t step, std::vector<std::vector<uint32_t>> ids) = 0;
};

// The tables of a checkpoint:
//
//   tables.json              {NAME: {"entries", "width", "seed"}}
//   tables.safetensors       NAME.ids i32 [n], NAME.values f32 [n, width],
//                            and perhaps NAME.state f32 [n, width]
//
// A table's other rows have their initial values, which follow from the seed.
class SavedRows {
 public:
  void load(const checkpoint::Files& files, const std::string& origin);
  bool empty() const { return origin_.empty(); }

  // Returns the rows of each table and sets the tables' seeds to the checkpoint's.
  // Error(invalid_argument) if the checkpoint has other tables, or if one side has none.
  std::vector<server::Rows> match(std::vector<ServedTable>& tables) const;

  static void save(checkpoint::Files& files, std::span<const ServedTable> tables,
                   std::span<const server::Rows> rows);

 private:
  struct Saved {
    server::TableSpec spec;  // entries, width and seed
    server::Rows rows;
  };

  std::string origin_;
  std::map<std::string, Saved> tables_;
};

// Sums the gradients of rows from step to step until they are pushed.
class RowGradients {
 public:
  void declare(std::span<const ServedTable> tables);
  void expect(uint32_t step, std::vector<std::vector<uint32_t>> ids);

  // Adds a step's gradients of each table, whose rows are in the order given to expect().
  // `updates`: whether they count; otherwise they are dropped.
  void add(uint32_t step, std::span<const float* const> gradients, bool updates);

  // Returns the sums since the previous call.
  std::vector<server::Rows> take();

 private:
  std::vector<size_t> widths_;
  std::map<uint32_t, std::vector<std::vector<uint32_t>>> expected_;  // ids by table, for each step
  std::vector<server::Rows> sums_;
};

}  // namespace etr::parallel

// Tables whose rows lie with others: a learner takes those that a batch names.
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

  // Once, before anything else, and before Sharing::share().
  virtual void declare(std::vector<ServedTable> tables) = 0;

  // Of each table in turn the rows with these ids, which are ascending, each once: into `values`, which have their length.
  virtual void fetch(std::span<server::Rows> tables) = 0;

  // The step with this number (ops::StepValues::step) trains on these rows of each table.
  virtual void expect(uint32_t step, std::vector<std::vector<uint32_t>> ids) = 0;
};

// Of a checkpoint:
//
//   tables.json              {NAME: {"entries", "width", "seed"}}
//   tables.safetensors       NAME.ids i32 [n], NAME.values f32 [n, width], NAME.state likewise or not there
//
// A table's other rows have their first values, which the seed gives.
class SavedRows {
 public:
  void load(const checkpoint::Files& files, const std::string& origin);
  bool empty() const { return origin_.empty(); }

  // The rows of each table, whose seeds become those of the checkpoint. Error(invalid_argument) where it has other tables, also where
  // there is none here.
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

// The gradients of rows, from a step's to those that are pushed.
class RowGradients {
 public:
  void declare(std::span<const ServedTable> tables);
  void expect(uint32_t step, std::vector<std::vector<uint32_t>> ids);

  // What a step gives, of which expect() has told; `updates`: whether it counts. `gradients`: of each table the rows in their order.
  void add(uint32_t step, std::span<const float* const> gradients, bool updates);

  // The sums since the last time.
  std::vector<server::Rows> take();

 private:
  std::vector<size_t> widths_;
  std::map<uint32_t, std::vector<std::vector<uint32_t>>> expected_;  // ids by table, by step
  std::vector<server::Rows> sums_;
};

}  // namespace etr::parallel

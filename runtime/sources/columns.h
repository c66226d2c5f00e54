// Typed columns of tables, as in the option 'columns' of csv and jsonl:
//
//   x:f32, label:i32=species, features:f32=a+b+c, name:text
//
// FIELD:TYPE reads the column FIELD, FIELD:TYPE=COLUMN another column, and columns joined by + form
// a vector.
#pragma once

#include <string>
#include <vector>

#include "pipeline/item.h"

namespace etr::sources {

enum class ColumnType { u8, i32, f32, text };

struct Column {
  std::string field;
  ColumnType type = ColumnType::f32;
  std::vector<std::string> from;
};

// Throws Error(invalid_argument) that shows the faulty entry.
std::vector<Column> parse_columns(const std::string& text, const std::string& stage);

// An uninitialised tensor of the column's type, which must not be text.
Tensor column_tensor(const Column& column, Shape shape);
// Sets one element. Throws Error(corrupt_data) if the value does not fit.
void set_element(Tensor& tensor, size_t index, double value, const std::string& what);

}  // namespace etr::sources

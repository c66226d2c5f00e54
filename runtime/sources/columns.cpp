#include "sources/columns.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/text.h"
#include "pipeline/names.h"

namespace etr::sources {
namespace {

ColumnType type_of(std::string_view name, std::string_view entry, const std::string& stage) {
  if (name == "u8") return ColumnType::u8;
  if (name == "i32") return ColumnType::i32;
  if (name == "f32") return ColumnType::f32;
  if (name == "text") return ColumnType::text;
  fail(Code::invalid_argument, stage, ": 'columns' has the entry '", entry, "' of type '", name,
       "'; types are u8, i32, f32 and text");
}

}  // namespace

std::vector<Column> parse_columns(const std::string& text, const std::string& stage) {
  std::vector<Column> out;
  for (std::string_view entry : split(text, ',')) {
    entry = trim(entry);
    const size_t equals = entry.find('=');
    const std::string_view left = entry.substr(0, equals);
    const size_t colon = left.find(':');
    if (colon == std::string_view::npos || colon == 0)
      fail(Code::invalid_argument, stage, ": 'columns' has the entry '", entry,
           "'; write FIELD:TYPE or FIELD:TYPE=COLUMN, as in 'x:f32,label:i32=species'");
    Column column;
    column.field = std::string(trim(left.substr(0, colon)));
    pipeline::check_name(column.field, "a field");
    column.type = type_of(trim(left.substr(colon + 1)), entry, stage);
    if (equals == std::string_view::npos)
      column.from.push_back(column.field);
    else
      for (const std::string_view name : split(entry.substr(equals + 1), '+'))
        column.from.emplace_back(trim(name));
    if (column.type == ColumnType::text && column.from.size() > 1)
      fail(Code::invalid_argument, stage, ": '", entry,
           "' joins text columns; only numbers can be");
    for (const Column& earlier : out)
      if (earlier.field == column.field)
        fail(Code::invalid_argument, stage, ": 'columns' names the field '", column.field,
             "' twice");
    out.push_back(std::move(column));
  }
  return out;
}

Tensor column_tensor(const Column& column, Shape shape) {
  return Tensor(column.type == ColumnType::u8    ? DType::u8
                : column.type == ColumnType::i32 ? DType::i32
                                                 : DType::f32,
                std::move(shape));
}

void set_element(Tensor& tensor, size_t index, double value, const std::string& what) {
  if (tensor.dtype() == DType::f32) {
    constexpr double kMost = std::numeric_limits<float>::max();
    if (std::isfinite(value) && std::abs(value) > kMost && std::isinf(static_cast<float>(value)))
      fail(Code::corrupt_data, what, ": ", value, " is beyond the range of f32");
    tensor.mutable_view<float>()[index] = static_cast<float>(value);
    return;
  }
  const bool u8 = tensor.dtype() == DType::u8;
  const double low = u8 ? 0 : -2147483648.0, high = u8 ? 255 : 2147483647.0;
  if (!(value >= low && value <= high) || value != std::floor(value))
    fail(Code::corrupt_data, what, ": ", value, " is not a whole number that fits ",
         dtype_name(tensor.dtype()));
  if (u8)
    tensor.mutable_view<uint8_t>()[index] = static_cast<uint8_t>(value);
  else
    tensor.mutable_view<int32_t>()[index] = static_cast<int32_t>(value);
}

}  // namespace etr::sources

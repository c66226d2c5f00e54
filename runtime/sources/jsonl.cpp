// Lines of JSON, plain, .gz or .zst, as samples with typed fields.
#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "sources/columns.h"
#include "sources/line_source.h"

namespace etr::sources {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"pattern", OptionType::string, nullptr, "path of the files, may contain globs and braces", 0,
     0, "path"},
    {"columns", OptionType::string, nullptr,
     "fields with their types and keys: 'x:f32,label:i32=meta.class,name:text'; lists become "
     "tensors"},
    kShuffleShardsOption,
    kMaxRatioOption,
    kMaxLineOption,
};

// In a line, which max_line_bytes alone does not keep from taking gigabytes.
constexpr size_t kMostContainers = 1 << 20;

class Jsonl final : public LineSource {
 public:
  Jsonl(const Options& options, const StageContext& context)
      : LineSource(options, context), columns_(parse_columns(options.string("columns"), "jsonl")) {}

 protected:
  bool read(Item& item) override {
    do
      if (!next_line(line_)) return false;
    while (trim(line_).empty());
    const Json row = parse_json(
        line_, "the line",
        {.comments = false, .code = Code::corrupt_data, .most_containers = kMostContainers});
    if (!row.is_object()) fail(Code::corrupt_data, "the line is not a JSON object");
    item.fields.clear();
    for (const Column& column : columns_) item.fields.push_back({column.field, value(column, row)});
    item.origin = origin(current_key());
    return true;
  }

 private:
  // Looks up "a.b.c" in nested objects.
  static const Json& find(const Json& row, const std::string& key) {
    const Json* at = &row;
    for (const std::string_view part : split(key, '.')) {
      const auto found = at->is_object() ? at->find(std::string(part)) : at->end();
      if (!at->is_object() || found == at->end())
        fail(Code::corrupt_data, "the object has no key '", key, "'");
      at = &*found;
    }
    return *at;
  }

  Tensor value(const Column& column, const Json& row) const {
    const std::string& key = column.from[0];
    if (column.type == ColumnType::text) {
      const Json& text = find(row, key);
      if (text.is_null()) fail(Code::corrupt_data, "key '", key, "' is null, and a column of text needs a value");
      return Tensor::text(text.is_string() ? text.get<std::string>() : text.dump());
    }
    if (column.from.size() == 1) {
      const Json& found = find(row, key);
      Shape shape;
      for (const Json* at = &found; at->is_array(); at = &(*at)[0]) {
        shape.push_back(static_cast<int64_t>(at->size()));
        if (at->empty()) break;
      }
      check_in_line(shape, key);
      Tensor out = column_tensor(column, shape);
      size_t filled = 0;
      fill(out, filled, found, 0, "key '" + key + "'");
      return out;
    }
    Tensor out = column_tensor(column, {static_cast<int64_t>(column.from.size())});
    for (size_t i = 0; i < column.from.size(); ++i)
      set_element(out, i, number(find(row, column.from[i]), "key '" + column.from[i] + "'"),
                  "key '" + column.from[i] + "'");
    return out;
  }

  // An element takes a byte of the line at least. A ragged list may seem to have far more of them.
  void check_in_line(const Shape& shape, const std::string& key) const {
    uint64_t left = line_.size();
    for (const int64_t size : shape) {
      if (size > 0 && static_cast<uint64_t>(size) > left)
        fail(Code::corrupt_data, "key '", key, "' is a ragged list; its first elements give ",
             shape_text(shape));
      if (size > 0) left /= static_cast<uint64_t>(size);
    }
  }

  static double number(const Json& value, const std::string& what) {
    if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
    if (!value.is_number()) fail(Code::corrupt_data, what, ": ", value.dump(), " is not a number");
    return value.get<double>();
  }

  static void fill(Tensor& out, size_t& filled, const Json& value, size_t axis,
                   const std::string& what) {
    if (axis == out.shape().size()) {
      set_element(out, filled++, number(value, what), what);
      return;
    }
    if (!value.is_array() || static_cast<int64_t>(value.size()) != out.shape()[axis])
      fail(Code::corrupt_data, what, " is a ragged list; its first elements give ",
           shape_text(out.shape()));
    for (const Json& element : value) fill(out, filled, element, axis + 1, what);
  }

  const std::vector<Column> columns_;
  std::string line_;
};

}  // namespace
}  // namespace etr::sources

namespace etr::pipeline {

extern const StageSpec jsonl_stage;
const StageSpec jsonl_stage{"jsonl", "lines of JSON Lines files", StageKind::source,
                            sources::kOptions, make_stage<sources::Jsonl>};

}  // namespace etr::pipeline

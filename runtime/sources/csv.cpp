// Rows of CSV files (RFC 4180), plain, .gz or .zst, as samples with typed fields.
#include <algorithm>
#include <utility>

#include "core/error.h"
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
     "fields with their types and columns: 'x:f32,label:i32=species,features:f32=a+b+c,name:text'"},
    {"header", OptionType::boolean, "true",
     "the first row names the columns; otherwise they are named 0, 1, 2, ..."},
    {"delimiter", OptionType::string, "\",\"", "the character between columns; '\\t' for tabs"},
    kShuffleShardsOption,
    kMaxRatioOption,
    kMaxLineOption,
};

// Of a row. An empty cell takes 32 times its text in memory.
constexpr size_t kMostColumns = 1 << 20;

constexpr std::string_view kNoDelimiters("\"\r\n\0", 4);

class Csv final : public LineSource {
 public:
  Csv(const Options& options, const StageContext& context)
      : LineSource(options, context),
        columns_(parse_columns(options.string("columns"), "csv")),
        header_(options.boolean("header")) {
    const std::string delimiter = options.string("delimiter");
    if (delimiter != "\\t" &&
        (delimiter.size() != 1 || kNoDelimiters.find(delimiter[0]) != std::string_view::npos))
      fail(Code::invalid_argument, "csv: 'delimiter' is '", delimiter,
           "'; it must be one ASCII character, and no quote or line end");
    delimiter_ = delimiter == "\\t" ? '\t' : delimiter[0];
  }

 protected:
  void open(const std::string& path) override {
    path_ = path;
    LineSource::open(path);
    at_begin_ = true;
    names_.clear();
    places_.clear();
    if (!header_) return;
    if (!read_row()) fail(Code::corrupt_data, "'", path, "' is empty; expected a row with names");
    for (const std::string& cell : cells_) names_.emplace_back(trim(cell));
    find_places();
  }

  bool read(Item& item) override {
    if (!read_row()) return false;
    if (names_.empty()) {
      for (size_t i = 0; i < cells_.size(); ++i) names_.push_back(std::to_string(i));
      find_places();
    }
    if (cells_.size() != names_.size())
      fail(Code::corrupt_data, "the row has ", cells_.size(), " columns; the first has ",
           names_.size());
    item.fields.clear();
    for (size_t i = 0; i < columns_.size(); ++i)
      item.fields.push_back({columns_[i].field, value(columns_[i], places_[i])});
    item.origin = origin(current_key());
    return true;
  }

  bool can_go_on() const override { return !places_.empty() && LineSource::can_go_on(); }
  std::string current_key() const override {
    return row_begin_ > 0 ? cat("line ", row_begin_) : "";
  }

 private:
  // Finds the next line that begins a row. Like Python's csv module, skips empty lines, but not
  // lines of spaces or "".
  bool begin_row() {
    do {
      row_begin_ = line_number() + 1;
      if (!next_line(line_)) return false;
      if (std::exchange(at_begin_, false) && line_.starts_with("\xEF\xBB\xBF")) line_.erase(0, 3);
    } while (ends_at(0));
    return true;
  }

  // Whether only line terminators are left: some Windows tools write "\r\r\n".
  bool ends_at(size_t i) const { return line_.find_first_not_of('\r', i) == std::string::npos; }

  // Splits the next row into cells_. A quoted cell may contain delimiters, quotes ("") and line
  // breaks.
  bool read_row() {
    cells_.clear();
    if (!begin_row()) return false;
    std::string cell;
    size_t row_bytes = line_.size();
    bool quoted = false;
    const auto end_cell = [&] {
      if (cells_.size() == kMostColumns)
        fail(Code::unsupported, "the row has more than ", kMostColumns, " columns");
      cells_.push_back(std::move(cell));
      cell.clear();
    };
    for (size_t i = 0;; ++i) {
      if (i == line_.size()) {
        if (!quoted) break;
        cell += line_ending();
        if (!next_line(line_))
          fail(Code::corrupt_data, "a quote is opened in this row and never closed");
        row_bytes += line_.size();
        if (row_bytes > max_line_bytes().bytes)
          fail(Code::unsupported, "the row is longer than ", max_line_bytes().bytes, " bytes (",
               max_line_bytes().name, "); is a quote not closed?");
        i = static_cast<size_t>(-1);
        continue;
      }
      const char c = line_[i];
      if (quoted) {
        if (c != '"')
          cell += c;
        else if (i + 1 < line_.size() && line_[i + 1] == '"')
          cell += line_[++i];
        else
          quoted = false;
      } else if (c == '"' && cell.empty()) {
        quoted = true;
      } else if (c == delimiter_) {
        end_cell();
      } else if (c == '\r') {
        if (ends_at(i)) break;
        fail(Code::corrupt_data,
             "a carriage return within a field without quotes; lines end with \\n or \\r\\n");
      } else {
        cell += c;
      }
    }
    end_cell();
    return true;
  }

  void find_places() {
    std::vector<std::vector<size_t>> all;
    for (const Column& column : columns_) {
      std::vector<size_t> places;
      for (const std::string& name : column.from) {
        const auto found = std::find(names_.begin(), names_.end(), name);
        if (found == names_.end())
          fail(Code::invalid_argument, "'", path_, "' has no column '", name, "'",
               suggestion(name, names_));
        if (std::find(found + 1, names_.end(), name) != names_.end())
          fail(Code::invalid_argument, "'", path_, "' has more than one column '", name, "'");
        places.push_back(static_cast<size_t>(found - names_.begin()));
      }
      all.push_back(std::move(places));
    }
    places_ = std::move(all);
  }

  Tensor value(const Column& column, const std::vector<size_t>& places) const {
    if (column.type == ColumnType::text) return Tensor::text(cells_[places[0]]);
    Tensor out = column_tensor(
        column, places.size() == 1 ? Shape{} : Shape{static_cast<int64_t>(places.size())});
    for (size_t i = 0; i < places.size(); ++i) {
      const std::string what = "column '" + names_[places[i]] + "'";
      set_element(out, i, parse_number<double>(trim(cells_[places[i]]), what, "a number"), what);
    }
    return out;
  }

  const std::vector<Column> columns_;
  const bool header_;
  char delimiter_ = ',';
  std::string path_;
  std::string line_;
  bool at_begin_ = false;  // at the beginning of a file, where a byte order mark may be
  uint64_t row_begin_ = 0;
  std::vector<std::string> cells_, names_;
  std::vector<std::vector<size_t>> places_;  // of each column's cells
};

}  // namespace
}  // namespace etr::sources

namespace etr::pipeline {

extern const StageSpec csv_stage;
const StageSpec csv_stage{"csv", "rows of CSV files", StageKind::source, sources::kOptions,
                          make_stage<sources::Csv>};

}  // namespace etr::pipeline

// Packs several sequences of different length into rows of fixed length, to avoid padding. Each
// sequence goes into the open row that it fills best. Besides the field, [length], a row has
//
//   segment   i32 [length]   0 is padding, n the n-th sequence of the row: for attention masks
//   position  i32 [length]   from 0 in each sequence
#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"field", OptionType::string, nullptr, "field with the sequences: u8, i32 or f32 [n]"},
    {"length", OptionType::integer, nullptr, "length of a row", 1, 1 << 30},
    {"open_rows", OptionType::integer, "16", "number of rows that are filled at the same time", 1,
     1e6, "rows", "", "open"},
    {"too_long", OptionType::string, "\"split\"",
     "what happens to a sequence longer than a row: split: it continues in further rows; cut: it "
     "is truncated; error: it is a bad record",
     0, 0, "", "split|cut|error"},
};

class PackSequences final : public SerialStage {
 public:
  PackSequences(const Options& options, const StageContext&)
      : field_(options.string("field")),
        length_(options.integer("length")),
        open_(static_cast<size_t>(options.integer("open_rows"))),
        too_long_(options.string("too_long")) {}

  SerialTraits traits() const override {
    return {.depends_on_content = true, .joins_samples = true};
  }
  double holds_bytes(double) const override {
    return 4.0 * static_cast<double>(length_) * static_cast<double>(open_);
  }

  void start_epoch(uint64_t) override { rows_.clear(); }

  void process(Item&& item, Emitter& out) override {
    const Tensor sequence = require_field(item, field_);
    if (sequence.shape().size() != 1)
      fail(Code::invalid_argument, "pack_sequences: field '", field_, "' is ",
           shape_text(sequence.shape()), "; a sequence has one axis");
    const int64_t n = sequence.shape()[0];
    if (n > length_ && too_long_ == "error")
      fail(Code::invalid_argument, "pack_sequences: a sequence of ", n, " is longer than a row of ",
           length_);
    if (!rows_.empty() && rows_.front().dtype != sequence.dtype())
      fail(Code::invalid_argument, "pack_sequences: field '", field_, "' is ",
           dtype_name(sequence.dtype()), " here and ", dtype_name(rows_.front().dtype), " before");
    const int64_t end = too_long_ == "cut" ? std::min(n, length_) : n;
    for (int64_t begin = 0; begin < end; begin += length_)
      add({item, sequence, begin, std::min(end - begin, length_)}, out);
  }

  void finish_pass(Emitter& out) override {
    for (Row& row : rows_) emit(row, out);
    rows_.clear();
  }

 private:
  struct Part {
    Item item;
    Tensor sequence;
    int64_t begin, size;
  };
  struct Row {
    DType dtype;
    std::vector<Part> parts;
    int64_t filled = 0;
  };

  void add(Part part, Emitter& out) {
    auto best = rows_.end();
    for (auto row = rows_.begin(); row != rows_.end(); ++row)
      if (row->filled + part.size <= length_ && (best == rows_.end() || row->filled > best->filled))
        best = row;
    if (best == rows_.end()) {
      if (rows_.size() == open_) {  // emits the fullest row
        const auto fullest =
            std::max_element(rows_.begin(), rows_.end(),
                             [](const Row& a, const Row& b) { return a.filled < b.filled; });
        emit(*fullest, out);
        rows_.erase(fullest);
      }
      best = rows_.insert(rows_.end(), {part.sequence.dtype(), {}, 0});
    }
    best->filled += part.size;
    best->parts.push_back(std::move(part));
    if (best->filled < length_) return;
    emit(*best, out);
    rows_.erase(best);
  }

  void emit(Row& row, Emitter& out) const {
    const size_t element = dtype_size(row.dtype);
    Tensor values(row.dtype, {length_}), segments(DType::i32, {length_}),
        positions(DType::i32, {length_});
    std::memset(values.mutable_data(), 0, values.size_bytes());
    std::memset(segments.mutable_data(), 0, segments.size_bytes());
    std::memset(positions.mutable_data(), 0, positions.size_bytes());
    auto* to = static_cast<std::byte*>(values.mutable_data());
    int32_t* segment = segments.mutable_view<int32_t>().data();
    int32_t* position = positions.mutable_view<int32_t>().data();
    for (size_t p = 0; p < row.parts.size(); ++p) {
      const Part& part = row.parts[p];
      const auto size = static_cast<size_t>(part.size);
      std::memcpy(to,
                  static_cast<const std::byte*>(part.sequence.data()) +
                      static_cast<size_t>(part.begin) * element,
                  size * element);
      to += size * element;
      for (size_t i = 0; i < size; ++i) {
        *segment++ = static_cast<int32_t>(p + 1);
        *position++ = static_cast<int32_t>(i);
      }
    }
    Item item = row.parts.front().item;
    item.fields.clear();
    item.set(field_, std::move(values));
    item.set("segment", std::move(segments));
    item.set("position", std::move(positions));
    out.emit(std::move(item));
  }

  const std::string field_;
  const int64_t length_;
  const size_t open_;
  const std::string too_long_;
  std::vector<Row> rows_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec pack_sequences_stage;
const StageSpec pack_sequences_stage{
    "pack_sequences", "packs several sequences into rows of equal length", StageKind::serial,
    stages::kOptions, make_stage<stages::PackSequences>};

}  // namespace etr::pipeline

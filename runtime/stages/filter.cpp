// Drops samples whose field has a value outside of a range or not in a list.
#include <algorithm>

#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"field", OptionType::string, nullptr, "numeric field to test"},
    {"min", OptionType::number, "-1e300", "smallest value to keep"},
    {"max", OptionType::number, "1e300", "largest value to keep"},
    {"values", OptionType::numbers, "[]", "values to keep; empty: all"},
};

class FilterSamples final : public MapStage {
 public:
  FilterSamples(const Options& options, const StageContext&)
      : field_(options.string("field")),
        min_(options.number("min")),
        max_(options.number("max")),
        values_(options.numbers("values")) {}

  void process(Item& item, uint64_t) const override {
    const Tensor& field = require_field(item, field_);
    if (field.dtype() == DType::u8) item.dropped = !all_stay(field.view<uint8_t>());
    if (field.dtype() == DType::u16) item.dropped = !all_stay(field.view<uint16_t>());
    if (field.dtype() == DType::i32) item.dropped = !all_stay(field.view<int32_t>());
    if (field.dtype() == DType::f32) item.dropped = !all_stay(field.view<float>());
  }

  bool may_drop() const override { return true; }

 private:
  template <typename T>
  bool all_stay(std::span<const T> values) const {
    return std::all_of(values.begin(), values.end(), [&](T element) {
      const auto v = static_cast<double>(element);
      return v >= min_ && v <= max_ &&
             (values_.empty() || std::find(values_.begin(), values_.end(), v) != values_.end());
    });
  }

  const std::string field_;
  const double min_, max_;
  const std::vector<double> values_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec filter_stage;
const StageSpec filter_stage{"filter", "keeps samples by the values of a field", StageKind::map,
                             stages::kOptions, make_stage<stages::FilterSamples>};

}  // namespace etr::pipeline

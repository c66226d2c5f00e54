// Another element type for a field: values are kept, u8 and i32 clamp and round; scaled, full scale is 255 for u8 and 1
// for f32.
#include <algorithm>
#include <cmath>

#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"field", OptionType::string, "\"image\"", "field to convert"},
    {"to", OptionType::string, nullptr, "the element type", 0, 0, "", "u8|i32|f32"},
    {"scale", OptionType::boolean, "false", "u8 to f32 divides by 255, f32 to u8 multiplies by it"},
};

class Cast final : public MapStage {
 public:
  Cast(const Options& options, const StageContext&)
      : field_(options.string("field")), scale_(options.boolean("scale")) {
    const std::string to = options.string("to");
    to_ = to == "u8" ? DType::u8 : to == "i32" ? DType::i32 : DType::f32;
  }

  void process(Item& item, uint64_t) const override {
    const Tensor& from = require_field(item, field_);
    if (from.dtype() == to_) return;
    double factor = 1;
    if (scale_ && from.dtype() == DType::u8 && to_ == DType::f32) factor = 1.0 / 255;
    if (scale_ && from.dtype() == DType::f32 && to_ == DType::u8) factor = 255;
    Tensor out(to_, from.shape());
    if (from.dtype() == DType::u8) convert<uint8_t>(from, out, factor);
    if (from.dtype() == DType::i32) convert<int32_t>(from, out, factor);
    if (from.dtype() == DType::f32) convert<float>(from, out, factor);
    item.set(field_, std::move(out));
  }

 private:
  template <typename From>
  void convert(const Tensor& from, Tensor& out, double factor) const {
    if (to_ == DType::f32) {
      fill<From, float>(from, out, [&](double v) { return static_cast<float>(v * factor); });
    } else if (to_ == DType::u8) {
      fill<From, uint8_t>(from, out,
                          [&](double v) { return clamped<uint8_t>(v * factor, 0, 255); });
    } else {
      fill<From, int32_t>(
          from, out, [](double v) { return clamped<int32_t>(v, -2147483648.0, 2147483647.0); });
    }
  }

  template <typename To>
  static To clamped(double value, double low, double high) {
    return static_cast<To>(std::clamp(std::isnan(value) ? 0.0 : std::nearbyint(value), low, high));
  }

  template <typename From, typename To, typename F>
  static void fill(const Tensor& from, Tensor& out, F&& f) {
    std::transform(from.view<From>().begin(), from.view<From>().end(),
                   out.mutable_view<To>().begin(),
                   [&](From v) { return f(static_cast<double>(v)); });
  }

  const std::string field_;
  DType to_;
  const bool scale_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec cast_stage;
const StageSpec cast_stage{"cast", "another element type for a field", StageKind::map,
                           stages::kOptions, make_stage<stages::Cast>};

}  // namespace etr::pipeline

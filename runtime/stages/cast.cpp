// Converts a field to another element type. Values are kept; integers are rounded and clamped. If
// scaled, full scale is 255 for u8, 65535 for u16 and 1 for f32.
#include <algorithm>
#include <cmath>

#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"field", OptionType::string, "\"image\"", "field to convert"},
    {"to", OptionType::string, nullptr, "new element type", 0, 0, "", "u8|u16|i32|f32"},
    {"scale", OptionType::boolean, "false",
     "rescale between the ranges of u8 (0 to 255), u16 (0 to 65535) and f32 (0 to 1)"},
};

class Cast final : public MapStage {
 public:
  Cast(const Options& options, const StageContext&)
      : field_(options.string("field")), scale_(options.boolean("scale")) {
    const std::string to = options.string("to");
    to_ = to == "u8" ? DType::u8 : to == "u16" ? DType::u16 : to == "i32" ? DType::i32 : DType::f32;
  }

  void process(Item& item, uint64_t) const override {
    const Tensor& from = require_field(item, field_);
    if (from.dtype() == to_) return;
    const bool scales = scale_ && from.dtype() != DType::i32 && to_ != DType::i32;
    const double factor = scales ? full_scale(to_) / full_scale(from.dtype()) : 1;
    Tensor out(to_, from.shape());
    if (from.dtype() == DType::u8) convert<uint8_t>(from, out, factor);
    if (from.dtype() == DType::u16) convert<uint16_t>(from, out, factor);
    if (from.dtype() == DType::i32) convert<int32_t>(from, out, factor);
    if (from.dtype() == DType::f32) convert<float>(from, out, factor);
    item.set(field_, std::move(out));
  }

 private:
  static double full_scale(DType dtype) {
    return dtype == DType::u8 ? 255 : dtype == DType::u16 ? 65535 : 1;
  }

  template <typename From>
  void convert(const Tensor& from, Tensor& out, double factor) const {
    if (to_ == DType::f32) {
      fill<From, float>(from, out, [&](double v) { return static_cast<float>(v * factor); });
    } else if (to_ == DType::u8) {
      fill<From, uint8_t>(from, out,
                          [&](double v) { return clamped<uint8_t>(v * factor, 0, 255); });
    } else if (to_ == DType::u16) {
      fill<From, uint16_t>(from, out,
                           [&](double v) { return clamped<uint16_t>(v * factor, 0, 65535); });
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
const StageSpec cast_stage{"cast",
                           "converts a field to another element type",
                           StageKind::map,
                           stages::kOptions,
                           make_stage<stages::Cast>,
                           /*random=*/false,
                           /*prepares=*/true};

}  // namespace etr::pipeline

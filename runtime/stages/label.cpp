// Class text ("7") or number -> field "label": i32 [], or f32 [classes] one-hot.
#include <algorithm>
#include <charconv>
#include <string>

#include "core/error.h"
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"field", OptionType::string, "\"cls\"", "field with the class number, as text or i32"},
    {"classes", OptionType::integer, "0",
     "number of classes; 0: labels are not checked (one_hot needs the number)", 0, 1 << 24},
    {"one_hot", OptionType::boolean, "false",
     "produce a vector with a 1 at the class instead of the class number"},
};

const std::string kNumbers = "label";  // the field of numeric sources

class Label final : public MapStage {
 public:
  Label(const Options& options, const StageContext&)
      : field_(options.string("field")),
        classes_(options.integer("classes")),
        one_hot_(options.boolean("one_hot")) {
    if (one_hot_ && classes_ == 0)
      fail(Code::invalid_argument, "label: one_hot needs the number of 'classes'");
  }

  void process(Item& item, uint64_t) const override {
    const std::string& name = item.find(field_) ? field_ : kNumbers;
    const Tensor* field = item.find(name);
    if (field && field->dtype() == DType::i32 && field->count() == 1) {
      const int32_t number = field->view<int32_t>()[0];
      return set(item, number, std::to_string(number));
    }
    if (!field) fail(Code::not_found, "missing label: the sample has no member '.", field_, "'");
    if (field->dtype() != DType::u8)
      fail(Code::corrupt_data, "field '", name, "' is ", dtype_name(field->dtype()), " ",
           shape_text(field->shape()), ", and a label is text or one i32");
    const auto text = field->view<char>();
    int32_t value = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool rest_is_space = std::all_of(
        end, text.data() + text.size(), [](char c) { return c == '\n' || c == '\r' || c == ' '; });
    if (error != std::errc() || !rest_is_space) value = -1;
    set(item, value, std::string(text.begin(), text.end()));
  }

 private:
  void set(Item& item, int32_t value, const std::string& text) const {
    if (value < 0 || (classes_ && value >= classes_))
      fail(Code::corrupt_data, "bad label '", text,
           "'; expected a "
           "number from 0",
           classes_ ? cat(" to ", classes_ - 1) : "");
    item.remove(field_);
    item.set("label", one_hot_ ? one_hot(value) : Tensor::scalar(DType::i32, value));
  }

  Tensor one_hot(int32_t value) const {
    Tensor out(DType::f32, {classes_});
    std::fill(out.mutable_view<float>().begin(), out.mutable_view<float>().end(), 0.0f);
    out.mutable_view<float>()[static_cast<size_t>(value)] = 1;
    return out;
  }

  const std::string field_;
  const int64_t classes_;
  const bool one_hot_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec label_stage;
const StageSpec label_stage{"label", "converts a class number to an integer or one-hot label",
                            StageKind::map, stages::kOptions, make_stage<stages::Label>};

}  // namespace etr::pipeline

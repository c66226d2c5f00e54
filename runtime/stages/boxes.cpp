// Object boxes of an image, from text or numbers -> field "boxes", with a fixed number of rows.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "stages/box_ops.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr const char* kField = "boxes";
constexpr size_t kColumns = 5;

constexpr OptionSpec kOptions[] = {
    {"field", OptionType::string, "\"boxes\"",
     "field that holds the boxes: f32 [boxes, 5], or text with one line of five numbers for each "
     "box"},
    {"format", OptionType::string, "\"corners\"",
     "corners: label, left, top, right, bottom; centre: label, centre x, centre y, width, height, "
     "as in YOLO's files. Coordinates are fractions of the image's size",
     0, 0, "", "corners|centre"},
    {"classes", OptionType::integer, "0", "number of classes; 0: labels are not checked", 0,
     1 << 16},
    {"max_boxes", OptionType::integer, "32",
     "rows of the result; rows without a box get the label -1", 1, 1 << 16, "", "", "most_boxes"},
};

std::vector<float> numbers_of(const Tensor& from, const std::string& name) {
  if (from.dtype() == DType::f32) {
    const auto values = from.view<float>();
    return {values.begin(), values.end()};
  }
  if (from.dtype() != DType::u8)
    fail(Code::invalid_argument, "field '", name, "' is ", dtype_name(from.dtype()), " ",
         shape_text(from.shape()), "; boxes are f32 [boxes, 5] or text");
  std::vector<float> out;
  const auto text = from.view<char>();
  const char *at = text.data(), *end = at + text.size();
  const auto is_space = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  while ((at = std::find_if_not(at, end, is_space)) != end) {
    float value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || (next != end && !is_space(*next)))
      fail(Code::corrupt_data, "field '", name, "': '",
           std::string(at, std::find_if(at, end, is_space)), "' is not a number");
    out.push_back(value);
    at = next;
  }
  return out;
}

class Boxes final : public MapStage {
 public:
  Boxes(const Options& options, const StageContext&)
      : field_(options.string("field")),
        centred_(options.string("format") == "centre"),
        classes_(options.integer("classes")),
        most_(options.integer("max_boxes")) {}

  void process(Item& item, uint64_t) const override {
    const std::vector<float> values = numbers_of(require_field(item, field_), field_);
    const size_t count = values.size() / kColumns;
    if (values.size() % kColumns)
      fail(Code::corrupt_data, "field '", field_, "' has ", values.size(),
           " numbers; a box has five: a label and four coordinates");
    if (count > static_cast<size_t>(most_))
      fail(Code::invalid_argument, "the sample has ", counted(count, "box", "boxes"),
           ", more than 'max_boxes' (", most_, "): raise it here and in the model's loss");
    Tensor out(DType::f32, {most_, static_cast<int64_t>(kColumns)});
    const auto to = out.mutable_view<float>();
    std::ranges::fill(to, 0.0f);
    for (size_t i = 0; i < static_cast<size_t>(most_); ++i) to[i * kColumns] = -1;
    for (size_t i = 0; i < count; ++i)
      put(std::span(values).subspan(i * kColumns, kColumns), i, to.subspan(i * kColumns, kColumns));
    item.remove(field_);
    item.set(kField, std::move(out));
  }

 private:
  void put(std::span<const float> from, size_t index, std::span<float> to) const {
    const auto bad = [&](const std::string& what) {
      fail(Code::corrupt_data, "box ", index, " (", from[0], " ", from[1], " ", from[2], " ",
           from[3], " ", from[4], "): ", what);
    };
    for (const float v : from)
      if (!std::isfinite(v)) bad("its numbers must be finite");
    const float label = from[0];
    if (label < 0) return;  // an unused row
    if (label != std::floor(label) || (classes_ && label >= static_cast<float>(classes_)))
      bad(cat("the label must be a whole number from 0",
              classes_ ? cat(" to ", classes_ - 1) : std::string()));
    float left = from[1], top = from[2], right = from[3], bottom = from[4];
    if (centred_) {
      left = from[1] - from[3] / 2, right = from[1] + from[3] / 2;
      top = from[2] - from[4] / 2, bottom = from[2] + from[4] / 2;
    }
    constexpr float kSlack = 0.01f;  // tolerates rounding by other tools
    for (const float v : {left, top, right, bottom})
      if (v < -kSlack || v > 1 + kSlack)
        bad(
            cat("coordinates are fractions of the image, from 0 to 1, not pixels; this box "
                "reaches to ",
                v));
    const auto inside = [](float v) { return std::clamp(v, 0.0f, 1.0f); };
    if (!(inside(left) < inside(right) && inside(top) < inside(bottom)))
      bad(cat("it has no area (format '", centred_ ? "centre" : "corners", "')"));
    const float box[] = {label, inside(left), inside(top), inside(right), inside(bottom)};
    std::ranges::copy(box, to.begin());
  }

  const std::string field_;
  const bool centred_;
  const int64_t classes_, most_;
};

// Calls `change` with each box (left, top, right, bottom) and drops those for which it returns
// false.
template <typename Change>
void change_boxes(Item& item, const Change& change) {
  const Tensor* boxes = item.find(kField);
  if (!boxes) return;
  if (boxes->dtype() != DType::f32 || boxes->shape().size() != 2 ||
      boxes->shape()[1] != static_cast<int64_t>(kColumns))
    fail(Code::invalid_argument, "field 'boxes' is ", dtype_name(boxes->dtype()), " ",
         shape_text(boxes->shape()),
         "; boxes that move with their image are f32 [boxes, 5]: put the stage 'boxes' before it");
  Tensor moved = item.take_writable(kField);
  const auto values = moved.mutable_view<float>();
  for (size_t i = 0; i < values.size(); i += kColumns)
    if (values[i] >= 0 && !change(values.subspan(i + 1, kColumns - 1))) values[i] = -1;
  item.set(kField, std::move(moved));
}

}  // namespace

void crop_boxes(Item& item, int64_t height, int64_t width, const Box& window) {
  const auto cut = [](float& low, float& high, double extent, double origin, double length) {
    const double a = (static_cast<double>(low) * extent - origin) / length;
    const double b = (static_cast<double>(high) * extent - origin) / length;
    low = static_cast<float>(std::clamp(a, 0.0, 1.0));
    high = static_cast<float>(std::clamp(b, 0.0, 1.0));
    return a + b >= 0 && a + b <= 2 && low < high;
  };
  change_boxes(item, [&](std::span<float> box) {
    const bool x = cut(box[0], box[2], static_cast<double>(width), window.x, window.width);
    const bool y = cut(box[1], box[3], static_cast<double>(height), window.y, window.height);
    return x && y;
  });
}

void flip_boxes(Item& item, bool vertical) {
  change_boxes(item, [&](std::span<float> box) {
    float &low = box[vertical ? 1 : 0], &high = box[vertical ? 3 : 2];
    const float kept = low;
    low = 1 - high;
    high = 1 - kept;
    return true;
  });
}

void refuse_boxes(const Item& item) {
  if (item.find(kField))
    fail(Code::unsupported,
         "this stage moves pixels in ways that boxes cannot follow; use it on samples without the "
         "field 'boxes' (flip, random_crop, random_resized_crop, center_crop and pad move boxes "
         "along)");
}

}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec boxes_stage;
const StageSpec boxes_stage{"boxes",
                            "boxes of the objects in an image, padded to a fixed number of rows",
                            StageKind::map, stages::kOptions, make_stage<stages::Boxes>};

}  // namespace etr::pipeline

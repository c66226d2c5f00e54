// Takes a random part of sequences, of fixed length and at the same position in all named fields,
// so that for example an input and its shifted target stay aligned. The counterpart of random_crop
// for sequences.
#include <cstring>

#include "core/error.h"
#include "core/text.h"
#include "pipeline/names.h"
#include "pipeline/stage.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"fields", OptionType::string, "\"input,target\"",
     "fields of equal length that are cut along their first axis"},
    {"length", OptionType::integer, nullptr, "length of the window", 1, 1 << 24, "tokens"},
};

class RandomWindow final : public MapStage {
 public:
  RandomWindow(const Options& options, const StageContext& context)
      : length_(options.integer("length")), context_(context) {
    const std::string fields = options.string("fields");
    for (const std::string_view name : split(fields, ',')) {
      fields_.emplace_back(trim(name));
      check_name(fields_.back(), "a field");
    }
  }

  void process(Item& item, uint64_t epoch) const override {
    const int64_t n = common_length(item);
    const auto begin =
        item_rng(context_, epoch, item).below(static_cast<uint32_t>(n - length_ + 1));
    for (const std::string& name : fields_) item.set(name, part(require_field(item, name), begin));
  }

 private:
  int64_t common_length(const Item& item) const {
    int64_t out = -1;
    for (const std::string& name : fields_) {
      const Tensor& field = require_field(item, name);
      const Shape& shape = field.shape();
      if (shape.empty())
        fail(Code::invalid_argument, "field '", name, "' is a single value, not a sequence");
      if (out >= 0 && shape[0] != out)
        fail(Code::invalid_argument, "field '", name, "' is ", shape[0], " long and '",
             fields_.front(), "' ", out, "; fields that are cut together are of one length");
      out = shape[0];
    }
    if (out < length_ || out > UINT32_MAX)
      fail(Code::invalid_argument, "field '", fields_.front(), "' is ", out,
           " long; the window's 'length' is ", length_);
    return out;
  }

  Tensor part(const Tensor& from, size_t begin) const {
    Shape shape = from.shape();
    const size_t stride = from.size_bytes() / static_cast<size_t>(shape[0]);
    shape[0] = length_;
    Tensor out(from.dtype(), shape);
    std::memcpy(out.mutable_data(), static_cast<const std::byte*>(from.data()) + begin * stride,
                out.size_bytes());
    return out;
  }

  std::vector<std::string> fields_;
  const int64_t length_;
  const StageContext context_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec random_window_stage;
const StageSpec random_window_stage{
    "random_window",  "cuts a random window out of sequences", StageKind::map,
    stages::kOptions, make_stage<stages::RandomWindow>,        /*random=*/true};

}  // namespace etr::pipeline

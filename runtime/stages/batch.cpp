// Stacks samples: fields of equal shape get a leading axis, [H, W, C] -> [N, H, W, C].
#include <cstring>

#include "core/error.h"
#include "stages/batching.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"size", OptionType::integer, nullptr, "samples in a batch", 1, 1 << 24, "samples"},
    {"drop_remainder", OptionType::boolean, "true",
     "drop the samples at the end of an epoch that do not fill a batch"},
};

class Batch final : public Batching {
 public:
  Batch(const Options& options, const StageContext&) : Batching(options) {}

  SerialTraits traits() const override { return {.makes_batches = true, .carries_views = true}; }

 protected:
  void check_fits(const Item& first, const Item& item) const override {
    for (const Field& field : first.fields) {
      const Tensor* other = item.find(field.name);
      if (!other)
        fail(Code::invalid_argument, "cannot batch: the sample has no field '", field.name,
             "', as those before it have");
      if (other->shape() != field.tensor.shape() || other->dtype() != field.tensor.dtype())
        fail(Code::invalid_argument, "cannot batch field '", field.name,
             "': ", dtype_name(other->dtype()), " ", shape_text(other->shape()), " beside ",
             dtype_name(field.tensor.dtype()), " ", shape_text(field.tensor.shape()),
             "; crop or resize to one size, drop the field with keep, or use padded_batch");
    }
    if (first.views) check_views(first.views->front(), item.views->front());
  }

  void join(const std::string& name, const std::vector<Item>& items, Item& batch) const override {
    const Tensor& first = *items.front().find(name);
    Tensor out(first.dtype(), with_batch(static_cast<int64_t>(items.size()), first.shape()));
    auto* to = static_cast<std::byte*>(out.mutable_data());
    const size_t bytes = first.size_bytes();
    for (const Item& item : items) {
      std::memcpy(to, item.find(name)->data(), bytes);
      to += bytes;
    }
    batch.set(name, std::move(out));
  }

 private:
  static void check_views(const ImageView& first, const ImageView& view) {
    if (view.image->shape() != first.image->shape() || view.height != first.height ||
        view.width != first.width)
      fail(Code::invalid_argument, "cannot batch an image ", shape_text(view.image->shape()),
           " cropped to ", view.height, " x ", view.width, " beside one ",
           shape_text(first.image->shape()), " cropped to ", first.height, " x ", first.width,
           ": echo with 'device' keeps images of one size; resize in front of it");
  }
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec batch_stage;
const StageSpec batch_stage{"batch",          "stacks samples into batches", StageKind::serial,
                            stages::kOptions, make_stage<stages::Batch>,     /*random=*/false,
                            /*prepares=*/true};

}  // namespace etr::pipeline

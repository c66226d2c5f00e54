// Stacks samples whose fields differ in size. Each axis is as long as the longest in the batch,
// padded at its end. A field with an axis is accompanied by FIELD_length, i32 [N]: the first extent
// of each sample. All batches have these fields, also one whose samples happen to be equally long.
#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "stages/batching.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"size", OptionType::integer, nullptr, "samples in a batch", 1, 1 << 24, "samples"},
    {"fill", OptionType::number, "0", "value of the padding", -1e9, 1e9, "", "", "value"},
    {"drop_remainder", OptionType::boolean, "false",
     "drop the samples at the end of an epoch that do not fill a batch"},
};

class PaddedBatch final : public Batching {
 public:
  PaddedBatch(const Options& options, const StageContext&)
      : Batching(options), fill_(options.number("fill")) {}

 protected:
  void check_fits(const Item& first, const Item& item) const override {
    for (const Field& field : first.fields) {
      const Tensor& other = require_field(item, field.name);
      if (other.dtype() != field.tensor.dtype() ||
          other.shape().size() != field.tensor.shape().size())
        fail(Code::invalid_argument, "cannot batch field '", field.name,
             "': ", dtype_name(other.dtype()), " ", shape_text(other.shape()), " beside ",
             dtype_name(field.tensor.dtype()), " ", shape_text(field.tensor.shape()),
             "; only lengths may differ");
    }
  }

  void join(const std::string& name, const std::vector<Item>& items, Item& batch) const override {
    const Tensor& first = *items.front().find(name);
    Shape longest = first.shape();
    bool differ = false;
    for (const Item& item : items)
      for (size_t axis = 0; axis < longest.size(); ++axis) {
        const int64_t extent = item.find(name)->shape()[axis];
        differ = differ || extent != first.shape()[axis];
        longest[axis] = std::max(longest[axis], extent);
      }
    const auto count = static_cast<int64_t>(items.size());
    Tensor stacked(first.dtype(), with_batch(count, longest));
    if (differ) fill(stacked);
    auto* to = static_cast<std::byte*>(stacked.mutable_data());
    const size_t stride = stacked.size_bytes() / items.size();
    for (const Item& item : items) {
      const Tensor& from = *item.find(name);
      copy(static_cast<const std::byte*>(from.data()), from.shape(), to, longest, 0,
           dtype_size(first.dtype()));
      to += stride;
    }
    batch.set(name, std::move(stacked));
    const std::string length = name + "_length";
    if (first.shape().empty() || items.front().find(length)) return;  // the samples' own field
    Tensor lengths(DType::i32, {count});
    for (size_t i = 0; i < items.size(); ++i)
      lengths.mutable_view<int32_t>()[i] = static_cast<int32_t>(items[i].find(name)->shape()[0]);
    batch.set(length, std::move(lengths));
  }

 private:
  void fill(Tensor& t) const {
    if (t.dtype() == DType::u8)
      std::ranges::fill(t.mutable_view<uint8_t>(),
                        static_cast<uint8_t>(std::clamp(fill_, 0.0, 255.0)));
    else if (t.dtype() == DType::u16)
      std::ranges::fill(t.mutable_view<uint16_t>(),
                        static_cast<uint16_t>(std::clamp(fill_, 0.0, 65535.0)));
    else if (t.dtype() == DType::i32)
      std::ranges::fill(t.mutable_view<int32_t>(), static_cast<int32_t>(fill_));
    else
      std::ranges::fill(t.mutable_view<float>(), static_cast<float>(fill_));
  }

  // Copies a block into the corner of a larger one, axis by axis.
  static void copy(const std::byte* from, const Shape& small, std::byte* to, const Shape& large,
                   size_t axis, size_t element) {
    size_t small_stride = element, large_stride = element;
    for (size_t a = axis + 1; a < small.size(); ++a) {
      small_stride *= static_cast<size_t>(small[a]);
      large_stride *= static_cast<size_t>(large[a]);
    }
    const auto n = small.empty() ? size_t{1} : static_cast<size_t>(small[axis]);
    if (small_stride == large_stride) {
      std::memcpy(to, from, n * small_stride);
      return;
    }
    for (size_t i = 0; i < n; ++i)
      copy(from + i * small_stride, small, to + i * large_stride, large, axis + 1, element);
  }

  const double fill_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec padded_batch_stage;
const StageSpec padded_batch_stage{
    "padded_batch", "stacks samples of different sizes, padded at the end of each axis",
    StageKind::serial, stages::kOptions, make_stage<stages::PaddedBatch>};

}  // namespace etr::pipeline

// Stacks samples: fields of equal shape get a leading axis, [H, W, C] -> [N, H, W, C].
#include <cstring>

#include "core/error.h"
#include "pipeline/stage.h"
#include "stages/batching.h"

namespace etr::stages {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"size", OptionType::integer, nullptr, "samples in a batch", 1, 1 << 24, "samples"},
    {"drop_remainder", OptionType::boolean, "true",
     "drop the samples at the end of an epoch that do not fill a batch"},
};

class Batch final : public SerialStage {
 public:
  Batch(const Options& options, const StageContext&)
      : size_(static_cast<size_t>(options.integer("size"))),
        drop_remainder_(options.boolean("drop_remainder")) {}

  void start_epoch(uint64_t) override { items_.clear(); }

  void process(Item&& item, Emitter& out) override {
    if (!items_.empty() && !item.ghost && !items_.front().ghost) check_fits(item);
    items_.push_back(std::move(item));
    if (items_.size() == size_) stack(out);
  }

  void finish_pass(Emitter& out) override {
    if (!items_.empty() && !drop_remainder_) stack(out);
    items_.clear();
  }

  bool makes_batches() const override { return true; }

 private:
  // The sample at fault is the one that differs from the batch's first.
  void check_fits(const Item& item) const {
    for (const Field& field : items_.front().fields) {
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
  }

  void stack(Emitter& out) {
    Item batch = head_of_batch(items_);
    if (!batch.ghost)
      for (const Field& field : items_.front().fields) batch.set(field.name, stack_field(field));
    items_.clear();
    out.emit(std::move(batch));
  }

  Tensor stack_field(const Field& first) const {
    Tensor out(first.tensor.dtype(),
               with_batch(static_cast<int64_t>(items_.size()), first.tensor.shape()));
    auto* to = static_cast<std::byte*>(out.mutable_data());
    const size_t bytes = first.tensor.size_bytes();
    for (const Item& item : items_) {
      std::memcpy(to, item.find(first.name)->data(), bytes);
      to += bytes;
    }
    return out;
  }

  const size_t size_;
  const bool drop_remainder_;
  std::vector<Item> items_;
};

}  // namespace
}  // namespace etr::stages

namespace etr::pipeline {

extern const StageSpec batch_stage;
const StageSpec batch_stage{"batch", "stacks samples into batches", StageKind::serial,
                            stages::kOptions, make_stage<stages::Batch>};

}  // namespace etr::pipeline

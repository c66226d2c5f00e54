// Device echo: keeps decoded examples in device memory, and makes batches of them there.
//
// The pipeline's echo node decides which samples are repeated, when and how often. Batches then
// name their samples and the operations on them (Item::views). The reservoir knows which samples
// the device already has, so a repeated one costs no upload, copy or augmentation on the host.
#pragma once

#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "graph/runner.h"
#include "pipeline/item.h"

namespace etr::train {

// Counts how many uploads device echo saved; zeros without device echo.
struct ReservoirStats {
  uint64_t capacity = 0, uploaded = 0, reused = 0;  // in examples
};

class Reservoir {
 public:
  // For batches of `batch` views like `like`. Holds `samples` examples, or fewer if that would be
  // more than a tensor of the device may hold or than a quarter of its memory, but at least two
  // batches. If there is no room for an example, it replaces the least recently used one, which is
  // uploaded again when needed.
  Reservoir(gpu::Kernels& kernels, const pipeline::ImageView& like, int64_t batch,
            uint64_t samples);

  // Returns how a runner feeds `value`.
  graph::Feed feed(graph::ValueId value);

  // Fills the upload memory of a step, the parts that feed() asked for, from a batch with fields
  // image_scale and image_shift. A smaller batch repeats its rows. Error(unsupported) for views
  // whose operations differ from those of the first ones.
  void fill(const std::vector<std::byte*>& parts, const pipeline::Item& batch);

  // Error(unsupported) for a view whose operations differ from those of the first ones.
  void check_like(const pipeline::ImageView& view) const;

  // Totals so far. Reused examples are those of batches that were already on the device.
  ReservoirStats stats() const { return {capacity_, uploaded_, reused_}; }

 private:
  struct Held {
    uint32_t slot;
    std::weak_ptr<const Tensor> image;  // expires when nobody can ask for it; then the slot is free
    std::list<const Tensor*>::iterator order;
  };

  uint64_t taps_words() const;  // of one sample
  void emit_batch(ops::Emitter& emit, const std::vector<gpu::Buffer>& parts,
                  const ops::DeviceTensor& output);
  void fill_taps(const pipeline::Resampling& by, uint32_t* to) const;
  uint32_t slot_of(const pipeline::ImageView& view, bool& is_new);
  uint32_t free_slot();
  void forget(const Tensor* image);

  gpu::Kernels& kernels_;
  const Shape example_;
  const pipeline::ImageView like_;  // without the pixels
  const int64_t batch_;
  const uint32_t words_;  // of one example
  // Words of the filter taps of one row, and one column, of a scaled image.
  uint32_t row_taps_ = 0, column_taps_ = 0;
  uint64_t capacity_;
  gpu::Arena arena_;
  gpu::Buffer examples_;
  ops::DeviceTensor means_, scaled_;
  std::unordered_map<const Tensor*, Held> held_;
  std::list<const Tensor*> order_;  // least recently used first
  std::vector<uint32_t> free_;
  uint64_t uploaded_ = 0, reused_ = 0;
};

}  // namespace etr::train

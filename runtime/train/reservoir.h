// Device echo: decoded examples that stay in device memory, and batches made of them there.
//
// The pipeline's echo node decides which samples are repeated, when and how often; batches then name
// their samples and what is to be done to them (Item::views). The reservoir knows which samples the
// device already has, so a repeated one costs neither upload nor copying nor augmenting on the host.
#pragma once

#include <list>
#include <memory>
#include <unordered_map>
#include <vector>

#include "graph/runner.h"
#include "pipeline/item.h"

namespace etr::train {

// What device echo kept from being uploaded; zeros where there is none.
struct ReservoirStats {
  uint64_t capacity = 0, uploaded = 0, reused = 0;  // in examples
};

class Reservoir {
 public:
  // For batches of `batch` views like `like`. Holds `samples` examples, or as many as the device can
  // bind or a quarter of its memory takes, but two batches at least; one that finds no room takes that
  // of the least recently used, which is uploaded again when it is needed again.
  Reservoir(gpu::Kernels& kernels, const pipeline::ImageView& like, int64_t batch,
            uint64_t samples);

  // How a runner feeds `value`.
  graph::Feed feed(graph::ValueId value);

  // Fills the upload memory of a step (as many parts as feed() asked for) for a batch with fields
  // image_scale and image_shift. Rows beyond a smaller batch repeat it. Throws Error(unsupported) for views that differ from
  // the first ones in what is done to them.
  void fill(const std::vector<std::byte*>& parts, const pipeline::Item& batch);

  // Throws Error(unsupported) for a view that differs from the first ones in what is done to it.
  void check_like(const pipeline::ImageView& view) const;

  // So far; reused: those of batches that were there already.
  ReservoirStats stats() const { return {capacity_, uploaded_, reused_}; }

 private:
  struct Held {
    uint32_t slot;
    std::weak_ptr<const Tensor> image;  // its number is given away when nobody can ask for it
    std::list<const Tensor*>::iterator order;
  };

  uint64_t taps_words() const;  // of a sample
  void emit_batch(ops::Emitter& emit, const std::vector<gpu::Buffer>& parts,
                  const ops::DeviceTensor& output);
  void fill_taps(const pipeline::Resampling& by, uint32_t* to) const;
  uint32_t slot_of(const pipeline::ImageView& view, bool& is_new);
  uint32_t free_slot();
  void forget(const Tensor* image);

  gpu::Kernels& kernels_;
  const Shape example_;
  const pipeline::ImageView like_;  // without its pixels
  const int64_t batch_;
  const uint32_t words_;  // of an example
  uint32_t row_taps_ = 0,
           column_taps_ = 0;  // words that those of a row, a column of a scaled image take
  uint64_t capacity_;
  gpu::Arena arena_;
  gpu::Buffer examples_;
  ops::DeviceTensor means_, scaled_;
  std::unordered_map<const Tensor*, Held> held_;
  std::list<const Tensor*> order_;  // the least recently used first
  std::vector<uint32_t> free_;
  uint64_t uploaded_ = 0, reused_ = 0;
};

}  // namespace etr::train

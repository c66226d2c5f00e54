#include "train/reservoir.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace etr::train {
namespace {

// What the shader knows of a sample; see shaders/reservoir.comp.
struct Record {
  uint32_t slot, is_new;
  int32_t origin_y, origin_x, step_y, step_x, top, bottom, left, right;
  float contrast, brightness;
  uint32_t adjusts, spare[3];
};
static_assert(sizeof(Record) == 64);

struct Push {
  uint32_t samples, words, width, channels, view_height, view_width;
};

Record record_of(const pipeline::ImageView& view, uint32_t slot, bool is_new) {
  const auto number = [](int64_t v) { return static_cast<int32_t>(v); };
  return {slot,
          is_new,
          number(view.origin_y),
          number(view.origin_x),
          number(view.step_y),
          number(view.step_x),
          number(view.top),
          number(view.bottom),
          number(view.left),
          number(view.right),
          view.contrast,
          view.brightness,
          view.adjusts,
          {}};
}

}  // namespace

Reservoir::Reservoir(gpu::Kernels& kernels, const pipeline::ImageView& like, int64_t batch,
                     uint64_t samples)
    : kernels_(kernels),
      example_(like.image->shape()),
      batch_(batch),
      view_height_(like.height),
      view_width_(like.width),
      words_(gpu::div_up(static_cast<uint64_t>(like.image->count()), 4)),
      arena_(kernels.device(), gpu::MemoryUse::device) {
  const uint64_t example_bytes = uint64_t{words_} * 4;
  const gpu::DeviceInfo& info = kernels.device()->info();
  const uint64_t most = std::min(info.max_storage_bytes, info.memory_bytes / 4) / example_bytes;
  capacity_ = std::max(std::min(samples, most), 2 * static_cast<uint64_t>(batch));
  examples_ = arena_.allocate(capacity_ * example_bytes);
  means_ = {arena_.allocate(static_cast<uint64_t>(batch) * 4), {batch}};
  for (uint64_t slot = capacity_; slot-- > 0;) free_.push_back(static_cast<uint32_t>(slot));
}

graph::Feed Reservoir::feed(graph::ValueId value) {
  graph::Feed feed(value);
  const auto batch = static_cast<uint64_t>(batch_);
  const auto channels = static_cast<uint32_t>(example_[2]);
  feed.upload_bytes = {batch * sizeof(Record), uint64_t{8} * channels, batch * words_ * 4};
  feed.commands = [this, batch, channels](gpu::CommandList& commands,
                                          const std::vector<gpu::Buffer>& parts,
                                          const ops::DeviceTensor& output) {
    const auto rows = static_cast<uint32_t>(batch);
    const Push push{rows,
                    words_,
                    static_cast<uint32_t>(example_[1]),
                    channels,
                    static_cast<uint32_t>(view_height_),
                    static_cast<uint32_t>(view_width_)};
    using gpu::Access;
    ops::Emitter emit(kernels_, arena_, commands);
    emit.set_label("device echo");
    const gpu::Binding records{parts[0], Access::read}, examples{examples_, Access::read};
    emit.for_channels("reservoir_put",
                      {records, {parts[2], Access::read}, {examples_, Access::read_write}}, push,
                      words_, rows);
    emit.for_rows("reservoir_mean", {records, examples, ops::writes(means_)}, push, rows,
                  push.view_width * channels);
    emit.for_channels("reservoir_view",
                      {records, examples, ops::reads(means_), {parts[1], Access::read},
                       ops::writes(output)},
                      push, push.view_width * channels, rows);
  };
  return feed;
}

void Reservoir::forget(const Tensor* image) {
  const auto it = held_.find(image);
  free_.push_back(it->second.slot);
  order_.erase(it->second.order);
  held_.erase(it);
}

uint32_t Reservoir::free_slot() {
  if (free_.empty()) {
    std::vector<const Tensor*> dead;  // samples that no stage and no batch holds any more
    for (const auto& [image, held] : held_)
      if (held.image.expired()) dead.push_back(image);
    for (const Tensor* image : dead) forget(image);
  }
  if (free_.empty()) forget(order_.front());
  const uint32_t slot = free_.back();
  free_.pop_back();
  return slot;
}

uint32_t Reservoir::slot_of(const pipeline::ImageView& view, bool& is_new) {
  const Tensor* image = view.image.get();
  const auto it = held_.find(image);
  is_new = it == held_.end();
  if (!is_new) {
    ++reused_;
    order_.splice(order_.end(), order_, it->second.order);
    return it->second.slot;
  }
  ++uploaded_;
  const uint32_t slot = free_slot();
  held_[image] = {slot, view.image, order_.insert(order_.end(), image)};
  return slot;
}

void Reservoir::fill(const std::vector<std::byte*>& parts, const pipeline::Item& batch) {
  const auto& views = *batch.views;
  const auto channels = static_cast<size_t>(example_[2]);
  auto* records = reinterpret_cast<Record*>(parts[0]);
  for (size_t s = 0; s < static_cast<size_t>(batch_); ++s) {
    const pipeline::ImageView& view = views[s % views.size()];
    bool is_new = false;
    const uint32_t slot = slot_of(view, is_new);
    records[s] = record_of(view, slot, is_new);
    if (is_new)
      std::memcpy(parts[2] + s * words_ * 4, view.image->data(), view.image->size_bytes());
  }
  auto* affine = reinterpret_cast<float*>(parts[1]);
  for (const char* name : {"image_scale", "image_shift"}) {
    const auto values = batch.find(name)->view<float>();
    for (size_t c = 0; c < channels; ++c) *affine++ = values[values.size() == 1 ? 0 : c];
  }
}

}  // namespace etr::train

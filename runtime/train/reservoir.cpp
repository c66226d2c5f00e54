#include "train/reservoir.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "train/batch_fields.h"
#include "train/byte_feed.h"

namespace etr::train {
namespace {

// What the shader gets for each sample; see shaders/reservoir.comp.
struct Record {
  uint32_t slot, is_new;
  int32_t origin_y, origin_x, step_y, step_x, top, bottom, left, right;
  uint32_t adjusts;
  float contrast, brightness;
  uint32_t jitters;
  pipeline::Jitter jitter;
  uint32_t columns_first, row_taps, column_taps, spare[3];
};
static_assert(sizeof(Record) == 128);

Record record_of(const pipeline::ImageView& view, uint32_t slot, bool is_new) {
  const auto number = [](int64_t v) { return static_cast<int32_t>(v); };
  Record out{};
  out.slot = slot;
  out.is_new = is_new;
  out.origin_y = number(view.origin_y);
  out.origin_x = number(view.origin_x);
  out.step_y = number(view.step_y);
  out.step_x = number(view.step_x);
  out.top = number(view.top);
  out.bottom = number(view.bottom);
  out.left = number(view.left);
  out.right = number(view.right);
  out.adjusts = view.adjusts;
  out.contrast = view.contrast;
  out.brightness = view.brightness;
  out.jitters = view.jitters;
  out.jitter = view.jitter;
  if (view.resampling) {
    out.columns_first = view.resampling->columns_first;
    out.row_taps = view.resampling->rows.count;
    out.column_taps = view.resampling->columns.count;
  }
  return out;
}

pipeline::ImageView without_pixels(pipeline::ImageView view) {
  view.image.reset();
  return view;
}

int64_t scaled_height(const pipeline::Resampling& by) {
  return static_cast<int64_t>(by.rows.first.size());
}
int64_t scaled_width(const pipeline::Resampling& by) {
  return static_cast<int64_t>(by.columns.first.size());
}

}  // namespace

Reservoir::Reservoir(gpu::Kernels& kernels, const pipeline::ImageView& like, int64_t batch,
                     uint64_t samples)
    : kernels_(kernels),
      example_(like.image->shape()),
      like_(without_pixels(like)),
      batch_(batch),
      words_(gpu::div_up(static_cast<uint64_t>(like.image->count()), 4)),
      arena_(kernels.device(), gpu::MemoryUse::device) {
  const uint64_t example_bytes = uint64_t{words_} * 4;
  const gpu::Device& device = *kernels.device();
  const uint64_t most =
      std::min(device.max_tensor_bytes(), device.info().memory_bytes / 4) / example_bytes;
  capacity_ = std::max(std::min(samples, most), 2 * static_cast<uint64_t>(batch));
  examples_ = arena_.allocate(capacity_ * example_bytes);
  means_ = {arena_.allocate(static_cast<uint64_t>(batch) * 8), {batch, 2}};
  if (const pipeline::Resampling* by = like.resampling.get()) {
    row_taps_ = 1 + by->most_row_taps;
    column_taps_ = 1 + by->most_column_taps;
    const int64_t row_words =
        gpu::div_up(static_cast<uint64_t>(scaled_width(*by) * example_[2]), 4);
    const Shape shape{batch, scaled_height(*by), row_words};
    scaled_ = {arena_.allocate(static_cast<uint64_t>(element_count(shape)) * 4), shape};
  }
  for (uint64_t slot = capacity_; slot-- > 0;) free_.push_back(static_cast<uint32_t>(slot));
}

graph::Feed Reservoir::feed(graph::ValueId value) {
  graph::Feed feed(value);
  const auto batch = static_cast<uint64_t>(batch_);
  const auto channels = static_cast<uint32_t>(example_[2]);
  feed.upload_bytes = {batch * sizeof(Record), uint64_t{8} * channels, batch * words_ * 4};
  if (like_.resampling) feed.upload_bytes.push_back(batch * taps_words() * 4);
  feed.in_place = true;  // most samples are already on the device
  feed.commands = [this](gpu::CommandList& commands, const std::vector<gpu::Buffer>& parts,
                         const ops::DeviceTensor& output) {
    ops::Emitter emit(kernels_, arena_, commands);
    emit.set_label("device echo");
    emit_batch(emit, parts, output);
  };
  return feed;
}

uint64_t Reservoir::taps_words() const {
  const pipeline::Resampling& by = *like_.resampling;
  return static_cast<uint64_t>(scaled_height(by) * row_taps_ + scaled_width(by) * column_taps_);
}

void Reservoir::emit_batch(ops::Emitter& emit, const std::vector<gpu::Buffer>& parts,
                           const ops::DeviceTensor& output) {
  using gpu::Access;
  const auto number = [](int64_t v) { return static_cast<uint32_t>(v); };
  const uint32_t rows = number(batch_), width = number(example_[1]), channels = number(example_[2]);
  // Data that every pixel reads should be in device memory. New pixels are read once, from where
  // they are.
  const auto brought = [&](const gpu::Buffer& part) -> gpu::Binding {
    const gpu::Buffer here = arena_.allocate(part.size_bytes);
    emit.add(gpu::Copy{part, here});
    return {here, Access::read};
  };
  const gpu::Binding records = brought(parts[0]), affine = brought(parts[1]);
  const gpu::Binding examples{examples_, Access::read};
  emit.for_channels("reservoir_put",
                    {records, {parts[2], Access::read}, {examples_, Access::read_write}}, words_,
                    words_, rows);
  gpu::Binding images = examples;
  uint32_t image_words = words_, row_bytes = width * channels;
  if (const pipeline::Resampling* by = like_.resampling.get()) {
    const struct {
      uint32_t words, width, channels, scaled_height, scaled_width, row_taps, column_taps;
    } push{words_,    width,       channels, number(scaled_height(*by)), number(scaled_width(*by)),
           row_taps_, column_taps_};
    const uint32_t row_words = number(scaled_.shape[2]);
    // Of each of a word's four bytes, a sum of sums.
    const uint64_t a = by->most_row_taps, b = by->most_column_taps;
    emit.require_iterations(
        4 * (2 + a * b + 2 * std::max(a, b)),
        cat("leave out the echo's 'device', so that the host scales images of ", example_[0], " x ",
            width, " pixels to ", push.scaled_height, " x ", push.scaled_width));
    emit.for_channels("reservoir_scale",
                      {records, examples, brought(parts[3]), ops::writes(scaled_)}, push, row_words,
                      push.scaled_height, rows);
    images = ops::reads(scaled_);
    row_bytes = 4 * row_words;
    image_words = push.scaled_height * row_words;
  }
  struct {
    uint32_t samples, words, row_bytes, channels, view_height, view_width, by_sample;
    float share;
  } push{rows,
         image_words,
         row_bytes,
         channels,
         number(like_.height),
         number(like_.width),
         like_.resampling != nullptr,
         0};
  const auto mean = [&](const char* shader, uint32_t row_length) {
    push.share = 1.0f / static_cast<float>(push.view_height * row_length);
    const uint32_t lanes = ops::channel_lanes(*emit.device());  // or more; each walks down columns
    emit.require_iterations(
        (2 + uint64_t{push.view_height}) * gpu::div_up(row_length, lanes),
        cat("leave out the echo's 'device', so that the host changes the contrast of ",
            push.view_height, " x ", push.view_width, " pixels"));
    emit.for_rows(shader, {records, images, ops::updates(means_)}, push, rows, row_length);
  };
  if (like_.adjusts) mean("reservoir_mean", push.view_width * channels);
  if (like_.jitters) mean("reservoir_luma", push.view_width);
  // For each row of a column, two loops over three channels if colours are mixed.
  const uint64_t each = like_.jitters && channels == 3 ? 9 : 1;
  emit.require_iterations(push.view_height * each,
                          cat("leave out the echo's 'device', so that the host makes views of ",
                              push.view_height, " x ", push.view_width, " pixels"));
  emit.for_channels("reservoir_view",
                    {records, images, ops::reads(means_), affine, ops::writes(output)}, push,
                    push.view_width * channels, rows);
}

void Reservoir::forget(const Tensor* image) {
  const auto it = held_.find(image);
  free_.push_back(it->second.slot);
  order_.erase(it->second.order);
  held_.erase(it);
}

uint32_t Reservoir::free_slot() {
  if (free_.empty()) {
    std::vector<const Tensor*> dead;  // samples that no stage or batch holds any more
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

// The recorded commands serve views of only one kind.
void Reservoir::check_like(const pipeline::ImageView& view) const {
  const pipeline::Resampling *a = like_.resampling.get(), *b = view.resampling.get();
  const bool alike =
      view.adjusts == like_.adjusts && view.jitters == like_.jitters && !a == !b &&
      view.image->shape() == example_ && view.height == like_.height && view.width == like_.width &&
      (!a || (scaled_height(*a) == scaled_height(*b) && scaled_width(*a) == scaled_width(*b)));
  if (!alike)
    fail(Code::unsupported,
         "after an echo with 'device' the images of a run have to be of one size, and to go "
         "through the same stages");
}

void Reservoir::fill_taps(const pipeline::Resampling& by, uint32_t* to) const {
  const auto put = [&](const pipeline::Taps& taps, uint32_t stride) {
    for (size_t i = 0; i < taps.first.size(); ++i, to += stride) {
      to[0] = taps.first[i];
      std::memcpy(to + 1, taps.weights.data() + i * taps.count, taps.count * sizeof(float));
    }
  };
  put(by.rows, row_taps_);
  put(by.columns, column_taps_);
}

void Reservoir::fill(const std::vector<std::byte*>& parts, const pipeline::Item& batch) {
  const auto& views = *batch.views;
  for (const pipeline::ImageView& view : views) check_like(view);
  auto* records = reinterpret_cast<Record*>(parts[0]);
  for (size_t s = 0; s < static_cast<size_t>(batch_); ++s) {
    const pipeline::ImageView& view = views[s % views.size()];
    bool is_new = false;
    const uint32_t slot = slot_of(view, is_new);
    records[s] = record_of(view, slot, is_new);
    if (view.resampling)
      fill_taps(*view.resampling, reinterpret_cast<uint32_t*>(parts[3]) + s * taps_words());
    if (is_new)
      std::memcpy(parts[2] + s * words_ * 4, view.image->data(), view.image->size_bytes());
  }
  put_affine(batch, kImage, static_cast<size_t>(example_[2]), reinterpret_cast<float*>(parts[1]));
}

}  // namespace etr::train

#include "train/feeds.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "tensor/normalize.h"
#include "train/byte_feed.h"
#include "train/program_buffer.h"

namespace etr::train {
namespace {

bool serves(Place made_for, Place place) {
  return place == made_for || (made_for == Place::host && place == Place::bytes);
}

[[noreturn]] void fail_moved(const std::string& name, Place from, Place to) {
  if (from == Place::buffer || to == Place::buffer)
    fail(Code::state, "field '", name, "' ",
         to == Place::buffer ? "lies in a Vulkan buffer and did not"
                             : "does not lie in a Vulkan buffer and did",
         " in the first batch: a field must be in the same place in all batches of a "
         "trainer");
  fail(Code::state, "field '", name,
       "' is f32, but in the first batch it was u8, for the device to normalise: a "
       "field must have the same form in all batches of a trainer");
}

}  // namespace

Feeds::Feeds(gpu::Kernels& kernels, gpu::Arena& memory, const nn::ModelGraph& net,
             std::vector<graph::ValueId> values, const pipeline::Item& first,
             std::optional<uint64_t> view_samples)
    : kernels_(kernels), memory_(memory), net_(net), values_(std::move(values)) {
  for (const graph::ValueId id : values_)
    places_.push_back(place_of(first, net_.graph.value(id).name));
  if (!first.views) return;
  if (!view_samples)
    fail(Code::unsupported,
         "the batch consists of views of samples in device memory, which can only be used "
         "for training");
  const int64_t rows = net_.graph.shape(values_.front())[0];
  const auto in_flight = static_cast<uint64_t>(rows * graph::Runner::kSlots);
  reservoir_ =
      std::make_unique<Reservoir>(kernels_, first.views->front(), rows, *view_samples + in_flight);
}

std::vector<graph::Feed> Feeds::for_runner() {
  std::vector<graph::Feed> out;
  for (size_t i = 0; i < values_.size(); ++i) out.push_back(feed_of(i));
  return out;
}

graph::Feed Feeds::feed_of(size_t i) {
  graph::Feed feed(values_[i]);
  switch (places_[i]) {
    case Place::host: break;
    case Place::bytes:
      return byte_feed(kernels_, memory_, net_.graph.value(values_[i]), values_[i]);
    case Place::views: return reservoir_->feed(values_[i]);
    case Place::buffer: feed.on_device = true; break;
  }
  return feed;
}

bool Feeds::accepts(const pipeline::Item& batch) const {
  if (static_cast<bool>(batch.views) != static_cast<bool>(reservoir_)) return false;
  for (size_t i = 0; i < values_.size(); ++i)
    if (!serves(places_[i], place_of(batch, net_.graph.value(values_[i]).name))) return false;
  return true;
}

void Feeds::fill(graph::Runner& runner, const pipeline::Item& batch) {
  for (size_t i = 0; i < values_.size(); ++i) {
    const graph::Value& value = net_.graph.value(values_[i]);
    const Place place = place_of(batch, value.name);
    if (!serves(places_[i], place)) fail_moved(value.name, places_[i], place);
    switch (places_[i]) {
      case Place::host: fill_host(runner.input(i), batch, value); break;
      case Place::bytes: fill_bytes(runner.parts(i), batch, value.name, value.shape); break;
      case Place::views: reservoir_->fill(runner.parts(i), batch); break;
      case Place::buffer: runner.set_input(i, buffer_of(*batch.find_opaque(value.name))); break;
    }
  }
}

void Feeds::fill_host(std::byte* to, const pipeline::Item& batch, const graph::Value& value) const {
  const Tensor& tensor = *batch.find(value.name);
  const auto count = static_cast<size_t>(tensor.count());
  const auto want = static_cast<size_t>(element_count(value.shape));
  const size_t size = dtype_size(tensor.dtype());
  for (size_t at = 0; at < want; at += count) {
    const size_t n = std::min(count, want - at);
    if (tensor.dtype() == DType::u8)
      normalize_u8(
          tensor.view<uint8_t>().first(n), batch.find(value.name + "_scale")->view<float>(),
          batch.find(value.name + "_shift")->view<float>(), reinterpret_cast<float*>(to) + at);
    else
      std::memcpy(to + at * size, tensor.data(), n * size);
  }
}

}  // namespace etr::train

#include "graph/parameters.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "gpu/run_once.h"
#include "graph/quantized.h"

namespace etr::graph {
namespace {

// Parameters start at multiples of this many scalars, so that each can be bound separately.
constexpr uint32_t kPartAlignment = 64;

uint64_t aligned(int64_t count) {
  return (static_cast<uint64_t>(count) + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

bool is_among(const std::vector<bool>& has, const Graph& graph, const Value& value) {
  return has.empty() || has[static_cast<size_t>(&value - graph.values().data())];
}

}  // namespace

uint64_t parameter_stream(const std::string& name) {  // FNV-1a: stable across platforms
  uint64_t hash = 0xCBF29CE484222325ull;
  for (const unsigned char c : name) hash = (hash ^ c) * 0x100000001B3ull;
  return hash;
}

ParameterStore::ParameterStore(gpu::DevicePtr device, const Graph& graph, uint64_t seed,
                               std::vector<bool> has, bool keeps_gradients)
    : device_(device),
      arena_(std::move(device), gpu::MemoryUse::device),
      seed_(seed),
      has_(std::move(has)) {
  place(graph, keeps_gradients);
  // Updates include the gaps between parameters: keep them zero.
  if (count_ > 0) gpu::run_once(device_, {gpu::Fill{weights_, 0}});
  if (gradients_) gpu::run_once(device_, {gpu::Fill{gradients_, 0}});
  for (const Value& value : graph.values())
    if (value.initializer && this->has(graph, value)) initialise(value);
}

ParameterStore::ParameterStore(const ParameterStore& shared, const Graph& graph)
    : device_(shared.device_),
      arena_(device_, gpu::MemoryUse::device),
      seed_(shared.seed_),
      has_(shared.has_),
      weights_(shared.weights_),
      gradients_(shared.gradients_),
      count_(shared.count_),
      decayed_(shared.decayed_),
      trainable_(shared.trainable_),
      names_(shared.names_),
      states_(shared.states_),
      parameters_(shared.parameters_),
      tensors_(shared.tensors_),
      gradient_tensors_(shared.gradient_tensors_),
      quantized_(shared.quantized_) {
  for (const Value& value : graph.values()) {
    if (value.kind != ValueKind::constant || !has(graph, value)) continue;
    const uint64_t bytes = static_cast<uint64_t>(element_count(value.shape)) * 4;
    tensors_[value.name] = {arena_.allocate(bytes), value.shape};
    initialise(value);
  }
}

bool ParameterStore::has(const Graph& graph, const Value& value) const {
  return is_among(has_, graph, value);
}

void ParameterStore::initialise(const Value& value) {
  Tensor host(DType::f32, value.shape);
  Rng rng(seed_, parameter_stream(value.name));
  value.initializer(host.mutable_view<float>(), rng);
  write(value.name, host);
}

Layout layout_of(const Graph& graph, const std::vector<bool>& has) {
  Layout out;
  for (const bool decayed : {true, false}) {
    for (const Value& value : graph.values())
      if (value.kind == ValueKind::parameter && value.decay == decayed &&
          is_among(has, graph, value)) {
        out.parameters.push_back(
            {value.name, out.count, static_cast<uint32_t>(element_count(value.shape)), decayed});
        const uint64_t count = uint64_t{out.count} + aligned(element_count(value.shape));
        if (count > UINT32_MAX)
          fail(Code::invalid_argument, "the model has more than 2^32 parameters, from '",
               value.name, "' on");
        out.count = static_cast<uint32_t>(count);
      }
    if (decayed) out.decayed = out.count;
  }
  return out;
}

void ParameterStore::place(const Graph& graph, bool keeps_gradients) {
  const Layout layout = layout_of(graph, has_);
  parameters_ = layout.parameters;
  count_ = layout.count;
  decayed_ = layout.decayed;
  std::map<std::string, uint32_t> offsets;
  for (const Parameter& parameter : parameters_) {
    offsets[parameter.name] = parameter.begin;
    trainable_ += parameter.count;
  }
  weights_ = arena_.allocate_whole(uint64_t{count_} * 4);
  if (keeps_gradients) gradients_ = arena_.allocate_whole(uint64_t{count_} * 4);
  for (const Value& value : graph.values()) {
    if (!has(graph, value)) continue;
    const uint64_t bytes = static_cast<uint64_t>(element_count(value.shape)) * 4;
    if (value.kind == ValueKind::parameter) {
      const uint64_t offset = uint64_t{offsets[value.name]} * 4;
      gpu::check_bindable(*device_, bytes);
      tensors_[value.name] = {weights_.slice(offset, bytes), value.shape};
      gradient_tensors_[value.name] = {
          keeps_gradients ? gradients_.slice(offset, bytes) : gpu::Buffer{}, value.shape};
    } else if (value.stored_bits < 32) {
      const uint64_t words = quantized_words(element_count(value.shape), value.stored_bits);
      gpu::check_bindable(*device_, bytes);  // when it is f32 again
      tensors_[value.name] = {arena_.allocate(words * 4), value.shape};
      quantized_[value.name] = value.stored_bits;
    } else if (is_weight(value.kind) || value.kind == ValueKind::constant) {
      tensors_[value.name] = {arena_.allocate(bytes), value.shape};
    }
    if (is_weight(value.kind)) names_.push_back(value.name);
    if (value.kind == ValueKind::state) states_.push_back(value.name);
  }
}

std::vector<ParameterStore::Range> ParameterStore::ranges(uint32_t first, uint32_t all) const {
  constexpr uint64_t kAligned = 1024;  // scalars: satisfies every device's binding alignment
  const uint64_t most =
      std::max(device_->max_tensor_bytes() / 4 / kAligned, uint64_t{1}) * kAligned;
  std::vector<Range> out;
  for (uint64_t begin = 0; begin < all; begin += most) {
    const uint64_t count = std::min(most, all - begin), at = first + begin;
    const uint64_t decayed = decayed_ > at ? std::min(count, decayed_ - at) : 0;
    out.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(count),
                   static_cast<uint32_t>(decayed)});
  }
  return out;
}

const ops::DeviceTensor& ParameterStore::tensor(const std::string& name) const {
  if (stored_bits(name) != 32) fail(Code::internal, "the weight '", name, "' is quantised");
  return stored(name);
}

const ops::DeviceTensor& ParameterStore::stored(const std::string& name) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end())
    fail(Code::not_found, "the model has no parameter '", name, "'", suggestion(name, names_));
  return it->second;
}

ops::DeviceTensor ParameterStore::elsewhere(const std::string& name,
                                            const gpu::Buffer& weights) const {
  ops::DeviceTensor out = tensor(name);
  if (gradient_tensors_.count(name))
    out.buffer = weights.slice(out.buffer.offset - weights_.offset, out.buffer.size_bytes);
  return out;
}

const ops::DeviceTensor& ParameterStore::gradient(const std::string& name) const {
  const auto it = gradient_tensors_.find(name);
  if (it == gradient_tensors_.end())
    fail(Code::not_found, "'", name, "' is not a trainable parameter");
  return it->second;
}

int ParameterStore::stored_bits(const std::string& name) const {
  const auto found = quantized_.find(name);
  return found == quantized_.end() ? 32 : found->second;
}

Tensor ParameterStore::read(const std::string& name) const {
  const ops::DeviceTensor& from = stored(name);
  const int bits = stored_bits(name);
  if (bits == 32) return graph::download(device_, from);
  Tensor out(DType::f32, from.shape);
  const auto count = static_cast<int64_t>(quantized_words(element_count(from.shape), bits));
  const Tensor words = graph::download(device_, {from.buffer, {count}}, DType::i32);
  const auto view = words.view<int32_t>();
  dequantize({reinterpret_cast<const uint32_t*>(view.data()), view.size()}, bits,
             out.mutable_view<float>());
  return out;
}

void ParameterStore::write(const std::string& name, const Tensor& from) {
  const ops::DeviceTensor& to = stored(name);
  const int bits = stored_bits(name);
  if (bits == 32) return graph::upload(device_, from, to);
  check_finite(name, from);
  const std::vector<uint32_t> words = quantize(from.view<float>(), bits);
  Tensor packed(DType::i32, {static_cast<int64_t>(words.size())});
  std::memcpy(packed.mutable_data(), words.data(), words.size() * 4);
  graph::upload(device_, packed, {to.buffer, packed.shape()});
}

void ParameterStore::check_finite(const std::string& name, const Tensor& from) const {
  const int bits = stored_bits(name);
  if (bits == 32) return;
  const auto values = from.view<float>();
  if (!std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); }))
    fail(Code::invalid_argument, "weight '", name,
         "' has elements that are not finite; it is kept in ", bits,
         " bits, which cannot hold them");
}

std::map<std::string, Tensor> ParameterStore::download() const {
  std::map<std::string, Tensor> out;
  for (const std::string& name : names_) out[name] = read(name);
  return out;
}

void ParameterStore::check(const std::map<std::string, Tensor>& tensors) const {
  for (const std::string& name : names_) {
    const auto it = tensors.find(name);
    if (it == tensors.end())
      fail(Code::invalid_argument, "the file has no weight '", name, "' (the model expects f32 ",
           shape_text(shape(name)), ")");
    if (it->second.shape() != shape(name) || it->second.dtype() != DType::f32)
      fail(Code::invalid_argument, "weight '", name, "' is ", dtype_name(it->second.dtype()), " ",
           shape_text(it->second.shape()), " in the file but f32 ", shape_text(shape(name)),
           " in the model");
    check_finite(name, it->second);
  }
}

void ParameterStore::upload(const std::map<std::string, Tensor>& tensors) {
  check(tensors);
  for (const std::string& name : names_) write(name, tensors.at(name));
}

Tensor download(const gpu::DevicePtr& device, const ops::DeviceTensor& from, DType dtype) {
  Tensor out(dtype, from.shape);
  if (out.count() == 0) return out;
  gpu::Arena arena(device, gpu::MemoryUse::readback);
  const gpu::Buffer source = from.buffer.slice(0, out.size_bytes());
  const gpu::Buffer staging = arena.allocate(source.size_bytes);
  gpu::run_once(device, {gpu::Copy{source, staging}});
  std::memcpy(out.mutable_data(), staging.host, out.size_bytes());
  return out;
}

void upload(const gpu::DevicePtr& device, const Tensor& from, const ops::DeviceTensor& to) {
  if (from.count() == 0) return;
  gpu::Arena arena(device, gpu::MemoryUse::upload);
  const gpu::Buffer staging = arena.allocate(from.size_bytes());
  std::memcpy(staging.host, from.data(), from.size_bytes());
  gpu::run_once(device, {gpu::Copy{staging, to.buffer.slice(0, from.size_bytes())}});
}

}  // namespace etr::graph

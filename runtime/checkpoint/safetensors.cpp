#include "checkpoint/safetensors.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "checkpoint/safetensors_header.h"
#include "core/error.h"
#include "core/half.h"
#include "core/json.h"

namespace etr::checkpoint {
namespace {

template <typename From, typename To, typename F>
void convert(std::span<const std::byte> from, std::span<To> to, F&& f) {
  for (size_t i = 0; i < to.size(); ++i) {
    From value;
    std::memcpy(&value, from.data() + i * sizeof value, sizeof value);
    to[i] = f(value);
  }
}

// Converts to 32 bits. Values out of range are errors, whereas .float() of PyTorch makes
// infinities.
struct Narrow {
  const FileTensor& tensor;
  const std::string& origin;

  float operator()(double v) const {
    const auto out = static_cast<float>(v);
    if (std::isinf(out) && !std::isinf(v)) refuse(v);
    return out;
  }
  int32_t operator()(int64_t v) const {
    if (v < INT32_MIN || v > INT32_MAX) refuse(v);
    return static_cast<int32_t>(v);
  }

 private:
  template <typename Value>
  [[noreturn]] void refuse(Value v) const {
    fail(Code::unsupported, origin, ": tensor '", tensor.name, "' (", tensor.type->name, ") holds ",
         v, ", which ", tensor.type->becomes == DType::f32 ? "F32" : "I32", " cannot hold");
  }
};

void fill(Tensor& tensor, const FileTensor& in, const std::string& origin) {
  const std::string_view type = in.type->name;
  const Narrow narrow{in, origin};
  if (type == "F16")
    convert<uint16_t>(in.data, tensor.mutable_view<float>(), half_to_float);
  else if (type == "BF16")
    convert<uint16_t>(in.data, tensor.mutable_view<float>(),
                      [](uint16_t v) { return std::bit_cast<float>(uint32_t{v} << 16); });
  else if (type == "F64")
    convert<double>(in.data, tensor.mutable_view<float>(), narrow);
  else if (type == "I64")
    convert<int64_t>(in.data, tensor.mutable_view<int32_t>(), narrow);
  else if (!in.data.empty())
    std::memcpy(tensor.mutable_data(), in.data.data(), in.data.size());
}

}  // namespace

std::vector<std::byte> write_safetensors(const NamedTensors& tensors) {
  Json header = Json::object();
  size_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", file_type_name(tensor.dtype())},
                    {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
                    {"data_offsets", {offset, offset + tensor.size_bytes()}}};
    offset += tensor.size_bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // aligns the data
  const uint64_t length = text.size();
  std::vector<std::byte> out(8 + text.size() + offset);
  std::memcpy(out.data(), &length, 8);
  std::memcpy(out.data() + 8, text.data(), text.size());
  std::byte* to = out.data() + 8 + text.size();
  for (const auto& [name, tensor] : tensors) {
    if (tensor.size_bytes() > 0) std::memcpy(to, tensor.data(), tensor.size_bytes());
    to += tensor.size_bytes();
  }
  return out;
}

NamedTensors read_safetensors(std::span<const std::byte> bytes, const std::string& origin) {
  NamedTensors out;
  for (const FileTensor& in : file_tensors(bytes, origin)) {
    Tensor tensor(in.type->becomes, in.shape);
    fill(tensor, in, origin);
    out.emplace(in.name, std::move(tensor));
  }
  return out;
}

}  // namespace etr::checkpoint

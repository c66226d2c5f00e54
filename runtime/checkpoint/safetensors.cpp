#include "checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/half.h"
#include "core/json.h"

namespace etr::checkpoint {
namespace {

const char* format_name(DType dtype) {
  switch (dtype) {
    case DType::u8: return "U8";
    case DType::i32: return "I32";
    case DType::f32: return "F32";
    case DType::u16: return "U16";
  }
  return "?";
}

template <typename From, typename To, typename F>
void convert(std::span<const std::byte> from, std::span<To> to, F&& f) {
  for (size_t i = 0; i < to.size(); ++i) {
    From value;
    std::memcpy(&value, from.data() + i * sizeof value, sizeof value);
    to[i] = f(value);
  }
}

// Element types of files that are narrower or wider than those of arrays here.
struct Foreign {
  const char* name;
  DType becomes;
  size_t bytes;
};
constexpr Foreign kForeign[] = {{"F16", DType::f32, 2},
                                {"BF16", DType::f32, 2},
                                {"F64", DType::f32, 8},
                                {"I64", DType::i32, 8}};

// The type of the array that a tensor of type `name` becomes, and the size of its elements in the file.
Foreign type_of(const std::string& name, const std::string& origin, const std::string& tensor) {
  for (const DType dtype : {DType::u8, DType::u16, DType::i32, DType::f32})
    if (name == format_name(dtype)) return {format_name(dtype), dtype, dtype_size(dtype)};
  for (const Foreign& type : kForeign)
    if (name == type.name) return type;
  fail(Code::unsupported, origin, ": tensor '", tensor, "' has element type ", name,
       "; F32, F16, BF16, F64, I32, I64, U8 and U16 are supported");
}

void fill(Tensor& tensor, const std::string& type, std::span<const std::byte> from) {
  if (type == "F16")
    convert<uint16_t>(from, tensor.mutable_view<float>(), half_to_float);
  else if (type == "BF16")
    convert<uint16_t>(from, tensor.mutable_view<float>(),
                      [](uint16_t v) { return std::bit_cast<float>(uint32_t{v} << 16); });
  else if (type == "F64")
    convert<double>(from, tensor.mutable_view<float>(),
                    [](double v) { return static_cast<float>(v); });
  else if (type == "I64")
    convert<int64_t>(from, tensor.mutable_view<int32_t>(), [](int64_t v) {
      return static_cast<int32_t>(std::clamp<int64_t>(v, INT32_MIN, INT32_MAX));
    });
  else if (!from.empty())
    std::memcpy(tensor.mutable_data(), from.data(), from.size());
}

}  // namespace

std::vector<std::byte> write_safetensors(const NamedTensors& tensors) {
  Json header = Json::object();
  size_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    header[name] = {{"dtype", format_name(tensor.dtype())},
                    {"shape", std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end())},
                    {"data_offsets", {offset, offset + tensor.size_bytes()}}};
    offset += tensor.size_bytes();
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begins aligned
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
  uint64_t length = 0;
  if (bytes.size() < 8) fail(Code::corrupt_data, origin, ": too short for a safetensors file");
  std::memcpy(&length, bytes.data(), 8);
  if (length > bytes.size() - 8)
    fail(Code::corrupt_data, origin, ": the safetensors header is cut off");
  const auto data = bytes.subspan(8 + static_cast<size_t>(length));
  NamedTensors out;
  try {
    const Json header = Json::parse(reinterpret_cast<const char*>(bytes.data()) + 8,
                                    reinterpret_cast<const char*>(bytes.data()) + 8 + length);
    for (const auto& [name, row] : header.items()) {
      if (name == "__metadata__") continue;
      const auto extents = row.at("shape").get<std::vector<int64_t>>();
      const Shape shape(extents.begin(), extents.end());
      const Foreign type = type_of(row.at("dtype").get<std::string>(), origin, name);
      Tensor tensor(type.becomes, shape);
      const auto begin = row.at("data_offsets").at(0).get<uint64_t>();
      const auto end = row.at("data_offsets").at(1).get<uint64_t>();
      if (begin > end || end > data.size() ||
          end - begin != static_cast<uint64_t>(tensor.count()) * type.bytes)
        fail(Code::corrupt_data, origin, ": the offsets of tensor '", name, "' do not fit");
      fill(tensor, type.name, data.subspan(begin, end - begin));
      out.emplace(name, std::move(tensor));
    }
  } catch (const nlohmann::json::exception& error) {
    fail(Code::corrupt_data, origin, ": damaged safetensors header: ", error.what());
  }
  return out;
}

}  // namespace etr::checkpoint

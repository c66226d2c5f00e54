#include "checkpoint/safetensors.h"

#include <cstring>

#include "core/error.h"
#include "core/json.h"

namespace etr::checkpoint {
namespace {

const char* format_name(DType dtype) {
  switch (dtype) {
    case DType::u8: return "U8";
    case DType::i32: return "I32";
    case DType::f32: return "F32";
  }
  return "?";
}

DType dtype_of(const std::string& name, const std::string& origin, const std::string& tensor) {
  for (const DType dtype : {DType::u8, DType::i32, DType::f32})
    if (name == format_name(dtype)) return dtype;
  fail(Code::unsupported, origin, ": tensor '", tensor, "' has element type ", name,
       "; F32, I32 and U8 are supported");
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
      Tensor tensor(dtype_of(row.at("dtype").get<std::string>(), origin, name), shape);
      const auto begin = row.at("data_offsets").at(0).get<uint64_t>();
      const auto end = row.at("data_offsets").at(1).get<uint64_t>();
      if (begin > end || end > data.size() || end - begin != tensor.size_bytes())
        fail(Code::corrupt_data, origin, ": the offsets of tensor '", name, "' do not fit");
      if (begin != end)
        std::memcpy(tensor.mutable_data(), data.data() + begin, tensor.size_bytes());
      out.emplace(name, std::move(tensor));
    }
  } catch (const nlohmann::json::exception& error) {
    fail(Code::corrupt_data, origin, ": damaged safetensors header: ", error.what());
  }
  return out;
}

}  // namespace etr::checkpoint

// The fields' numbers are those of onnx.proto3 (https://github.com/onnx/onnx).
#include "nn/onnx_reader.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/half.h"
#include "core/platform.h"
#include "core/protobuf_reader.h"
#include "core/utf8.h"
#include "tensor/tensor.h"

namespace etr::nn {
namespace {

using Bytes = std::span<const std::byte>;
using Wire = MessageReader::Wire;

constexpr int64_t kMostRank = Shape::kMaxRank;
constexpr size_t kMostName = 4096;  // bytes; layers repeat the names of their weights

// Returns the part of another file in the model's folder.
using External = std::function<Bytes(const std::string& location, uint64_t offset,
                                     std::optional<uint64_t> length, const std::string& tensor)>;

// TensorProto.DataType.
enum class Type : uint64_t {
  f32 = 1,
  u8 = 2,
  i8 = 3,
  u16 = 4,
  i16 = 5,
  i32 = 6,
  i64 = 7,
  boolean = 9,
  f16 = 10,
  f64 = 11,
  u32 = 12,
  u64 = 13,
  bf16 = 16,
};

bool is_real(Type type) {
  return type == Type::f32 || type == Type::f16 || type == Type::f64 || type == Type::bf16;
}

// The bytes of an element; 0 if such tensors are not read.
size_t width_of(Type type) {
  switch (type) {
    case Type::u8:
    case Type::i8:
    case Type::boolean: return 1;
    case Type::u16:
    case Type::i16:
    case Type::f16:
    case Type::bf16: return 2;
    case Type::f32:
    case Type::i32:
    case Type::u32: return 4;
    case Type::i64:
    case Type::f64:
    case Type::u64: return 8;
  }
  return 0;
}

template <typename T>
T element(Bytes bytes, size_t i) {
  T out;
  std::memcpy(&out, bytes.data() + i * sizeof(T), sizeof(T));
  return out;
}

// Returns the number of 16 bits, f16 or bf16.
float short_real(Type type, uint16_t bits) {
  return type == Type::f16 ? half_to_float(bits) : std::bit_cast<float>(uint32_t{bits} << 16);
}

float real_at(Type type, Bytes bytes, size_t i) {
  if (type == Type::f32) return element<float>(bytes, i);
  if (type == Type::f64) return static_cast<float>(element<double>(bytes, i));
  return short_real(type, element<uint16_t>(bytes, i));
}

int64_t integer_at(Type type, Bytes bytes, size_t i) {
  switch (type) {
    case Type::i8: return element<int8_t>(bytes, i);
    case Type::u16: return element<uint16_t>(bytes, i);
    case Type::i16: return element<int16_t>(bytes, i);
    case Type::i32: return element<int32_t>(bytes, i);
    case Type::u32: return element<uint32_t>(bytes, i);
    case Type::i64:
    case Type::u64: return element<int64_t>(bytes, i);
    default: return element<uint8_t>(bytes, i);
  }
}

// Adds the numbers of a repeated varint field, packed or not.
void add_integers(MessageReader& field, std::string_view what, std::vector<int64_t>& to) {
  if (field.is(field.number(), Wire::varint))
    return to.push_back(static_cast<int64_t>(field.value()));
  MessageReader packed(field.bytes(), what);
  while (!packed.empty()) to.push_back(static_cast<int64_t>(packed.varint()));
}

template <typename T>
void add_reals(MessageReader& field, std::vector<T>& to) {
  for (size_t i = 0; i + sizeof(T) <= field.bytes().size(); i += sizeof(T))
    to.push_back(element<T>(field.bytes().subspan(i), 0));
}

// The number that was meant: 1e-5, not 9.99999974738e-06.
double shortest(float value) {
  char text[64];
  const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
  double out = static_cast<double>(value);
  std::from_chars(text, end, out);
  return out;
}

// A tensor's data as its TensorProto holds them: in `raw`, in the field of its type, or elsewhere.
struct Stored {
  std::string name;
  Type type{};
  std::optional<Bytes> raw;
  std::vector<int64_t> integers;  // int32_data, int64_data or uint64_data
  std::vector<float> floats;
  std::vector<double> doubles;
  std::map<std::string, std::string> external;
  bool is_external = false;
};

class Reader {
 public:
  Reader(std::string origin, External external)
      : origin_(std::move(origin)),
        what_(cat("the ONNX file ", origin_)),
        external_(std::move(external)) {}

  OnnxGraph model(Bytes bytes);

 private:
  MessageReader message(Bytes bytes) const { return {bytes, what_}; }
  std::string text(const MessageReader& field) const { return as_utf8(field.text()); }
  std::string name_in(const MessageReader& field) const;

  void graph(Bytes bytes, OnnxGraph& out);
  OnnxNode node(Bytes bytes);
  std::pair<std::string, OnnxAttribute> attribute(Bytes bytes);
  std::pair<std::string, OnnxConstant> tensor(Bytes bytes);
  Bytes external_data(const Stored& stored);
  void fill(Stored& stored, size_t count, OnnxTensor& out) const;
  OnnxInput input(Bytes bytes);
  void shape(Bytes bytes, OnnxInput& out);

  const std::string origin_, what_;
  const External external_;
};

OnnxGraph Reader::model(Bytes bytes) {
  OnnxGraph out;
  out.origin = origin_;
  bool has_graph = false;
  for (MessageReader m = message(bytes); m.next();) {
    if (m.is(2, Wire::bytes)) out.producer = text(m);
    if (m.is(8, Wire::bytes)) {  // OperatorSetId
      std::string domain;
      int64_t version = 0;
      for (MessageReader set = message(m.bytes()); set.next();) {
        if (set.is(1, Wire::bytes)) domain = text(set);
        if (set.is(2, Wire::varint)) version = static_cast<int64_t>(set.value());
      }
      if (domain.empty() || domain == "ai.onnx") out.opset = version;
    }
    if (m.is(7, Wire::bytes)) {
      graph(m.bytes(), out);
      has_graph = true;
    }
  }
  if (!has_graph || out.outputs.empty())
    fail(Code::corrupt_data, what_, " holds no graph with an output; is it an ONNX model?");
  std::erase_if(out.inputs,
                [&](const OnnxInput& input) { return out.initializers.contains(input.name); });
  return out;
}

void Reader::graph(Bytes bytes, OnnxGraph& out) {
  for (MessageReader m = message(bytes); m.next();) {
    if (m.is(1, Wire::bytes)) out.nodes.push_back(node(m.bytes()));
    if (m.is(5, Wire::bytes)) out.initializers.insert(tensor(m.bytes()));
    if (m.is(11, Wire::bytes)) out.inputs.push_back(input(m.bytes()));
    if (m.is(12, Wire::bytes)) out.outputs.push_back(input(m.bytes()).name);
    if (m.is(15, Wire::bytes))
      fail(Code::unsupported, what_, " has sparse initializers, which are not read");
  }
}

std::string Reader::name_in(const MessageReader& field) const {
  if (field.bytes().size() > kMostName)
    fail(Code::unsupported, what_, " has a name of ", field.bytes().size(), " bytes; at most ",
         kMostName, " are read");
  return text(field);
}

OnnxNode Reader::node(Bytes bytes) {
  OnnxNode out;
  for (MessageReader m = message(bytes); m.next();) {
    if (m.is(1, Wire::bytes)) out.inputs.push_back(name_in(m));
    if (m.is(2, Wire::bytes)) out.outputs.push_back(name_in(m));
    if (m.is(3, Wire::bytes)) out.name = name_in(m);
    if (m.is(4, Wire::bytes)) out.op = name_in(m);
    if (m.is(5, Wire::bytes)) out.attributes.insert(attribute(m.bytes()));
    if (m.is(7, Wire::bytes)) out.domain = text(m);
  }
  if (out.domain == "ai.onnx") out.domain.clear();
  return out;
}

// Graphs in attributes (If, Loop) are skipped: nothing reads them.
std::pair<std::string, OnnxAttribute> Reader::attribute(Bytes bytes) {
  std::string name;
  OnnxAttribute out;
  for (MessageReader m = message(bytes); m.next();) {
    if (m.is(1, Wire::bytes)) name = text(m);
    if (m.is(2, Wire::fixed32)) out.real = shortest(m.real());
    if (m.is(3, Wire::varint)) out.integer = static_cast<int64_t>(m.value());
    if (m.is(4, Wire::bytes)) out.text = text(m);
    if (m.is(5, Wire::bytes)) out.tensor = tensor(m.bytes()).second;
    if (m.is(7, Wire::bytes) || m.is(7, Wire::fixed32)) {
      std::vector<float> reals;
      add_reals(m, reals);
      out.reals.insert(out.reals.end(), reals.begin(), reals.end());
    }
    if (m.is(8, Wire::bytes) || m.is(8, Wire::varint)) add_integers(m, what_, out.integers);
  }
  return {name, out};
}

std::pair<std::string, OnnxConstant> Reader::tensor(Bytes bytes) {
  auto out = std::make_shared<OnnxTensor>();
  Stored stored;
  for (MessageReader m = message(bytes); m.next();) {
    if (m.is(1, Wire::bytes) || m.is(1, Wire::varint)) add_integers(m, what_, out->dims);
    if (m.is(2, Wire::varint)) stored.type = static_cast<Type>(m.value());
    if (m.is(4, Wire::bytes) || m.is(4, Wire::fixed32)) add_reals(m, stored.floats);
    for (const uint64_t field : {5, 7, 11})
      if (m.is(field, Wire::bytes) || m.is(field, Wire::varint))
        add_integers(m, what_, stored.integers);
    if (m.is(8, Wire::bytes)) stored.name = name_in(m);
    if (m.is(9, Wire::bytes)) stored.raw = m.bytes();
    if (m.is(10, Wire::bytes) || m.is(10, Wire::fixed64)) add_reals(m, stored.doubles);
    if (m.is(13, Wire::bytes)) {
      std::string key, value;
      for (MessageReader entry = message(m.bytes()); entry.next();) {
        if (entry.is(1, Wire::bytes)) key = text(entry);
        if (entry.is(2, Wire::bytes)) value = entry.text();
      }
      stored.external[key] = value;
    }
    if (m.is(14, Wire::varint)) stored.is_external = m.value() == 1;
  }
  if (width_of(stored.type) == 0)
    fail(Code::unsupported, what_, ": tensor '", stored.name, "' has elements of type ",
         static_cast<uint64_t>(stored.type), " (TensorProto.DataType), which are not read");
  if (out->dims.size() > static_cast<size_t>(kMostRank))
    fail(Code::unsupported, what_, ": tensor '", stored.name, "' has ", out->dims.size(),
         " axes; at most ", kMostRank, " are read");
  const auto count = onnx_count(out->dims);
  if (!count)
    fail(Code::corrupt_data, what_, ": tensor '", stored.name, "' has a size that cannot be");
  if (stored.is_external) stored.raw = external_data(stored);
  out->is_real = is_real(stored.type);
  fill(stored, *count, *out);
  return {stored.name, out};
}

Bytes Reader::external_data(const Stored& stored) {
  const auto number = [&](const char* key) -> std::optional<uint64_t> {
    const auto it = stored.external.find(key);
    if (it == stored.external.end()) return std::nullopt;
    uint64_t value = 0;
    for (const char c : it->second) {
      if (c < '0' || c > '9' || value > (uint64_t{1} << 56))
        fail(Code::corrupt_data, what_, ": tensor '", stored.name, "': its ", key, " is '",
             as_utf8(it->second), "'");
      value = value * 10 + static_cast<uint64_t>(c - '0');
    }
    return value;
  };
  const auto location = stored.external.find("location");
  return external_(location == stored.external.end() ? std::string() : location->second,
                   number("offset").value_or(0), number("length"), stored.name);
}

void Reader::fill(Stored& stored, size_t count, OnnxTensor& out) const {
  const size_t width = width_of(stored.type);
  const auto check = [&](size_t has, size_t of) {
    if (has != of)
      fail(Code::corrupt_data, what_, ": tensor '", stored.name, "' has ", count, " elements of ",
           width, " bytes by its shape, and data for ", has, stored.raw ? " bytes" : " elements");
  };
  if (stored.raw) {
    check(stored.raw->size(), count * width);
    if (out.is_real) out.reals.resize(count);
    if (!out.is_real) out.integers.resize(count);
    for (size_t i = 0; i < out.reals.size(); ++i)
      out.reals[i] = real_at(stored.type, *stored.raw, i);
    for (size_t i = 0; i < out.integers.size(); ++i)
      out.integers[i] = integer_at(stored.type, *stored.raw, i);
  } else if (stored.type == Type::f32) {
    check(stored.floats.size(), count);
    out.reals = std::move(stored.floats);
  } else if (stored.type == Type::f64) {
    check(stored.doubles.size(), count);
    out.reals.assign(stored.doubles.begin(), stored.doubles.end());
  } else if (out.is_real) {  // halves lie in int32_data
    check(stored.integers.size(), count);
    for (const int64_t bits : stored.integers)
      out.reals.push_back(short_real(stored.type, static_cast<uint16_t>(bits)));
  } else {
    check(stored.integers.size(), count);
    out.integers = std::move(stored.integers);
  }
}

// ValueInfoProto: 1 name, 2 type (1 tensor_type (2 shape)).
OnnxInput Reader::input(Bytes bytes) {
  OnnxInput out;
  for (MessageReader m = message(bytes); m.next();) {
    if (m.is(1, Wire::bytes)) out.name = text(m);
    if (!m.is(2, Wire::bytes)) continue;
    for (MessageReader type = message(m.bytes()); type.next();) {
      if (!type.is(1, Wire::bytes)) continue;
      for (MessageReader tensor = message(type.bytes()); tensor.next();)
        if (tensor.is(2, Wire::bytes)) shape(tensor.bytes(), out);
    }
  }
  return out;
}

void Reader::shape(Bytes bytes, OnnxInput& out) {
  for (MessageReader m = message(bytes); m.next();) {
    if (!m.is(1, Wire::bytes)) continue;
    int64_t size = -1;
    std::string symbol;
    for (MessageReader dim = message(m.bytes()); dim.next();) {
      if (dim.is(1, Wire::varint)) size = static_cast<int64_t>(dim.value());
      if (dim.is(2, Wire::bytes)) symbol = text(dim);
    }
    out.dims.push_back(size < 1 ? -1 : size);
    out.symbols.push_back(symbol);
  }
}

// Tensors may share bytes of other files, but not multiply them.
constexpr size_t kMostReads = 2;

// Reads each file of values once.
class ExternalFiles {
 public:
  ExternalFiles(std::string path, std::string origin)
      : folder_(std::filesystem::path(path).parent_path()), origin_(std::move(origin)) {}

  Bytes part(const std::string& location, uint64_t offset, std::optional<uint64_t> length,
             const std::string& tensor) {
    const std::string target = resolved(location, tensor);
    auto found = files_.find(target);
    if (found == files_.end()) {
      found = files_.emplace(target, platform::read_file(target)).first;
      left_ += kMostReads * found->second.size();
    }
    const std::string& file = found->second;
    if (offset > file.size() || length.value_or(0) > file.size() - offset)
      fail(Code::corrupt_data, "the ONNX file ", origin_, ": tensor '", tensor,
           "' lies behind the ", file.size(), " bytes of '", as_utf8(location), "'");
    const size_t begin = static_cast<size_t>(offset);
    const size_t count = length ? static_cast<size_t>(*length) : file.size() - begin;
    if (count > left_)
      fail(Code::unsupported, "the ONNX file ", origin_, ": tensor '", tensor,
           "': its tensors read ", "the same bytes of '", as_utf8(location), "' again and again");
    left_ -= count;
    return std::as_bytes(std::span(file)).subspan(begin, count);
  }

 private:
  // The location is the file's own word: it may lead anywhere, also by links.
  std::string resolved(const std::string& location, const std::string& tensor) const {
    namespace fs = std::filesystem;
    const fs::path given(location);
    const bool climbs =
        std::any_of(given.begin(), given.end(), [](const fs::path& part) { return part == ".."; });
    std::error_code error;
    const fs::path home = fs::weakly_canonical(folder_.empty() ? fs::path(".") : folder_, error);
    const fs::path target = fs::weakly_canonical(home / given, error);
    const auto [end, rest] = std::mismatch(home.begin(), home.end(), target.begin(), target.end());
    if (location.empty() || location.find('\0') != std::string::npos || given.is_absolute() ||
        climbs || error || end != home.end())
      fail(Code::unsupported, "the ONNX file ", origin_, ": tensor '", tensor, "' lies in '",
           as_utf8(location),
           "', outside the model's folder: put the file beside the model, or "
           "save the model with its weights inside");
    return target.string();
  }

  const std::filesystem::path folder_;
  const std::string origin_;
  std::map<std::string, std::string> files_;  // by their resolved paths
  size_t left_ = 0;                           // bytes that tensors may still take of them
};

template <typename T, typename F>
T value_or(const OnnxNode& node, const char* attribute, T otherwise, F&& value) {
  const auto it = node.attributes.find(attribute);
  return it == node.attributes.end() ? otherwise : value(it->second);
}

}  // namespace

int64_t OnnxNode::integer(const char* attribute, int64_t otherwise) const {
  return value_or(*this, attribute, otherwise, [](const OnnxAttribute& a) { return a.integer; });
}
double OnnxNode::real(const char* attribute, double otherwise) const {
  return value_or(*this, attribute, otherwise, [](const OnnxAttribute& a) { return a.real; });
}
std::string OnnxNode::text(const char* attribute, const char* otherwise) const {
  return value_or(*this, attribute, std::string(otherwise),
                  [](const OnnxAttribute& a) { return a.text; });
}
std::vector<int64_t> OnnxNode::integers(const char* attribute) const {
  return value_or(*this, attribute, std::vector<int64_t>(),
                  [](const OnnxAttribute& a) { return a.integers; });
}

std::optional<size_t> onnx_count(const std::vector<int64_t>& dims) {
  size_t count = 1;
  bool empty = false;
  for (const int64_t dim : dims) {
    if (dim < 0) return std::nullopt;
    empty = empty || dim == 0;
    if (dim > 0 && (__builtin_mul_overflow(count, static_cast<size_t>(dim), &count) ||
                    count > (size_t{1} << 48)))
      return std::nullopt;
  }
  return empty ? 0 : count;
}

bool onnx_is_real(int64_t type) { return is_real(static_cast<Type>(type)); }

OnnxGraph read_onnx(const std::string& path) {
  const std::string origin = cat("'", path, "'"), file = platform::read_file(path);
  ExternalFiles files(path, origin);
  return Reader(origin, [&](auto&&... part) { return files.part(part...); })
      .model(std::as_bytes(std::span(file)));
}

OnnxGraph parse_onnx(std::span<const std::byte> bytes, const std::string& origin) {
  const auto none = [&](const std::string&, uint64_t, std::optional<uint64_t>,
                        const std::string& tensor) -> Bytes {
    fail(Code::unsupported, "the ONNX file ", origin, ": tensor '", tensor,
         "' lies in another file, and this one was given in memory");
  };
  return Reader(origin, none).model(bytes);
}

}  // namespace etr::nn

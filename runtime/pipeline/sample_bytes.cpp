#include "pipeline/sample_bytes.h"

#include <bit>
#include <cstring>
#include <string>
#include <type_traits>

#include "core/error.h"

namespace etr::pipeline {
namespace {

static_assert(std::endian::native == std::endian::little,
              "numbers are written as they lie in memory");

class Writer {
 public:
  template <typename T>
  void number(T value) {
    static_assert(std::is_integral_v<T>);
    const auto* at = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), at, at + sizeof value);
  }
  void text(const std::string& value) {
    number(static_cast<uint32_t>(value.size()));
    const auto* at = reinterpret_cast<const std::byte*>(value.data());
    bytes_.insert(bytes_.end(), at, at + value.size());
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string text() {
    const auto bytes = take(number<uint32_t>());
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::span<const std::byte> take(size_t size) {
    if (size > bytes_.size()) fail(Code::corrupt_data, "it ends early");
    const auto out = bytes_.first(size);
    bytes_ = bytes_.subspan(size);
    return out;
  }

  std::span<const std::byte> bytes_;
};

void write_origin(const Origin& origin, Writer& out) {
  out.number(static_cast<uint8_t>(origin.shard != nullptr));
  if (origin.shard) out.text(*origin.shard);
  out.text(origin.key);
  out.number(origin.offset);
}

std::shared_ptr<const Origin> read_origin(Reader& in) {
  Origin origin;
  if (in.number<uint8_t>()) origin.shard = std::make_shared<const std::string>(in.text());
  origin.key = in.text();
  origin.offset = in.number<int64_t>();
  return std::make_shared<const Origin>(std::move(origin));
}

DType dtype_of(int32_t number) {
  for (const DType known : {DType::u8, DType::i32, DType::f32, DType::u16})
    if (static_cast<int32_t>(known) == number) return known;
  fail(Code::corrupt_data, "a field has the type ", number);
}

// `left`: bytes left for values; no more memory is allocated.
Field read_field(Reader& in, uint64_t& left) {
  std::string name = in.text();
  const DType dtype = dtype_of(in.number<int32_t>());
  Shape shape;
  const auto rank = in.number<uint32_t>();
  if (rank > Shape::kMaxRank) fail(Code::corrupt_data, "a field has ", rank, " axes");
  for (uint32_t i = 0; i < rank; ++i) shape.push_back(in.number<int64_t>());
  const size_t bytes = size_of(dtype, shape);
  if (bytes > left) fail(Code::corrupt_data, "its fields are larger than it is");
  left -= bytes;
  return {std::move(name), Tensor(dtype, shape)};
}

}  // namespace

std::vector<std::byte> sample_head(const Item& item) {
  Writer out;
  out.number(*item.record);
  out.number(static_cast<uint8_t>(item.origin != nullptr));
  if (item.origin) write_origin(*item.origin, out);
  out.number(static_cast<uint32_t>(item.fields.size()));
  for (const Field& field : item.fields) {
    out.text(field.name);
    out.number(static_cast<int32_t>(field.tensor.dtype()));
    out.number(static_cast<uint32_t>(field.tensor.shape().size()));
    for (const int64_t extent : field.tensor.shape()) out.number(extent);
  }
  return out.take();
}

void read_sample_head(std::span<const std::byte> head, uint64_t bytes, Item& item) {
  Reader in(head);
  if (in.number<uint64_t>() != *item.record) fail(Code::corrupt_data, "it is another record");
  item.origin = in.number<uint8_t>() ? read_origin(in) : nullptr;
  const auto fields = in.number<uint32_t>();
  item.fields.clear();
  for (uint32_t i = 0; i < fields; ++i) item.fields.push_back(read_field(in, bytes));
  if (!in.at_end() || bytes != 0) fail(Code::corrupt_data, "its fields are smaller than it is");
}

}  // namespace etr::pipeline

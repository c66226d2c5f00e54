#include "checkpoint/safetensors_header.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "core/json.h"
#include "core/parse_json.h"

namespace etr::checkpoint {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // bytes, as in the reference implementation

constexpr FileType kTypes[] = {  // types of arrays first, for file_type_name()
    {"F32", DType::f32, 4}, {"I32", DType::i32, 4}, {"U8", DType::u8, 1},
    {"U16", DType::u16, 2}, {"F16", DType::f32, 2}, {"BF16", DType::f32, 2},
    {"F64", DType::f32, 8}, {"I64", DType::i32, 8}};

// A tensor's entry in the header. `at` names it in errors.
class Row {
 public:
  Row(const Json& row, std::string at) : row_(row), at_(std::move(at)) {
    if (!row_.is_object()) bad("must be an object, not ", excerpt(row_));
  }

  const FileType& type() const {
    const Json& name = member("dtype");
    if (!name.is_string()) bad("is wrong: 'dtype' must be a string, not ", excerpt(name));
    for (const FileType& type : kTypes)
      if (name == type.name) return type;
    fail(Code::unsupported, at_, " has element type ", name.get<std::string>().substr(0, 40),
         "; F32, F16, BF16, F64, I32, I64, U8 and U16 are supported");
  }

  Shape shape() const {
    const Json& extents = member("shape");
    if (!extents.is_array()) bad("is wrong: 'shape' must be a list, not ", excerpt(extents));
    if (extents.size() > Shape::kMaxRank)
      fail(Code::unsupported, at_, " has ", extents.size(), " axes; arrays have at most ",
           Shape::kMaxRank);
    Shape out;
    for (const Json& extent : extents) {
      if (!extent.is_number_unsigned() ||
          extent.get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()})
        bad("has the shape ", excerpt(extents), "; extents are whole numbers from 0");
      out.push_back(extent.get<int64_t>());
    }
    return out;
  }

  // For elements of `size` bytes.
  uint64_t bytes(const Shape& shape, uint64_t size) const {
    uint64_t total = 1;
    for (const int64_t extent : shape)
      if (__builtin_mul_overflow(total, static_cast<uint64_t>(extent), &total))
        total_too_large(shape);
    if (__builtin_mul_overflow(total, size, &total)) total_too_large(shape);
    if (total == 0) check_extents_of_nothing(shape);
    return total;
  }

  std::pair<uint64_t, uint64_t> offsets() const {
    const Json& pair = member("data_offsets");
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_unsigned() ||
        !pair[1].is_number_unsigned())
      bad("has the data_offsets ", excerpt(pair), "; they are two whole numbers from 0");
    return {pair[0].get<uint64_t>(), pair[1].get<uint64_t>()};
  }

  template <typename... Parts>
  [[noreturn]] void bad(const Parts&... parts) const {
    fail(Code::corrupt_data, at_, " ", parts...);
  }

 private:
  static std::string excerpt(const Json& json) {
    const std::string text = json.dump();
    return text.size() <= 80 ? text : text.substr(0, 80) + "...";
  }

  // An array without elements has a shape that fits the memory, too.
  void check_extents_of_nothing(const Shape& shape) const {
    int64_t total = sizeof(double);
    for (const int64_t extent : shape)
      if (__builtin_mul_overflow(total, std::max<int64_t>(extent, 1), &total))
        total_too_large(shape);
  }

  [[noreturn]] void total_too_large(const Shape& shape) const {
    bad("has the shape ", shape_text(shape), ", which is more than 64 bits can count");
  }

  const Json& member(const char* key) const {
    const auto found = row_.find(key);
    if (found == row_.end()) bad("has no '", key, "'");
    return *found;
  }

  const Json& row_;
  const std::string at_;
};

// Returns the header and the offset of the data.
std::pair<Json, uint64_t> read_header(std::span<const std::byte> bytes, const std::string& origin) {
  uint64_t length = 0;
  if (bytes.size() < sizeof length)
    fail(Code::corrupt_data, origin, ": too short for a safetensors file");
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > kMaxHeader)
    fail(Code::corrupt_data, origin, ": a safetensors header of ", length, " bytes; at most ",
         kMaxHeader, " are allowed. Is this a safetensors file?");
  if (length > bytes.size() - sizeof length)
    fail(Code::corrupt_data, origin, ": the safetensors header is cut off");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + sizeof length,
                              static_cast<size_t>(length));
  const JsonRules strict{.comments = false, .code = Code::corrupt_data};
  Json header = parse_json(text, origin + ": the safetensors header", strict);
  if (!header.is_object() || text[0] != '{')
    fail(Code::corrupt_data, origin, ": the safetensors header does not begin as a JSON object");
  return {std::move(header), sizeof length + length};
}

void check_metadata(const Json& metadata, const std::string& origin) {
  const auto is_text = [](const Json& value) { return value.is_string(); };
  if (!metadata.is_object() || !std::all_of(metadata.begin(), metadata.end(), is_text))
    fail(Code::corrupt_data, origin, ": '__metadata__' must map names to strings");
}

struct Placed {
  uint64_t begin, end;
  FileTensor tensor;
};

// Checks that each tensor begins where the previous one ends, and that the last ends with the file.
void check_places(const std::vector<Placed>& placed, uint64_t data_bytes,
                  const std::string& origin) {
  uint64_t at = 0;
  std::string before = "the data begins";
  for (const Placed& p : placed) {
    const std::string where = cat(origin, ": tensor '", p.tensor.name, "' begins at byte ", p.begin,
                                  " of the data, but ", before, " at byte ", at);
    if (p.begin < at) fail(Code::corrupt_data, where, "; the two overlap");
    if (p.begin > at) fail(Code::corrupt_data, where, "; the gap belongs to no tensor");
    at = p.end;
    before = cat("tensor '", p.tensor.name, "' before it ends");
  }
  const std::string last =
      placed.empty() ? "there is no tensor"
                     : cat("the last tensor '", placed.back().tensor.name, "' ends at byte ", at);
  if (at > data_bytes)
    fail(Code::corrupt_data, origin, ": ", last, ", but the data has only ", data_bytes,
         " bytes; the file is cut off");
  if (at < data_bytes)
    fail(Code::corrupt_data, origin, ": the data has ", data_bytes, " bytes, but ", last,
         "; the rest belongs to no tensor");
}

}  // namespace

const char* file_type_name(DType dtype) {
  for (const FileType& type : kTypes)  // the first match is the type itself
    if (type.becomes == dtype) return type.name;
  return "?";
}

std::vector<FileTensor> file_tensors(std::span<const std::byte> bytes, const std::string& origin) {
  const auto [header, begin] = read_header(bytes, origin);
  const auto data = bytes.subspan(static_cast<size_t>(begin));
  std::vector<Placed> placed;
  for (const auto& [name, json] : header.items()) {
    if (name == "__metadata__") {
      check_metadata(json, origin);
      continue;
    }
    const Row row(json, cat(origin, ": tensor '", name, "'"));
    const auto [from, to] = row.offsets();
    const FileType& type = row.type();
    const Shape shape = row.shape();
    const uint64_t wanted = row.bytes(shape, type.bytes);
    if (from > to || to - from != wanted)
      row.bad("lies in bytes ", from, " to ", to, ", but ", type.name, " ", shape_text(shape),
              " has ", wanted);
    placed.push_back({from, to, {name, &type, shape, {}}});
  }
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  check_places(placed, data.size(), origin);
  std::vector<FileTensor> out;
  for (Placed& p : placed) {
    p.tensor.data =
        data.subspan(static_cast<size_t>(p.begin), static_cast<size_t>(p.end - p.begin));
    out.push_back(std::move(p.tensor));
  }
  return out;
}

}  // namespace etr::checkpoint

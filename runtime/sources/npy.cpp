// NumPy's .npy arrays, whose first axis counts the samples: x=images.npy,label=labels.npy.
// Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "core/text.h"
#include "io/byte_stream.h"
#include "sources/indexed_source.h"

namespace etr::sources {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"arrays", OptionType::string, nullptr,
     "fields and their files, 'image=x.npy,label=y.npy'; the first axis of each counts the "
     "samples",
     0, 0, "path"},
    kShuffleOption,
};

// How a file's elements become ours.
enum class Elements { u8, i32, f32, i64, f64 };

struct Array {
  std::string field, path;
  io::Block file;
  Elements elements = Elements::u8;
  Shape shape;  // with the leading count
  size_t data_at = 0;
};

size_t element_bytes(Elements e) {
  return e == Elements::u8 ? 1 : e == Elements::i64 || e == Elements::f64 ? 8 : 4;
}

// The value of `key` in the header, which is a Python dict on one line.
std::string_view header_value(const Array& a, std::string_view header, std::string_view key) {
  const size_t at = header.find("'" + std::string(key) + "':");
  if (at == std::string_view::npos)
    fail(Code::corrupt_data, "'", a.path, "': the .npy header has no '", key, "'");
  std::string_view rest = header.substr(at + key.size() + 3);
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  return rest;
}

Elements elements_of(const Array& a, std::string_view descr) {
  const auto is = [&](std::string_view name) {
    return descr.size() > name.size() && descr.substr(1, name.size()) == name;
  };
  if (is("|u1'") || is("|b1'")) return Elements::u8;
  if (is("<i4'")) return Elements::i32;
  if (is("<f4'")) return Elements::f32;
  if (is("<i8'")) return Elements::i64;
  if (is("<f8'")) return Elements::f64;
  fail(Code::unsupported, "'", a.path, "': elements of type ", descr.substr(0, descr.find(',')),
       "; save it as uint8, bool, int32, int64, float32 or float64");
}

Array open_array(const std::string& field, const std::string& path,
                 const io::RemoteOptions& remote) {
  Array a;
  a.field = field;
  a.path = path;
  a.file = io::read_whole(path, io::kWholeFileLimit, remote);
  const char* bytes = reinterpret_cast<const char*>(a.file.data.get());
  if (a.file.size < 12 || std::memcmp(bytes, "\x93NUMPY", 6) != 0)
    fail(Code::corrupt_data, "'", path, "' is not a .npy file");
  const bool wide = bytes[6] >= 2;  // version 2 and later: a 4-byte length
  uint32_t length = 0;
  std::memcpy(&length, bytes + 8, wide ? 4 : 2);
  a.data_at = (wide ? size_t{12} : size_t{10}) + length;
  if (a.data_at > a.file.size)
    fail(Code::corrupt_data, "'", path, "': the file ends in its header");
  const std::string_view header(bytes + (wide ? 12 : 10), length);
  a.elements = elements_of(a, header_value(a, header, "descr"));
  if (header_value(a, header, "fortran_order").starts_with("True"))
    fail(Code::unsupported, "'", path, "' is in Fortran order; save numpy.ascontiguousarray(x)");
  std::string_view shape = header_value(a, header, "shape");
  const size_t end = shape.find(')');
  if (!shape.starts_with('(') || end == std::string_view::npos)
    fail(Code::corrupt_data, "'", path, "': the .npy header's shape is damaged");
  shape = shape.substr(1, end - 1);
  for (const std::string_view extent : split(shape, ','))
    if (!trim(extent).empty())
      a.shape.push_back(parse_integer(trim(extent), "the shape of '" + path + "'"));
  if (a.shape.empty())
    fail(Code::unsupported, "'", path, "' holds a single value, not an array of samples");
  double needed = static_cast<double>(a.data_at);
  double elements = 1;
  for (const int64_t extent : a.shape) {
    if (extent < 0) fail(Code::corrupt_data, "'", path, "' has the shape ", shape_text(a.shape));
    elements *= static_cast<double>(extent);
  }
  needed += elements * static_cast<double>(element_bytes(a.elements));
  if (needed > static_cast<double>(a.file.size))
    fail(Code::corrupt_data, "'", path, "': ", shape_text(a.shape), " needs ", needed,
         " bytes; the file has ", a.file.size, " and is truncated");
  return a;
}

class Npy final : public IndexedSource {
 public:
  Npy(const Options& options, const StageContext& context) : IndexedSource(options, context) {
    const std::string arrays = options.string("arrays");
    for (const std::string_view entry : split(arrays, ',')) {
      const size_t equals = entry.find('=');
      if (equals == std::string_view::npos || equals == 0)
        fail(Code::invalid_argument, "npy: 'arrays' has the entry '", entry,
             "'; write FIELD=FILE, as in 'image=x.npy,label=y.npy'");
      files_.emplace_back(trim(entry.substr(0, equals)), trim(entry.substr(equals + 1)));
    }
  }

 protected:
  uint64_t count() override {
    if (arrays_.empty()) {
      std::vector<Array> opened;
      for (const auto& [field, path] : files_) opened.push_back(open_array(field, path, remote()));
      for (const Array& a : opened)
        if (a.shape[0] != opened[0].shape[0])
          fail(Code::invalid_argument, "'", a.path, "' holds ", a.shape[0], " samples, '",
               opened[0].path, "' holds ", opened[0].shape[0]);
      arrays_ = std::move(opened);
      shard_ = std::make_shared<std::string>(arrays_[0].path);
    }
    return static_cast<uint64_t>(arrays_[0].shape[0]);
  }

  std::vector<std::string> paths() const override {
    std::vector<std::string> out;
    for (const Array& a : arrays_) out.push_back(a.path);
    return out;
  }

  void read(uint64_t index, Item& item) override {
    item.origin = std::make_shared<Origin>(Origin{shard_, std::to_string(index)});
    for (const Array& a : arrays_) item.fields.push_back({a.field, sample(a, index)});
  }

 private:
  static Tensor sample(const Array& a, uint64_t index) {
    const Shape shape(a.shape.begin() + 1, a.shape.end());
    const auto n = static_cast<size_t>(element_count(shape));
    const std::byte* from = a.file.data.get() + a.data_at + index * n * element_bytes(a.elements);
    if (a.elements == Elements::i64) return narrow<int64_t, int32_t>(a, from, n, shape, DType::i32);
    if (a.elements == Elements::f64) return narrow<double, float>(a, from, n, shape, DType::f32);
    const DType dtype = a.elements == Elements::u8    ? DType::u8
                        : a.elements == Elements::i32 ? DType::i32
                                                      : DType::f32;
    const bool aligned = reinterpret_cast<uintptr_t>(from) % dtype_size(dtype) == 0;
    if (aligned) return Tensor(dtype, shape, {a.file.data, from});
    Tensor copy(dtype, shape);
    std::memcpy(copy.mutable_data(), from, copy.size_bytes());
    return copy;
  }

  template <typename From, typename To>
  static Tensor narrow(const Array& a, const std::byte* from, size_t n, const Shape& shape,
                       DType dtype) {
    Tensor out(dtype, shape);
    To* to = static_cast<To*>(out.mutable_data());
    for (size_t i = 0; i < n; ++i, from += sizeof(From)) {
      From value;
      std::memcpy(&value, from, sizeof value);
      if constexpr (std::is_same_v<To, int32_t>)
        if (value < std::numeric_limits<To>::min() || value > std::numeric_limits<To>::max())
          fail(Code::unsupported, "field '", a.field, "': ", value, " does not fit in 32 bits");
      to[i] = static_cast<To>(value);
    }
    return out;
  }

  std::vector<std::pair<std::string, std::string>> files_;
  std::vector<Array> arrays_;
  std::shared_ptr<const std::string> shard_;
};

}  // namespace
}  // namespace etr::sources

namespace etr::pipeline {

extern const StageSpec npy_stage;
const StageSpec npy_stage{"npy", "samples from NumPy's .npy arrays", StageKind::source,
                          sources::kOptions, make_stage<sources::Npy>};

}  // namespace etr::pipeline

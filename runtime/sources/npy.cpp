// NumPy's .npy arrays, whose first axis counts the samples: x=images.npy,label=labels.npy. Format:
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "io/record_file.h"
#include "sources/indexed_source.h"
#include "sources/npy_header.h"

namespace etr::sources {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"arrays", OptionType::string, nullptr,
     "fields and their files: 'image=x.npy,label=y.npy'; the first axis of each array counts the "
     "samples",
     0, 0, "path"},
    kShuffleOption,
};

// The supported element types of files.
enum class Elements { u8, i32, f32, i64, f64 };

struct Array {
  std::string field, path;
  std::unique_ptr<const io::RecordFile> file;
  Elements elements = Elements::u8;
  uint64_t samples = 0;
  Shape shape;  // of a sample
  uint64_t data_at = 0;

  size_t sample_bytes() const;
};

size_t element_bytes(Elements e) {
  return e == Elements::u8 ? 1 : e == Elements::i64 || e == Elements::f64 ? 8 : 4;
}

size_t Array::sample_bytes() const {
  return static_cast<size_t>(element_count(shape)) * element_bytes(elements);
}

Elements elements_of(const Array& a, const NpyHeader& header) {
  const auto is = [&](std::string_view name) {
    return !header.structured &&
           std::string_view(header.type).substr(1, header.type.size() - 2) == name;
  };
  if (is("|u1") || is("|b1")) return Elements::u8;
  if (is("<i4")) return Elements::i32;
  if (is("<f4")) return Elements::f32;
  if (is("<i8")) return Elements::i64;
  if (is("<f8")) return Elements::f64;
  fail(Code::unsupported, "'", a.path, "' holds elements of type ", escaped(header.type),
       header.structured ? " (structured)" : "",
       "; bool, uint8 and little-endian int32, int64, float32 and float64 are read: save "
       "x.astype('<f4'), say");
}

// Returns the header's text, a Python dict, and sets data_at.
std::string read_header(Array& a) {
  constexpr size_t kMagic = 6, kNarrow = 10, kWide = 12;
  if (a.file->size() < kWide) fail(Code::corrupt_data, "'", a.path, "' is not a .npy file");
  const auto begin = a.file->read(0, kWide);
  if (std::memcmp(begin.get(), "PK\x03\x04", 4) == 0)
    fail(Code::unsupported, "'", a.path,
         "' is an archive of arrays (.npz); save each by itself with numpy.save");
  if (std::memcmp(begin.get(), "\x93NUMPY", kMagic) != 0)
    fail(Code::corrupt_data, "'", a.path, "' is not a .npy file");
  const int version = std::to_integer<int>(begin.get()[kMagic]),
            minor = std::to_integer<int>(begin.get()[kMagic + 1]);
  if (version < 1 || version > 3 || minor != 0)
    fail(Code::unsupported, "'", a.path, "' is of version ", version, ".", minor,
         " of the .npy format; versions 1.0, 2.0 and 3.0 are read");
  const bool wide = version >= 2;  // 4-byte length
  uint32_t length = 0;
  std::memcpy(&length, begin.get() + 8, wide ? 4 : 2);
  const size_t at = wide ? kWide : kNarrow;
  a.data_at = at + uint64_t{length};
  if (a.data_at > a.file->size())
    fail(Code::corrupt_data, "'", a.path, "': the file ends in its header");
  constexpr uint32_t kMost = 1 << 20;  // NumPy itself reads at most 10,000 bytes
  if (length > kMost)
    fail(Code::unsupported, "'", a.path, "': a header of ", length, " bytes; the limit is ", kMost);
  const auto text = a.file->read(at, length);
  return {reinterpret_cast<const char*>(text.get()), length};
}

// Splits the header's shape into the number of samples and the shape of a sample.
void read_shape(Array& a, const std::vector<uint64_t>& extents) {
  std::string text;
  for (const uint64_t extent : extents) text += cat(text.empty() ? "(" : ", ", extent);
  text += extents.size() == 1 ? ",)" : ")";
  if (extents.empty())
    fail(Code::unsupported, "'", a.path, "' holds a single value, not an array of samples");
  if (extents.size() > Shape::kMaxRank + 1)
    fail(Code::unsupported, "'", a.path, "' has the shape ", text, ": samples of ",
         extents.size() - 1, " axes; at most ", Shape::kMaxRank);
  uint64_t bytes = element_bytes(a.elements);
  bool empty = false;
  for (const uint64_t extent : extents) {
    empty = empty || extent == 0;
    if (extent > INT64_MAX || __builtin_mul_overflow(bytes, std::max<uint64_t>(extent, 1), &bytes))
      fail(Code::corrupt_data, "'", a.path, "' has the shape ", text, ", which no array has");
  }
  if (!empty && bytes > a.file->size() - a.data_at)
    fail(Code::corrupt_data, "'", a.path, "': the shape ", text, " needs ", bytes,
         " bytes after the header; the file has ", a.file->size() - a.data_at, " and is truncated");
  a.samples = extents[0];
  a.shape = Shape(extents.begin() + 1, extents.end());
}

Array open_array(const std::string& field, const std::string& path,
                 const io::ReadOptions& reading) {
  Array a;
  a.field = field;
  a.path = path;
  a.file = std::make_unique<io::RecordFile>(path, reading);
  const NpyHeader header = parse_npy_header(read_header(a), path);
  a.elements = elements_of(a, header);
  if (header.fortran_order)
    fail(Code::unsupported, "'", path, "' is in Fortran order; save numpy.ascontiguousarray(x)");
  read_shape(a, header.shape);
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
      const std::string field(trim(entry.substr(0, equals)));
      for (const auto& [earlier, path] : files_)
        if (earlier == field)
          fail(Code::invalid_argument, "npy: 'arrays' names the field '", field,
               "' twice; each array needs a field of its own");
      files_.emplace_back(field, trim(entry.substr(equals + 1)));
    }
  }

  double holds_bytes(double) override {
    size_t sum = 0;
    for (const Array& a : arrays_) sum += a.file->held_bytes();
    return static_cast<double>(sum);
  }

 protected:
  uint64_t count() override {
    if (arrays_.empty()) {
      std::vector<Array> opened;
      for (const auto& [field, path] : files_) opened.push_back(open_array(field, path, reading()));
      for (const Array& a : opened) check_record(a.path, a.sample_bytes());
      for (const Array& a : opened)
        if (a.samples != opened[0].samples)
          fail(Code::invalid_argument, "'", a.path, "' holds ", a.samples, " samples, '",
               opened[0].path, "' holds ", opened[0].samples);
      arrays_ = std::move(opened);
      shard_ = std::make_shared<std::string>(arrays_[0].path);
    }
    return arrays_[0].samples;
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
    const auto n = static_cast<size_t>(element_count(a.shape));
    const auto from = a.file->read(a.data_at + index * a.sample_bytes(), a.sample_bytes());
    if (a.elements == Elements::i64) return narrow<int64_t, int32_t>(a, from.get(), n, DType::i32);
    if (a.elements == Elements::f64) return narrow<double, float>(a, from.get(), n, DType::f32);
    const DType dtype = a.elements == Elements::u8    ? DType::u8
                        : a.elements == Elements::i32 ? DType::i32
                                                      : DType::f32;
    const bool aligned = reinterpret_cast<uintptr_t>(from.get()) % dtype_size(dtype) == 0;
    if (aligned) return Tensor(dtype, a.shape, from);
    Tensor copy(dtype, a.shape);
    std::memcpy(copy.mutable_data(), from.get(), copy.size_bytes());
    return copy;
  }

  template <typename From, typename To>
  static Tensor narrow(const Array& a, const std::byte* from, size_t n, DType dtype) {
    Tensor out(dtype, a.shape);
    To* to = static_cast<To*>(out.mutable_data());
    bool fits = true;
    for (size_t i = 0; i < n; ++i) {
      From value;
      std::memcpy(&value, from + i * sizeof value, sizeof value);
      if constexpr (std::is_same_v<To, int32_t>)
        fits = fits && value >= std::numeric_limits<To>::min() &&
               value <= std::numeric_limits<To>::max();
      to[i] = static_cast<To>(value);
      if constexpr (std::is_same_v<To, float>)
        fits = fits && (std::isfinite(to[i]) || !std::isfinite(value));
    }
    if (!fits)
      fail(Code::unsupported, "'", a.path, "', field '", a.field,
           "': a value does not fit in 32 bits");
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
const StageSpec npy_stage{"npy", "reads samples from NumPy's .npy arrays", StageKind::source,
                          sources::kOptions, make_stage<sources::Npy>};

}  // namespace etr::pipeline

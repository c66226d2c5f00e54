// TFRecord files, plain, .gz or .zst, with a tf.train.Example per record. Byte lists become u8,
// int64 lists i32 and float lists f32. A single value becomes a scalar, several a vector.
// Formats: https://www.tensorflow.org/tutorials/load_data/tfrecord, tensorflow/core/example/*.proto
#include <cstring>
#include <limits>
#include <string>
#include <unordered_map>

#include "core/crc32c.h"
#include "core/error.h"
#include "core/protobuf_reader.h"
#include "core/utf8.h"
#include "io/byte_stream.h"
#include "sources/reading.h"
#include "sources/sharded_source.h"

namespace etr::sources {
namespace {

using namespace pipeline;

constexpr OptionSpec kOptions[] = {
    {"pattern", OptionType::string, nullptr, "path of the files, may contain globs and braces", 0,
     0, "path"},
    {"check_data", OptionType::boolean, "true", "verify the checksum of each record's data"},
    kShuffleShardsOption,
    kMaxRatioOption,
    {"max_record_bytes", OptionType::integer, "2147483648", "larger records are an error", 1, 1e15,
     "bytes"},
};

class Message : public MessageReader {
 public:
  explicit Message(std::span<const std::byte> bytes)
      : MessageReader(bytes, "the tf.train.Example") {}
};

using Wire = Message::Wire;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <typename T>
Tensor tensor_of(DType dtype, const std::vector<T>& values) {
  Tensor out(dtype, values.size() == 1 ? Shape{} : Shape{static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), out.mutable_view<T>().begin());
  return out;
}

Tensor bytes_list(std::string_view name, std::span<const std::byte> list) {
  Message message(list);
  std::span<const std::byte> only;
  int count = 0;
  while (message.next())
    if (message.is(1, Wire::bytes)) {
      only = message.bytes();
      ++count;
    }
  if (count > 1)
    fail(Code::unsupported, "feature '", name, "' holds ", count, " byte strings; one is read");
  return Tensor::text(text_of(only));
}

Tensor float_list(std::string_view name, std::span<const std::byte> list) {
  std::vector<float> values;
  Message message(list);
  while (message.next()) {
    if (!message.is(1, Wire::bytes) && !message.is(1, Wire::fixed32)) continue;
    if (message.bytes().size() % sizeof(float) != 0)
      fail(Code::corrupt_data, "feature '", name, "' has ", message.bytes().size(),
           " bytes of floats, which is not a multiple of 4");
    const size_t before = values.size(), count = message.bytes().size() / sizeof(float);
    values.resize(before + count);
    if (count > 0)
      std::memcpy(values.data() + before, message.bytes().data(), count * sizeof(float));
  }
  return tensor_of(DType::f32, values);
}

Tensor int64_list(std::string_view name, std::span<const std::byte> list) {
  std::vector<int32_t> values;
  const auto add = [&](uint64_t raw) {
    const auto value = static_cast<int64_t>(raw);
    if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max())
      fail(Code::unsupported, "feature '", name, "': ", value, " does not fit in 32 bits");
    values.push_back(static_cast<int32_t>(value));
  };
  Message message(list);
  while (message.next()) {
    if (message.is(1, Wire::varint)) add(message.value());
    if (!message.is(1, Wire::bytes)) continue;
    Message packed(message.bytes());
    while (!packed.empty()) add(packed.varint());
  }
  return tensor_of(DType::i32, values);
}

constexpr size_t kMostFeatures = 1 << 16;  // as of a fast shard

// Collects a record's features. Of those of one name the last counts.
class Features {
 public:
  explicit Features(Item& item) : item_(item) {}

  void count() {
    if (++count_ > kMostFeatures)
      fail(Code::unsupported, "the tf.train.Example has more than ", kMostFeatures, " features");
  }

  void set(const std::string& name, Tensor tensor) {
    constexpr size_t kFew = 32;  // Item::set() compares with each
    std::vector<Field>& fields = item_.fields;
    if (fields.size() < kFew) return item_.set(name, std::move(tensor));
    if (places_.empty())
      for (size_t i = 0; i < fields.size(); ++i) places_.emplace(fields[i].name, i);
    if (const auto [at, added] = places_.emplace(name, fields.size()); added)
      fields.push_back({name, std::move(tensor)});
    else
      fields[at->second].tensor = std::move(tensor);
  }

 private:
  Item& item_;
  size_t count_ = 0;
  std::unordered_map<std::string, size_t> places_;  // in the item's fields, if they are many
};

// Adds an entry of the feature map: key and value.
void add_feature(Features& features, std::span<const std::byte> entry) {
  features.count();
  Message message(entry);
  std::string name;
  std::span<const std::byte> feature;
  while (message.next()) {
    if (message.is(1, Wire::bytes)) name = as_utf8(text_of(message.bytes()));
    if (message.is(2, Wire::bytes)) feature = message.bytes();
  }
  Message value(feature);
  while (value.next()) {
    if (value.is(1, Wire::bytes)) features.set(name, bytes_list(name, value.bytes()));
    if (value.is(2, Wire::bytes)) features.set(name, float_list(name, value.bytes()));
    if (value.is(3, Wire::bytes)) features.set(name, int64_list(name, value.bytes()));
  }
}

void parse_example(Item& item, std::span<const std::byte> record) {
  Features features(item);
  Message example(record);
  while (example.next()) {
    if (!example.is(1, Wire::bytes)) continue;
    Message entries(example.bytes());
    while (entries.next())
      if (entries.is(1, Wire::bytes)) add_feature(features, entries.bytes());
  }
  if (item.fields.empty())
    fail(Code::corrupt_data, "the record holds no tf.train.Example with features");
}

class TfRecord final : public ShardedSource {
 public:
  TfRecord(const Options& options, const StageContext& context)
      : ShardedSource(options, context),
        check_data_(options.boolean("check_data")),
        max_record_bytes_(size_limit(options, "max_record_bytes", context)) {}

 protected:
  void open(const std::string& path) override {
    stream_ = stream_of(path);
    number_ = end_ = 0;
    intact_ = true;
  }

  bool read(Item& item) override {
    intact_ = false;  // until the whole record is read
    std::byte head[12];
    const size_t got = stream_->read(head);
    if (got == 0) return false;
    ++number_;
    begin_ = end_;
    if (got < sizeof head) fail(Code::corrupt_data, "the file ends inside a record's head");
    uint64_t length = 0;
    std::memcpy(&length, head, sizeof length);
    check(std::span(head).first(8), head + 8, "length");
    if (length > max_record_bytes_.bytes)
      fail(Code::unsupported, "a record of ", length, " bytes; the limit is ",
           max_record_bytes_.bytes, " (", max_record_bytes_.name, ")");
    if (!io::read_exactly(*stream_, record_, length + 4))
      fail(Code::corrupt_data, "the file ends inside a record of ", length, " bytes");
    intact_ = true;
    end_ += sizeof head + record_.size();
    const auto data = std::span<const std::byte>(record_).first(static_cast<size_t>(length));
    if (check_data_) check(data, record_.data() + length, "data");
    item.fields.clear();
    parse_example(item, data);
    item.origin = origin(current_key());
    return true;
  }

  void close() override { stream_.reset(); }
  bool can_go_on() const override { return intact_; }
  int64_t current_offset() const override { return static_cast<int64_t>(begin_); }
  std::string current_key() const override { return stream_ ? cat("record ", number_) : ""; }

 private:
  static void check(std::span<const std::byte> bytes, const std::byte* stored, const char* what) {
    const uint32_t crc = crc32c(bytes);
    const uint32_t masked = ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;  // the format's masking
    uint32_t expected = 0;
    std::memcpy(&expected, stored, sizeof expected);
    if (masked != expected)
      fail(Code::corrupt_data, "the checksum of the record's ", what, " does not match");
  }

  const bool check_data_;
  const io::SizeLimit max_record_bytes_;
  std::unique_ptr<io::ByteStream> stream_;
  std::vector<std::byte> record_;
  uint64_t number_ = 0;           // of the current record, from 1
  uint64_t begin_ = 0, end_ = 0;  // of the record, in the file
  bool intact_ = false;
};

}  // namespace
}  // namespace etr::sources

namespace etr::pipeline {

extern const StageSpec tfrecord_stage;
const StageSpec tfrecord_stage{"tfrecord", "tf.train.Example records of TFRecord files",
                               StageKind::source, sources::kOptions, make_stage<sources::TfRecord>};

}  // namespace etr::pipeline

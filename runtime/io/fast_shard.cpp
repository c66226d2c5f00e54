#include "io/fast_shard.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "core/text.h"
#include "core/zstd.h"
#include "io/new_file.h"

namespace etr::io {
namespace {

// zstd's skippable frames, and the footer of its seekable format
// (github.com/facebook/zstd, contrib/seekable_format).
constexpr uint32_t kIndexMagic = 0x184D2A50, kSeekTableMagic = 0x184D2A5E;
constexpr uint32_t kSeekableFooter = 0x8F92EAB1;
constexpr size_t kSkippableHeader = 8, kFooter = 9, kSeekEntry = 8;
constexpr uint64_t kVersion = 1;
constexpr uint64_t kMostIndexBytes = uint64_t{1} << 30;  // also of a seek table
constexpr double kMostIndexRatio = 1000;                 // keys differ, so ten is typical
constexpr uint64_t kMostNames = 1 << 16;

uint32_t u32_at(const std::byte* at) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value |= std::to_integer<uint32_t>(at[i]) << (8 * i);
  return value;
}

// Reads the index. Functions return false, with empty results, if it ends early.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, size_t at) : bytes_(bytes), at_(at) {}

  bool number(uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 64 && at_ < bytes_.size(); shift += 7) {
      const auto byte = std::to_integer<uint64_t>(bytes_[at_++]);
      value |= (byte & 127) << shift;
      if (!(byte & 128)) return true;
    }
    return false;
  }
  bool text(std::string_view& out) {
    uint64_t size = 0;
    if (!number(size) || size > bytes_.size() - at_) return false;
    out = {reinterpret_cast<const char*>(bytes_.data()) + at_, static_cast<size_t>(size)};
    at_ += static_cast<size_t>(size);
    return true;
  }
  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

 private:
  std::span<const std::byte> bytes_;
  size_t at_;
};

}  // namespace

FastShard::FastShard(const std::string& path, const ReadOptions& options)
    : path_(path), file_(path, options) {
  unpack_index(read_seek_table());
  read_index();
}

void FastShard::corrupt(const std::string& why) const {
  fail(Code::corrupt_data, "'", path_, "' is not a fast shard, or is damaged: ", why);
}

// Fills frames_ and returns the end of the last frame.
uint64_t FastShard::read_seek_table() {
  const uint64_t size = file_.size();
  if (size < kSkippableHeader + kFooter)
    corrupt("it does not end with a seek table; is it truncated?");
  const auto footer = file_.read(size - kFooter, kFooter);
  if (u32_at(footer.get() + 5) != kSeekableFooter)
    corrupt("it does not end with a seek table; is it truncated?");
  const uint64_t count = u32_at(footer.get());
  if (footer.get()[4] != std::byte{0}) corrupt("its seek table has checksums or reserved bits");
  const uint64_t table = count * kSeekEntry + kFooter;
  if (table + kSkippableHeader > size) corrupt("its seek table is longer than the file");
  if (table > kMostIndexBytes) corrupt("its seek table is longer than a gibibyte");
  const uint64_t end = size - table - kSkippableHeader;
  const auto header = file_.read(end, kSkippableHeader);
  if (u32_at(header.get()) != kSeekTableMagic || u32_at(header.get() + 4) != table)
    corrupt("its seek table has a wrong header");
  const auto bytes = file_.read(end + kSkippableHeader, static_cast<size_t>(table));
  const std::byte* at = bytes.get();
  frames_.reserve(count + 1);
  frames_.push_back(0);
  for (uint64_t i = 0; i < count; ++i, at += kSeekEntry)
    frames_.push_back(frames_.back() + u32_at(at));
  if (frames_.back() > end) corrupt("its frames are longer than the file");
  return frames_.back();
}

void FastShard::unpack_index(uint64_t begin) {
  const uint64_t left = file_.size() - begin;
  if (left < kSkippableHeader) corrupt("its index is missing");
  const auto header = file_.read(begin, kSkippableHeader);
  const uint64_t packed = u32_at(header.get() + 4);
  if (u32_at(header.get()) != kIndexMagic || packed > left - kSkippableHeader)
    corrupt("its index is missing");
  const auto bytes = file_.read(begin + kSkippableHeader, static_cast<size_t>(packed));
  const uint64_t size = ZSTD_getFrameContentSize(bytes.get(), packed);
  if (size > kMostIndexBytes || !in_proportion(size, packed, kMostIndexRatio))
    corrupt("its index has no size, or one out of all proportion");
  index_.resize(size);
  if (zstd_result(ZSTD_decompress(index_.data(), size, bytes.get(), packed)) != size)
    corrupt("its index is damaged");
}

void FastShard::read_index() {
  Cursor cursor(index_, 0);
  uint64_t version = 0, names = 0, records = 0;
  if (!cursor.number(version) || version != kVersion)
    corrupt(cat("its index has version ", version, "; this library knows ", kVersion));
  if (!cursor.number(names) || names > cursor.left()) corrupt("its index is damaged");
  if (names > kMostNames)
    corrupt(cat("it has ", names, " names of fields; at most ", kMostNames, " are read"));
  names_.resize(names);
  for (std::string_view& name : names_)
    if (!cursor.text(name)) corrupt("its index is damaged");
  // A record takes at least two bytes, a field one.
  if (!cursor.number(records) || records > cursor.left() / 2) corrupt("its index is damaged");
  // Stores only each record's position; records are parsed on access.
  uint64_t frame = 0;
  records_.reserve(records);
  for (uint64_t r = 0; r < records; ++r) {
    records_.push_back({static_cast<uint32_t>(cursor.at()), static_cast<uint32_t>(frame)});
    std::string_view skipped;
    uint64_t fields = 0, tag = 0;
    if (!cursor.text(skipped) || !cursor.number(fields) || fields > cursor.left())
      corrupt("its index is damaged");
    if (fields > names) corrupt(cat("record ", r, " has more fields than there are names"));
    for (uint64_t f = 0; f < fields; ++f) {
      if (!cursor.number(tag) || tag / 2 >= names_.size()) corrupt("its index is damaged");
      if (tag % 2 == 0 && !cursor.text(skipped)) corrupt("its index is damaged");
      frame += tag % 2;
    }
  }
  if (frame + 1 != frames_.size())
    corrupt(
        cat("its index has ", counted(frame, "frame"), ", its seek table ", frames_.size() - 1));
}

size_t FastShard::held_bytes() const {
  return file_.held_bytes() + index_.size() + frames_.size() * sizeof frames_[0] +
         records_.size() * sizeof records_[0];
}

FastShard::Record FastShard::record(uint64_t number) const {
  if (number >= records_.size()) fail(Code::internal, "record ", number, " of ", records_.size());
  // The constructor has validated the whole index, so no step fails here.
  Cursor cursor(index_, records_[number].index_offset);
  size_t frame = records_[number].first_frame;
  Record record;
  uint64_t fields = 0;
  cursor.text(record.key);
  cursor.number(fields);
  record.fields.resize(fields);
  for (Field& field : record.fields) {
    uint64_t tag = 0;
    cursor.number(tag);
    field.name = names_[tag / 2];
    if (tag % 2 == 0) {
      cursor.text(field.value);
      continue;
    }
    const auto size = static_cast<size_t>(frames_[frame + 1] - frames_[frame]);
    field.frame = {file_.read(frames_[frame], size), size};
    ++frame;
  }
  return record;
}

// Writing ---------------------------------------------------------------------------------------

struct FastShardWriter::State {
  NewFile file;
  std::string index;  // the records' part
  std::vector<std::string> names;
  std::vector<std::pair<uint32_t, uint32_t>> frames;  // compressed size, content size
  uint64_t records = 0;

  explicit State(const std::string& path) : file(path, ".tmp") {}

  void write(const void* bytes, size_t size) {
    file.write({static_cast<const std::byte*>(bytes), size});
  }
  void write_u32(uint32_t value) {
    const unsigned char bytes[] = {
        static_cast<unsigned char>(value), static_cast<unsigned char>(value >> 8),
        static_cast<unsigned char>(value >> 16), static_cast<unsigned char>(value >> 24)};
    write(bytes, sizeof bytes);
  }
  uint64_t number_of(const std::string& name) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it != names.end()) return static_cast<uint64_t>(it - names.begin());
    names.push_back(name);
    return names.size() - 1;
  }
};

namespace {

void put_number(std::string& to, uint64_t value) {
  for (; value >= 128; value >>= 7) to += static_cast<char>(value | 128);
  to += static_cast<char>(value);
}
void put_text(std::string& to, std::string_view text) {
  put_number(to, text.size());
  to += text;
}

}  // namespace

std::vector<std::byte> zstd_frame(std::span<const std::byte> bytes, int level) {
  const ZstdCompressor zstd = zstd_compressor(level);
  ZSTD_CCtx_setParameter(zstd.get(), ZSTD_c_checksumFlag, 1);
  std::vector<std::byte> out(ZSTD_compressBound(bytes.size()));
  const size_t size =
      zstd_result(ZSTD_compress2(zstd.get(), out.data(), out.size(), bytes.data(), bytes.size()));
  if (ZSTD_isError(size)) fail(Code::internal, "zstd: ", ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

FastShardWriter::FastShardWriter(const std::string& path) : state_(std::make_unique<State>(path)) {}

FastShardWriter::~FastShardWriter() = default;

void FastShardWriter::add(std::string_view key, std::span<const Field> fields) {
  State& s = *state_;
  put_text(s.index, key);
  put_number(s.index, fields.size());
  for (const Field& field : fields) {
    if (field.bytes.size() > UINT32_MAX || field.frame_size > UINT32_MAX)
      fail(Code::unsupported, "pack: '", key, "' has a field of 4 GiB or more");
    put_number(s.index, s.number_of(field.name) * 2 + (field.frame_size > 0));
    if (field.frame_size == 0) {
      put_text(s.index, {reinterpret_cast<const char*>(field.bytes.data()), field.bytes.size()});
      continue;
    }
    s.write(field.bytes.data(), field.bytes.size());
    s.frames.emplace_back(field.bytes.size(), field.frame_size);
  }
  ++s.records;
}

void FastShardWriter::finish() {
  State& s = *state_;
  std::string index;
  put_number(index, kVersion);
  put_number(index, s.names.size());
  for (const std::string& name : s.names) put_text(index, name);
  put_number(index, s.records);
  index += s.index;
  if (index.size() > kMostIndexBytes)
    fail(Code::unsupported, "'", s.file.path(),
         "': an index of more than 1 GiB; take fewer samples a shard");
  std::string packed(ZSTD_compressBound(index.size()), '\0');
  const size_t size =
      zstd_result(ZSTD_compress(packed.data(), packed.size(), index.data(), index.size(), 3));
  if (ZSTD_isError(size)) fail(Code::internal, "zstd: ", ZSTD_getErrorName(size));
  s.write_u32(kIndexMagic);
  s.write_u32(static_cast<uint32_t>(size));
  s.write(packed.data(), size);
  s.write_u32(kSeekTableMagic);
  s.write_u32(static_cast<uint32_t>(s.frames.size() * kSeekEntry + kFooter));
  for (const auto& [compressed, content] : s.frames) {
    s.write_u32(compressed);
    s.write_u32(content);
  }
  s.write_u32(static_cast<uint32_t>(s.frames.size()));
  s.write("", 1);  // descriptor: no checksums
  s.write_u32(kSeekableFooter);
  s.file.keep();
}

}  // namespace etr::io

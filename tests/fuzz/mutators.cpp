// Mutators that know a format, for libFuzzer: behind a checksum that no longer matches, a parser
// reads nothing. Half of the inputs are made as usual. Those of the other half are made by the
// function that has the target's name, which corrects the checksums, or changes what is compressed.
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/crc32c.h"
#include "io/tar_format.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace etr::fuzz::mutators {
namespace {

using Input = std::vector<uint8_t>;

constexpr size_t kMostUnpacked = 1 << 16;

// An input of this size is mutated in place, to at most `most` bytes.
void mutate(Input& input, size_t most) {
  const size_t size = input.size();
  input.resize(std::max(size, most));
  input.resize(LLVMFuzzerMutate(input.data(), size, input.size()));
}

uint32_t little_endian(const uint8_t* at) {
  return at[0] | uint32_t{at[1]} << 8 | uint32_t{at[2]} << 16 | uint32_t{at[3]} << 24;
}
void put_little_endian(uint8_t* at, uint32_t value) {
  for (int i = 0; i < 4; ++i) at[i] = static_cast<uint8_t>(value >> (8 * i));
}
uint32_t big_endian(const uint8_t* at) {
  return uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | at[3];
}
void put_big_endian(uint8_t* at, uint32_t value) {
  for (int i = 0; i < 4; ++i) at[i] = static_cast<uint8_t>(value >> (24 - 8 * i));
}

// tar ---------------------------------------------------------------------------------------------

// Every second time one record alone, so that the others stay where they are.
void tar(Input& input, size_t most, unsigned choice) {
  using io::tar::kRecord;
  const size_t records = input.size() / kRecord;
  if (records > 0 && choice % 2) {
    uint8_t* const at = input.data() + choice / 2 % records * kRecord;
    std::fill(at + LLVMFuzzerMutate(at, kRecord, kRecord), at + kRecord, uint8_t{0});
  } else {
    mutate(input, most);
  }
  constexpr size_t kChecksum = 148, kMagic = 257;
  for (size_t at = 0; at + kRecord <= input.size(); at += kRecord) {
    uint8_t* const header = input.data() + at;
    if (std::memcmp(header + kMagic, "ustar", 5) != 0) continue;
    std::memset(header + kChecksum, ' ', 8);
    unsigned sum = 0;
    for (size_t i = 0; i < kRecord; ++i) sum += header[i];
    for (size_t i = 6; i-- > 0; sum /= 8)
      header[kChecksum + i] = static_cast<uint8_t>('0' + sum % 8);
    header[kChecksum + 6] = 0;
  }
}
void webdataset(Input& input, size_t most, unsigned choice) { tar(input, most, choice); }

// zstd and fast shards ----------------------------------------------------------------------------

// Frames with a checksum lose it: zstd exports no function that would make one.
void drop_zstd_checksums(Input& input) {
  constexpr size_t kDescriptor = 4;  // of a frame, its place
  constexpr uint8_t kHasChecksum = 4;
  for (size_t at = 0; input.size() - at > kDescriptor;) {
    size_t size = ZSTD_findFrameCompressedSize(input.data() + at, input.size() - at);
    if (ZSTD_isError(size)) return;
    if (little_endian(input.data() + at) == ZSTD_MAGICNUMBER &&
        input[at + kDescriptor] & kHasChecksum) {
      input[at + kDescriptor] &= static_cast<uint8_t>(~kHasChecksum);
      size -= 4;
      const auto checksum = input.begin() + static_cast<ptrdiff_t>(at + size);
      input.erase(checksum, checksum + 4);
    }
    at += size;
  }
}
void zstd(Input& input, size_t most, unsigned) {
  mutate(input, most);
  drop_zstd_checksums(input);
}

// The content of the frame with which `frame` begins; empty if there is none, or it is damaged.
Input unpacked(std::span<const uint8_t> frame) {
  const auto size = ZSTD_getFrameContentSize(frame.data(), frame.size());
  Input content(size <= kMostUnpacked ? size : 0);
  const size_t got = ZSTD_decompress(content.data(), content.size(), frame.data(), frame.size());
  if (got != content.size()) content.clear();
  return content;
}
Input packed(const Input& content) {
  Input frame(ZSTD_compressBound(content.size()));
  frame.resize(ZSTD_compress(frame.data(), frame.size(), content.data(), content.size(), 1));
  return frame;
}

// A shard's frames, index and seek table (docs/formats.md).
struct Shard {
  std::vector<Input> frames;
  Input index;
};
constexpr size_t kSkippable = 8, kEntry = 8, kFooter = 9;

// Without an index if the shard is damaged.
Shard taken_apart(const Input& input) {
  Shard shard;
  if (input.size() < 2 * kSkippable + kFooter) return shard;
  const size_t left = input.size() - kFooter - kSkippable;
  const size_t count = little_endian(input.data() + input.size() - kFooter);
  if (count > left / kEntry) return shard;
  const size_t table = left - count * kEntry;  // its skippable frame
  std::span<const uint8_t> rest(input.data(), table);
  for (size_t i = 0; i < count; ++i) {
    const size_t size = little_endian(input.data() + table + kSkippable + i * kEntry);
    if (size > rest.size()) return shard;
    shard.frames.emplace_back(rest.begin(), rest.begin() + static_cast<ptrdiff_t>(size));
    rest = rest.subspan(size);
  }
  if (rest.size() > kSkippable) shard.index = unpacked(rest.subspan(kSkippable));
  return shard;
}

Input put_together(const Shard& shard) {
  Input out;
  const auto number = [&](size_t value) {
    out.resize(out.size() + 4);
    put_little_endian(out.data() + out.size() - 4, static_cast<uint32_t>(value));
  };
  for (const Input& frame : shard.frames) out.insert(out.end(), frame.begin(), frame.end());
  const Input index = packed(shard.index);
  number(ZSTD_MAGIC_SKIPPABLE_START);
  number(index.size());
  out.insert(out.end(), index.begin(), index.end());
  number(ZSTD_MAGIC_SKIPPABLE_START + 14);
  number(shard.frames.size() * kEntry + kFooter);
  for (const Input& frame : shard.frames) {
    number(frame.size());
    number(0);  // the size of its content, which readers do not take from here
  }
  number(shard.frames.size());
  out.push_back(0);
  number(0x8F92EAB1);
  return out;
}

// Changes the content of a frame.
void planar(Input& frame, size_t most) {
  Input content = unpacked(frame);
  if (content.empty()) return mutate(frame, most);
  mutate(content, most);
  frame = packed(content);
}

void fast_shard(Input& input, size_t most, unsigned choice) {
  Shard shard = taken_apart(input);
  if (shard.index.empty()) return mutate(input, most);
  if (choice % 2 || shard.frames.empty())
    mutate(shard.index, most);
  else
    planar(shard.frames[choice / 2 % shard.frames.size()], most);
  input = put_together(shard);
}

// zlib: gzip and PNG ------------------------------------------------------------------------------

struct Inflated {
  size_t taken = 0;  // of the input; 0: it is damaged, or ends early
  Input content;
};
Inflated inflated(const uint8_t* data, size_t size) {
  Inflated out;
  out.content.resize(kMostUnpacked);
  z_stream stream{};
  constexpr int kRaw = -MAX_WBITS;
  if (inflateInit2(&stream, kRaw) != Z_OK) return out;
  stream.next_in = const_cast<Bytef*>(data);
  stream.avail_in = static_cast<uInt>(size);
  stream.next_out = out.content.data();
  stream.avail_out = static_cast<uInt>(out.content.size());
  if (inflate(&stream, Z_FINISH) == Z_STREAM_END) out.taken = stream.total_in;
  out.content.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

// The checksum and length of each member whose header has no options.
void gzip(Input& input, size_t most, unsigned) {
  mutate(input, most);
  constexpr size_t kHeader = 10, kTrailer = 8, kFlags = 3;
  for (size_t at = 0; at + kHeader + kTrailer <= input.size();) {
    if (input[at + kFlags] != 0) return;
    const Inflated member = inflated(input.data() + at + kHeader, input.size() - at - kHeader);
    at += kHeader + member.taken;
    if (member.taken == 0 || at + kTrailer > input.size()) return;
    const auto crc = crc32(0, member.content.data(), static_cast<uInt>(member.content.size()));
    put_little_endian(input.data() + at, static_cast<uint32_t>(crc));
    put_little_endian(input.data() + at + 4, static_cast<uint32_t>(member.content.size()));
    at += kTrailer;
  }
}
void cifar(Input& input, size_t most, unsigned choice) { gzip(input, most, choice); }

constexpr size_t kChunkHead = 8, kChunkTail = 4;

// The checksum of the pixels, which may lie in several chunks.
void correct_adler(Input& png, size_t first_chunk) {
  std::vector<size_t> places;
  for (size_t at = first_chunk; at + kChunkHead + kChunkTail <= png.size();) {
    const size_t length = big_endian(png.data() + at);
    if (std::memcmp(png.data() + at + 4, "IDAT", 4) == 0)
      for (size_t i = 0; i < length; ++i) places.push_back(at + kChunkHead + i);
    at += kChunkHead + length + kChunkTail;
  }
  constexpr size_t kHeader = 2, kTrailer = 4;
  if (places.size() < kHeader + kTrailer) return;
  Input data;
  for (const size_t place : places) data.push_back(png[place]);
  const Inflated pixels = inflated(data.data() + kHeader, data.size() - kHeader);
  if (pixels.taken == 0 || kHeader + pixels.taken + kTrailer > data.size()) return;
  const auto adler = adler32(1, pixels.content.data(), static_cast<uInt>(pixels.content.size()));
  uint8_t bytes[kTrailer];
  put_big_endian(bytes, static_cast<uint32_t>(adler));
  for (size_t i = 0; i < kTrailer; ++i) png[places[kHeader + pixels.taken + i]] = bytes[i];
}

// The lengths and checksums of a PNG's chunks; JPEG has none.
void image(Input& input, size_t most, unsigned) {
  constexpr uint8_t kPng[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  if (input.size() > 4 && little_endian(input.data()) == ZSTD_MAGICNUMBER)
    return planar(input, most);
  mutate(input, most);
  if (input.size() < std::size(kPng) || !std::equal(kPng, std::end(kPng), input.begin())) return;
  const auto each_chunk = [&](const auto& use) {
    for (size_t at = std::size(kPng); at + kChunkHead + kChunkTail <= input.size();) {
      const size_t room = input.size() - at - kChunkHead - kChunkTail;
      const size_t length = std::min<size_t>(big_endian(input.data() + at), room);
      use(input.data() + at, length);
      at += kChunkHead + length + kChunkTail;
    }
  };
  each_chunk(
      [](uint8_t* chunk, size_t length) { put_big_endian(chunk, static_cast<uint32_t>(length)); });
  correct_adler(input, std::size(kPng));
  each_chunk([](uint8_t* chunk, size_t length) {
    const auto crc = crc32(0, chunk + 4, static_cast<uInt>(length + 4));
    put_big_endian(chunk + kChunkHead + length, static_cast<uint32_t>(crc));
  });
}

// TFRecord ----------------------------------------------------------------------------------------

// The lengths and both checksums of each record.
void tfrecord(Input& input, size_t most, unsigned) {
  mutate(input, most);
  const auto put_crc = [&](size_t of, size_t size, size_t to) {
    const uint32_t crc = crc32c(std::as_bytes(std::span(input).subspan(of, size)));
    put_little_endian(input.data() + to, (crc >> 15 | crc << 17) + 0xA282EAD8);
  };
  constexpr size_t kHead = 12, kTail = 4;
  for (size_t at = 0; at + kHead + kTail <= input.size();) {
    uint64_t length = 0;
    std::memcpy(&length, input.data() + at, sizeof length);
    length = std::min<uint64_t>(length, input.size() - at - kHead - kTail);
    std::memcpy(input.data() + at, &length, sizeof length);
    put_crc(at, sizeof length, at + sizeof length);
    put_crc(at + kHead, length, at + kHead + length);
    at += kHead + length + kTail;
  }
}

}  // namespace
}  // namespace etr::fuzz::mutators

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  if (seed % 2) {
    etr::fuzz::mutators::Input input(data, data + size);
    etr::fuzz::mutators::ETR_FUZZ_TARGET(input, max_size, seed / 2);
    if (!input.empty() && input.size() <= max_size) {
      std::copy(input.begin(), input.end(), data);
      return input.size();
    }
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

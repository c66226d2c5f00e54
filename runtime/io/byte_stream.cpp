#include "io/byte_stream.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "core/platform.h"

namespace etr::io {
namespace {

class MappedStream final : public ByteStream {
 public:
  explicit MappedStream(const std::string& path) {
    block_.data = platform::map_file(path, block_.size);
  }

  size_t read(std::span<std::byte> out) override {
    const size_t n = std::min(out.size(), block_.size - position_);
    if (n > 0) std::memcpy(out.data(), block_.data.get() + position_, n);
    position_ += n;
    return n;
  }

  Block mapped() override { return block_; }

 private:
  Block block_;
  size_t position_ = 0;
};

// Guards against content that is out of all proportion to its file.
class RatioLimit {
 public:
  explicit RatioLimit(double most) : most_(most) {}

  void add(size_t produced, size_t consumed_so_far, const std::string& path) {
    produced_ += static_cast<double>(produced);
    if (produced_ > kFree + most_ * static_cast<double>(consumed_so_far))
      fail(Code::unsupported, "'", path, "' decompresses to more than ", most_,
           " times its size; if it is to be trusted, raise max_ratio");
  }

 private:
  static constexpr double kFree = 1 << 20;
  const double most_;
  double produced_ = 0;
};

// Streaming decompression of one file with any number of zstd frames.
class ZstdStream final : public ByteStream {
 public:
  ZstdStream(const std::string& path, double max_ratio)
      : path_(path), limit_(max_ratio), context_(ZSTD_createDStream(), ZSTD_freeDStream) {
    if (!context_) fail(Code::out_of_memory, "no memory for a zstd context");
    block_.data = platform::map_file(path, block_.size);
    input_ = {block_.data.get(), block_.size, 0};
  }

  size_t read(std::span<std::byte> out) override {
    ZSTD_outBuffer output{out.data(), out.size(), 0};
    while (output.pos < output.size) {
      const size_t before_in = input_.pos, before_out = output.pos;
      const size_t left = ZSTD_decompressStream(context_.get(), &output, &input_);
      if (ZSTD_isError(left))
        fail(Code::corrupt_data, "'", path_, "': corrupt zstd data near compressed byte ",
             input_.pos, ": ", ZSTD_getErrorName(left));
      if (input_.pos == before_in && output.pos == before_out) break;  // nothing left to give
      in_frame_ = left != 0;
    }
    if (output.pos < output.size && in_frame_)
      fail(Code::corrupt_data, "'", path_,
           "': the zstd data ends inside a frame, after compressed "
           "byte ",
           input_.pos, "; the file is truncated");
    limit_.add(output.pos, input_.pos, path_);
    return output.pos;
  }

 private:
  std::string path_;
  RatioLimit limit_;
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> context_;
  Block block_;
  ZSTD_inBuffer input_{};
  bool in_frame_ = false;
};

// Streaming decompression of one file with any number of gzip members.
class GzipStream final : public ByteStream {
 public:
  GzipStream(const std::string& path, double max_ratio) : path_(path), limit_(max_ratio) {
    block_.data = platform::map_file(path, block_.size);
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK)
      fail(Code::out_of_memory, "no memory for a gzip context");
    ended_ = block_.size == 0;
  }
  ~GzipStream() override { inflateEnd(&stream_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  size_t read(std::span<std::byte> out) override {
    size_t done = 0;
    while (done < out.size() && !ended_) {
      feed();
      const size_t room = std::min(out.size() - done, kMost);
      stream_.next_out = reinterpret_cast<Bytef*>(out.data() + done);
      stream_.avail_out = static_cast<uInt>(room);
      const int status = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
      if (status == Z_STREAM_END) {
        end_member();
      } else if (status == Z_BUF_ERROR) {
        fail(Code::corrupt_data, "'", path_, "': the gzip data ends early, after ", taken_,
             " compressed bytes; the file is truncated");
      } else if (status != Z_OK) {
        fail(Code::corrupt_data, "'", path_, "': corrupt gzip data near compressed byte ", taken_,
             ": ", stream_.msg ? stream_.msg : "unknown");
      }
    }
    limit_.add(done, taken_ - stream_.avail_in, path_);
    return done;
  }

 private:
  static constexpr size_t kMost = size_t{1} << 30;  // zlib counts in 32 bits

  void feed() {
    if (stream_.avail_in > 0) return;
    const size_t n = std::min(block_.size - taken_, kMost);
    stream_.next_in =
        const_cast<Bytef*>(reinterpret_cast<const Bytef*>(block_.data.get() + taken_));
    stream_.avail_in = static_cast<uInt>(n);
    taken_ += n;
  }

  void end_member() {
    if (stream_.avail_in == 0 && taken_ == block_.size)
      ended_ = true;
    else
      inflateReset(&stream_);
  }

  const std::string path_;
  RatioLimit limit_;
  Block block_;
  size_t taken_ = 0;
  z_stream stream_{};
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> open_stream(const std::string& path, double max_ratio) {
  if (path.ends_with(".gz")) return std::make_unique<GzipStream>(path, max_ratio);
  if (path.ends_with(".zst")) return std::make_unique<ZstdStream>(path, max_ratio);
  return std::make_unique<MappedStream>(path);
}

Block read_whole(const std::string& path, size_t limit_bytes) {
  const std::unique_ptr<ByteStream> stream = open_stream(path);
  if (Block mapped = stream->mapped(); mapped.data) return mapped;
  auto bytes = std::make_shared<std::vector<std::byte>>();
  constexpr size_t kFirst = size_t{1} << 20;
  size_t size = 0;
  while (true) {
    bytes->resize(std::max(kFirst, 2 * size));
    const size_t asked = bytes->size() - size;
    const size_t got = stream->read({bytes->data() + size, asked});
    size += got;
    if (size > limit_bytes)
      fail(Code::unsupported, "'", path, "' decompresses to more than ", limit_bytes, " bytes");
    if (got < asked) break;
  }
  bytes->resize(size);
  bytes->shrink_to_fit();
  return {std::shared_ptr<const std::byte>(bytes, bytes->data()), size};
}

}  // namespace etr::io

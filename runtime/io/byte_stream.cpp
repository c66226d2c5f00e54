#include "io/byte_stream.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/platform.h"
#include "io/remote_file.h"

namespace etr::io {
namespace {

// A local file in one piece.
class MappedPiece final : public Pieces {
 public:
  explicit MappedPiece(const std::string& path) {
    block_.data = platform::map_file(path, block_.size);
  }
  Block next() override { return block_.size > 0 ? std::exchange(block_, {}) : Block(); }

 private:
  Block block_;
};

std::unique_ptr<Pieces> pieces_of(const std::string& path, const RemoteOptions& remote) {
  if (is_remote(path)) return open_remote(path, remote);
  return std::make_unique<MappedPiece>(path);
}

// Walks through pieces.
class PieceReader {
 public:
  explicit PieceReader(std::unique_ptr<Pieces> pieces) : pieces_(std::move(pieces)) {}

  // What is left of the present piece, or the next one; empty at the end.
  std::span<const std::byte> rest() {
    if (at_ == block_.size) {
      before_ += block_.size;
      block_ = pieces_->next();
      at_ = 0;
    }
    return block_.bytes().subspan(at_);
  }
  void take(size_t bytes) { at_ += bytes; }
  size_t taken() const { return before_ + at_; }

 private:
  const std::unique_ptr<Pieces> pieces_;
  Block block_;
  size_t at_ = 0, before_ = 0;
};

class PlainStream final : public ByteStream {
 public:
  explicit PlainStream(std::unique_ptr<Pieces> pieces) : input_(std::move(pieces)) {}

  size_t read(std::span<std::byte> out) override {
    size_t done = 0;
    while (done < out.size()) {
      const auto rest = input_.rest();
      if (rest.empty()) break;
      const size_t n = std::min(rest.size(), out.size() - done);
      std::memcpy(out.data() + done, rest.data(), n);
      input_.take(n);
      done += n;
    }
    return done;
  }

 private:
  PieceReader input_;
};

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
  ZstdStream(const std::string& path, std::unique_ptr<Pieces> pieces, double max_ratio)
      : path_(path),
        limit_(max_ratio),
        input_(std::move(pieces)),
        context_(ZSTD_createDStream(), ZSTD_freeDStream) {
    if (!context_) fail(Code::out_of_memory, "no memory for a zstd context");
  }

  size_t read(std::span<std::byte> out) override {
    ZSTD_outBuffer output{out.data(), out.size(), 0};
    while (output.pos < output.size) {
      const auto rest = input_.rest();
      ZSTD_inBuffer input{rest.data(), rest.size(), 0};
      const size_t before = output.pos;
      const size_t left = ZSTD_decompressStream(context_.get(), &output, &input);
      input_.take(input.pos);
      if (ZSTD_isError(left))
        fail(Code::corrupt_data, "'", path_, "': corrupt zstd data near compressed byte ",
             input_.taken(), ": ", ZSTD_getErrorName(left));
      if (input.pos == 0 && output.pos == before) break;  // nothing left to give
      in_frame_ = left != 0;
    }
    if (output.pos < output.size && in_frame_)
      fail(Code::corrupt_data, "'", path_,
           "': the zstd data ends inside a frame, after compressed byte ", input_.taken(),
           "; the file is truncated");
    limit_.add(output.pos, input_.taken(), path_);
    return output.pos;
  }

 private:
  const std::string path_;
  RatioLimit limit_;
  PieceReader input_;
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> context_;
  bool in_frame_ = false;
};

// Streaming decompression of one file with any number of gzip members.
class GzipStream final : public ByteStream {
 public:
  GzipStream(const std::string& path, std::unique_ptr<Pieces> pieces, double max_ratio)
      : path_(path), limit_(max_ratio), input_(std::move(pieces)) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream_, kGzipOnly) != Z_OK)
      fail(Code::out_of_memory, "no memory for a gzip context");
  }
  ~GzipStream() override { inflateEnd(&stream_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  size_t read(std::span<std::byte> out) override {
    size_t done = 0;
    while (done < out.size()) {
      const auto rest = input_.rest();
      if (rest.empty() && !in_member_) break;
      if (rest.empty())
        fail(Code::corrupt_data, "'", path_, "': the gzip data ends early, after ", input_.taken(),
             " compressed bytes; the file is truncated");
      done += inflate_some(rest, out.subspan(done));
    }
    limit_.add(done, input_.taken(), path_);
    return done;
  }

 private:
  static constexpr size_t kMost = size_t{1} << 30;  // zlib counts in 32 bits

  size_t inflate_some(std::span<const std::byte> from, std::span<std::byte> out) {
    const size_t offered = std::min(from.size(), kMost), room = std::min(out.size(), kMost);
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(from.data()));
    stream_.avail_in = static_cast<uInt>(offered);
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(room);
    const int status = inflate(&stream_, Z_NO_FLUSH);
    input_.take(offered - stream_.avail_in);
    in_member_ = status != Z_STREAM_END;
    if (status == Z_STREAM_END)
      inflateReset(&stream_);
    else if (status != Z_OK && status != Z_BUF_ERROR)
      fail(Code::corrupt_data, "'", path_, "': corrupt gzip data near compressed byte ",
           input_.taken(), ": ", stream_.msg ? stream_.msg : "unknown");
    return room - stream_.avail_out;
  }

  const std::string path_;
  RatioLimit limit_;
  PieceReader input_;
  z_stream stream_{};
  bool in_member_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> open_stream(const std::string& path, double max_ratio,
                                        const RemoteOptions& remote) {
  if (path.ends_with(".gz"))
    return std::make_unique<GzipStream>(path, pieces_of(path, remote), max_ratio);
  if (path.ends_with(".zst"))
    return std::make_unique<ZstdStream>(path, pieces_of(path, remote), max_ratio);
  if (is_remote(path)) return std::make_unique<PlainStream>(open_remote(path, remote));
  return std::make_unique<MappedStream>(path);
}

Block read_whole(const std::string& path, size_t limit_bytes, const RemoteOptions& remote) {
  const std::unique_ptr<ByteStream> stream = open_stream(path, kMaxRatio, remote);
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

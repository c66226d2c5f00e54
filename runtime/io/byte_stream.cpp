#include "io/byte_stream.h"

#include <zstd.h>

#include <algorithm>
#include <cstring>

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

// Streaming decompression of one file with any number of zstd frames.
class ZstdStream final : public ByteStream {
 public:
  explicit ZstdStream(const std::string& path)
      : path_(path), context_(ZSTD_createDStream(), ZSTD_freeDStream) {
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
    return output.pos;
  }

 private:
  std::string path_;
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> context_;
  Block block_;
  ZSTD_inBuffer input_{};
  bool in_frame_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> open_stream(const std::string& path) {
  if (path.ends_with(".zst")) return std::make_unique<ZstdStream>(path);
  return std::make_unique<MappedStream>(path);
}

}  // namespace etr::io

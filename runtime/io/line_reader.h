// Lines of a byte stream.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/byte_stream.h"

namespace etr::io {

class LineReader {
 public:
  // Takes over `stream`; `path` names it in errors.
  LineReader(std::unique_ptr<ByteStream> stream, std::string path, size_t max_line_bytes)
      : stream_(std::move(stream)),
        path_(std::move(path)),
        max_line_bytes_(max_line_bytes),
        buffer_(kBufferBytes) {}

  // The next line without its end ("\n" or "\r\n"); false at the end. Throws Error(unsupported) for one
  // longer than the limit.
  bool next(std::string& line);
  uint64_t number() const { return number_; }  // of the line that was read last, from 1

 private:
  static constexpr size_t kBufferBytes = size_t{1} << 16;

  std::unique_ptr<ByteStream> stream_;
  const std::string path_;
  const size_t max_line_bytes_;
  std::vector<std::byte> buffer_;
  size_t position_ = 0, size_ = 0;
  uint64_t number_ = 0;
};

}  // namespace etr::io

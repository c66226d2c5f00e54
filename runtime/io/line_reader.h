// Reads the lines of a byte stream.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/byte_stream.h"

namespace etr::io {

class LineReader {
 public:
  // `path` names the stream in errors.
  LineReader(std::unique_ptr<ByteStream> stream, std::string path, SizeLimit max_line_bytes)
      : stream_(std::move(stream)),
        path_(std::move(path)),
        max_line_bytes_(max_line_bytes),
        buffer_(kBufferBytes) {}

  // Reads the next line without its terminator ("\n" or "\r\n"). Returns false at the end. Throws
  // Error(unsupported) for a line beyond the limit; the next call continues after that line.
  bool next(std::string& line);
  // The terminator of the last line read; "" if the file ended first.
  const char* ending() const { return ending_; }
  uint64_t number() const { return number_; }  // number of the last line read, from 1

  // After next() has thrown: whether only that line is bad. Not if the stream failed: what follows
  // is unknown.
  bool can_go_on() const { return !failed_; }

 private:
  std::string_view piece(bool& line_ends);

  static constexpr size_t kBufferBytes = size_t{1} << 16;

  std::unique_ptr<ByteStream> stream_;
  const std::string path_;
  const SizeLimit max_line_bytes_;
  std::vector<std::byte> buffer_;
  size_t position_ = 0, size_ = 0;
  uint64_t number_ = 0;
  const char* ending_ = "";
  bool in_long_line_ = false, failed_ = false;
};

}  // namespace etr::io

// Sources of bytes: plain files, and those compressed with gzip or zstd.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "io/http.h"

namespace etr::io {

// A run of bytes that keeps its memory alive.
struct Block {
  std::shared_ptr<const std::byte> data;
  size_t size = 0;

  std::span<const std::byte> bytes() const { return {data.get(), size}; }
};

// Delivers a file front to back. Errors name the file. Used by one thread at a time.
class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Fills `out` as far as the stream goes; less than asked only at the end.
  virtual size_t read(std::span<std::byte> out) = 0;

  // The whole content where it is in memory already (a mapped file), else an empty block.
  virtual Block mapped() { return {}; }
};

// How many times as large as the compressed file its content may be, beyond the first megabyte: a small file
// could otherwise fill the memory.
constexpr double kMaxRatio = 10000;

// Opens a file, or an address (https://, s3://); those ending in .zst or .gz are decompressed as they are read.
// Throws Error(not_found / io); reading throws Error(corrupt_data) on a damaged or truncated frame, and
// Error(unsupported) beyond `max_ratio`.
std::unique_ptr<ByteStream> open_stream(const std::string& path, double max_ratio = kMaxRatio,
                                        const RemoteOptions& remote = {});

// A whole file in memory, decompressed: the mapped file itself where it is plain. Throws Error(unsupported) beyond
// `limit_bytes`, which a small file could otherwise decompress to.
constexpr size_t kWholeFileLimit = size_t{1} << 34;
Block read_whole(const std::string& path, size_t limit_bytes = kWholeFileLimit,
                 const RemoteOptions& remote = {});

}  // namespace etr::io

// Sources of bytes: plain files, and those compressed with gzip or zstd.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/interrupt.h"
#include "io/http.h"

namespace etr::io {

// A run of bytes that keeps its memory alive.
struct Block {
  std::shared_ptr<const std::byte> data;
  size_t size = 0;

  std::span<const std::byte> bytes() const { return {data.get(), size}; }
};

// How many times as large as the compressed file its content may be, beyond the first megabyte: a small file
// could otherwise fill the memory.
constexpr double kMaxRatio = 10000;
constexpr uint64_t kFreeOfRatio = uint64_t{1} << 20;

// Whether content of `size` bytes is to be expected of `packed` compressed ones.
inline bool in_proportion(uint64_t size, uint64_t packed, double max_ratio) {
  return static_cast<double>(size) <=
         static_cast<double>(kFreeOfRatio) + max_ratio * static_cast<double>(packed);
}

// How files are read.
struct ReadOptions {
  RemoteOptions remote;
  double max_ratio = kMaxRatio;
  const char* ratio_option = nullptr;    // sets max_ratio, for errors
  const Interrupt* interrupt = nullptr;  // ends every wait with Error(cancelled)
  uint64_t budget_bytes = 0;  // for all that one record, or a file that is kept, may take; 0: none
  bool only_files =
      false;  // a pipe, whose bytes come once, is Error(state): somebody else will read it
};

// Delivers a file front to back. Errors name the file. Used by one thread at a time.
class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Fills `out` as far as the stream goes; less than asked only at the end.
  virtual size_t read(std::span<std::byte> out) = 0;

  // Bytes that are there to be read, where that is certain: of a plain file on the disk.
  virtual std::optional<uint64_t> left() const { return std::nullopt; }
};

bool is_compressed(const std::string& path);  // by its ending: .gz, .tgz, .zst, .tzst

// Error(unsupported) for a pipe or device, which has no size: what is kept in memory as a whole, or read by its place, must end
// and be known beforehand. Addresses are left alone, and what cannot be looked at: opening it will say why.
void require_sized(const std::string& path);

// Opens a file, or an address (https://, s3://); what is compressed is unpacked as it is read.
// Throws Error(not_found / io); reading throws Error(corrupt_data) on a damaged or truncated frame, and
// Error(unsupported) beyond `max_ratio`.
std::unique_ptr<ByteStream> open_stream(const std::string& path, const ReadOptions& options = {});

// How much memory to take for `wanted` bytes of `stream`, of which `have` are there: lengths that a file states are believed
// when as much has arrived.
size_t trusted_bytes(const ByteStream& stream, uint64_t have, uint64_t wanted);

// Reads `size` bytes into `out`, whose memory grows as they arrive; false where the stream ends before.
bool read_exactly(ByteStream& stream, std::vector<std::byte>& out, uint64_t size);

// A whole file in memory, decompressed. Throws Error(unsupported) beyond `limit_bytes`, or the budget.
constexpr uint64_t kWholeFileLimit = uint64_t{1} << 34;
Block read_whole(const std::string& path, const ReadOptions& options = {},
                 uint64_t limit_bytes = kWholeFileLimit);

// A limit that an option names, or the budget where that is less; with the name, for errors.
struct SizeLimit {
  uint64_t bytes = 0;
  const char* name = "";

  SizeLimit(uint64_t most, const char* option, uint64_t budget_bytes = 0)
      : bytes(budget_bytes > 0 && budget_bytes < most ? budget_bytes : most),
        name(budget_bytes > 0 && budget_bytes < most ? "budget_bytes" : option) {}
};

}  // namespace etr::io

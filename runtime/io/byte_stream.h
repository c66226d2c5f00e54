// Byte streams from plain files and from files compressed with gzip or zstd.
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

// The largest allowed ratio of decompressed to compressed size. The first megabyte does not count.
// Without the limit a small file could fill the memory.
constexpr double kMaxRatio = 10000;
constexpr uint64_t kFreeOfRatio = uint64_t{1} << 20;

// Whether `packed` compressed bytes may expand to `size` bytes.
inline bool in_proportion(uint64_t size, uint64_t packed, double max_ratio) {
  return static_cast<double>(size) <=
         static_cast<double>(kFreeOfRatio) + max_ratio * static_cast<double>(packed);
}

// How files are read.
struct ReadOptions {
  RemoteOptions remote;
  double max_ratio = kMaxRatio;
  const char* ratio_option = nullptr;    // the option that sets max_ratio, for errors
  const Interrupt* interrupt = nullptr;  // makes waits end with Error(cancelled)
  uint64_t budget_bytes = 0;             // memory limit of a record or a kept file; 0: none
  bool only_files = false;  // reject pipes with Error(state), as their bytes will be read elsewhere
};

// Reads a file front to back. Errors name the file. For one thread at a time.
class ByteStream {
 public:
  virtual ~ByteStream() = default;

  // Fills `out`. Returns less than asked only at the end.
  virtual size_t read(std::span<std::byte> out) = 0;

  // The number of remaining bytes, if known: for plain files on the disk.
  virtual std::optional<uint64_t> left() const { return std::nullopt; }

  // The most memory that it holds, once something was read: what is read ahead over the network,
  // and the window of a decompressor. Less than a megabyte may be left out.
  virtual uint64_t holds_bytes() const { return 0; }
};

bool is_compressed(const std::string& path);  // by extension: .gz, .tgz, .zst, .tzst

// Throws Error(unsupported) for a pipe or device: files that are kept in memory or read at random
// need a known size. Ignores addresses and files whose status cannot be read; opening those reports
// the error.
void require_sized(const std::string& path);

// Opens a file or an address (https://, s3://) and decompresses it on the fly. Throws
// Error(not_found / io). Reading throws Error(corrupt_data) on a damaged or truncated frame and
// Error(unsupported) beyond `max_ratio`.
std::unique_ptr<ByteStream> open_stream(const std::string& path, const ReadOptions& options = {});

// How much memory to allocate to read `wanted` bytes of `stream`, of which `have` have arrived. A
// length stated in a file is trusted only if the stream is known to hold as many bytes. Otherwise
// the memory grows with the bytes that arrive.
size_t trusted_bytes(const ByteStream& stream, uint64_t have, uint64_t wanted);

// Reads `size` bytes into `out`, which grows as they arrive. Returns false if the stream ends
// first.
bool read_exactly(ByteStream& stream, std::vector<std::byte>& out, uint64_t size);

// A size limit: an option's value, or the memory budget if that is smaller. `name` is the limit's
// name in errors.
struct SizeLimit {
  uint64_t bytes = 0;
  const char* name = "";

  SizeLimit(uint64_t most, const char* option = "the limit", uint64_t budget_bytes = 0)
      : bytes(budget_bytes > 0 && budget_bytes < most ? budget_bytes : most),
        name(budget_bytes > 0 && budget_bytes < most ? "budget_bytes" : option) {}
};

// Reads and decompresses a whole file into memory. Throws Error(unsupported) beyond `most` or the
// budget.
constexpr uint64_t kWholeFileLimit = uint64_t{1} << 34;
Block read_whole(const std::string& path, const ReadOptions& options = {},
                 const SizeLimit& most = kWholeFileLimit);

}  // namespace etr::io

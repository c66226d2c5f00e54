// Random access to the records of a file, such as an array or a fast shard.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "core/platform_files.h"
#include "io/byte_stream.h"

namespace etr::io {

// Thread safe.
class RecordFile {
 public:
  // Rejects pipes, see require_sized(). Compressed and remote files are read into memory; beyond
  // the budget that is Error(unsupported). Plain files are too, because a system call per record
  // costs more than most small records do, until all such files of the process together reach
  // kMostKept or a sixteenth of the budget. Further files are read from the disk.
  RecordFile(const std::string& path, const ReadOptions& options);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  static constexpr uint64_t kMostKept = uint64_t{256} << 20;

  uint64_t size() const { return size_; }
  size_t held_bytes() const { return whole_.size; }  // in memory

  // Returns bytes [offset, offset + size), which must lie within the file. They live as long as the
  // pointer. Throws Error(io) if the file was changed after it was opened.
  std::shared_ptr<const std::byte> read(uint64_t offset, size_t size) const;

 private:
  void read_from(const platform::InputFile& file, uint64_t offset, std::span<std::byte> out) const;

  const std::string path_;
  const Interrupt* const interrupt_;
  platform::FileState opened_;    // of a file that is not kept in memory
  uint64_t size_ = 0, kept_ = 0;  // kept_: bytes counted towards kMostKept
  Block whole_;
  std::unique_ptr<const platform::InputFile> file_;  // kept open, unless too many files are
};

}  // namespace etr::io

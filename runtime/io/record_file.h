// Files whose records are read by their place: arrays, fast shards.
#pragma once

#include <memory>
#include <string>

#include "core/platform_files.h"
#include "io/byte_stream.h"

namespace etr::io {

// Any thread.
class RecordFile {
 public:
  // A file, and no pipe: see require_sized(). What is compressed or comes over the network is read into memory,
  // Error(unsupported) beyond the budget. Plain files are too while all of them in the process take no more than kMostKept, or a
  // sixteenth of the budget: a call of the system for each record costs more than most small records do. Further ones stay on
  // the disk.
  RecordFile(const std::string& path, const ReadOptions& options);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  static constexpr uint64_t kMostKept = uint64_t{256} << 20;

  uint64_t size() const { return size_; }

  // Bytes [offset, offset + size), which must lie within the file; they live as long as the pointer. Error(io) where the file has
  // been shortened since it was opened.
  std::shared_ptr<const std::byte> read(uint64_t offset, size_t size) const;

 private:
  const std::string path_;
  const Interrupt* const interrupt_;
  uint64_t size_ = 0, kept_ = 0;  // kept_: of kMostKept
  Block whole_;
  std::unique_ptr<const platform::InputFile> file_;  // stays open, unless there are very many
};

}  // namespace etr::io

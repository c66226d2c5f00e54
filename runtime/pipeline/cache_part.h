// The files of a shared cache (docs/formats.md). Each part has one writer; all processes read all
// parts.
//
//   FOLDER/upstream.json     what the samples are made from
//          part-N.data       a header, then samples (sample_bytes.h)
//          part-N.index      a header, then an entry per complete sample
//          part-N.lock       exists while somebody writes
//
// Nothing is changed in place, so a killed writer leaves at most bytes without an entry. Nothing is
// mapped, so if a file is truncated, reading the lost samples is an error.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "core/platform_files.h"
#include "core/platform_lock.h"

namespace etr::pipeline {

// Identifies an entry permanently, because indexes only grow.
struct CachePlace {
  uint32_t part = 0;
  uint64_t row = 0;
  friend auto operator<=>(const CachePlace&, const CachePlace&) = default;
};

// A sample at `place`, or, if `bytes` is 0, a withdrawal of the sample at `place`.
struct CacheEntry {
  uint64_t record = 0, stamp = 0;
  CachePlace place;
  uint64_t offset = 0;      // in the data file of its part
  uint64_t bytes = 0;       // of head and values
  uint32_t head_bytes = 0;  // of the head
  uint32_t crc = 0;         // CRC-32C of head and values
};

struct CacheIdentity {
  std::string folder, upstream;  // upstream: what claim_cache_folder() returned
};

// The size of the samples in all parts, including unfinished ones. Returns nothing if the folder
// cannot be listed.
std::optional<uint64_t> cached_bytes(const std::string& folder);

class CachePart {
 public:
  // Returns nullptr if the part does not exist yet. Throws Error(corrupt_data) if it is something
  // else.
  static std::unique_ptr<CachePart> open(const CacheIdentity& identity, uint32_t number);

  // Passes on the entries added since the last call. Logs and skips damaged ones. For one thread at
  // a time.
  void read_entries(const std::function<void(const CacheEntry&)>& take);

  // Reads all of `bytes` from `offset`. Throws Error(io / corrupt_data). Thread safe.
  void read(uint64_t offset, std::span<std::byte> bytes) const;
  uint64_t data_bytes() const { return data_.size(); }
  std::string data_path() const { return data_.path(); }

 private:
  CachePart(const std::string& index, const std::string& data, uint32_t number);

  void read_rows(const std::function<void(const CacheEntry&)>& take);
  void note_damage(const std::string& why);

  const platform::SharedFile index_, data_;
  const uint32_t number_;
  uint64_t next_ = 0;  // next row to read
  bool told_ = false;  // damage was logged
};

// The exclusive right to write one part. Thread safe, except resize().
class CacheWriter {
 public:
  // Takes the first part that nobody else writes and this user may write. Throws Error(io /
  // unsupported) that names the file.
  explicit CacheWriter(const CacheIdentity& identity);

  uint32_t part() const { return part_; }
  uint64_t end() const { return end_; }

  // Reserves or frees space by setting the end of the data file. For one thread at a time.
  void resize(uint64_t end);
  void write(uint64_t offset, std::span<const std::byte> bytes) { data_->write(offset, bytes); }
  void add(CacheEntry& entry);  // sets the entry's place

 private:
  bool claim(const CacheIdentity& identity, uint32_t number);
  std::unique_ptr<platform::FileLock> open_files(const CacheIdentity& identity, uint32_t number,
                                                 bool is_there);

  uint32_t part_ = 0;
  std::unique_ptr<platform::FileLock> lock_;
  std::optional<platform::SharedFile> index_, data_;
  std::mutex mutex_;
  uint64_t rows_ = 0;  // guarded by mutex_
  uint64_t end_ = 0;
};

}  // namespace etr::pipeline

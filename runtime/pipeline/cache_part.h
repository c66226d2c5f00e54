// The files of a shared cache (docs/formats.md): one writer has each part, and everybody reads all of them.
//
//   FOLDER/upstream.json     what the samples are made of
//          part-N.data       a header, then samples (sample_bytes.h)
//          part-N.index      a header, then an entry for each sample, written when it is complete
//          part-N.lock       while somebody writes
//
// Nothing is ever changed in place, and nothing is mapped: a writer that is killed leaves at most bytes without an entry, and a
// file that somebody shortens is an error of what lay there.
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

// Names an entry for ever: indexes only grow.
struct CachePlace {
  uint32_t part = 0;
  uint64_t row = 0;
  friend auto operator<=>(const CachePlace&, const CachePlace&) = default;
};

// Of a sample, `place` being its own; or, with `bytes` 0, that the one at `place` is not to be used any more.
struct CacheEntry {
  uint64_t record = 0, stamp = 0;
  CachePlace place;
  uint64_t offset = 0;      // in the data of its part
  uint64_t bytes = 0;       // of head and values
  uint32_t head_bytes = 0;  // of which head
  uint32_t crc = 0;         // CRC-32C of head and values
};

struct CacheIdentity {
  std::string folder, upstream;  // see claim_cache_folder()
};

// What the samples of all parts take, those that are on their way too; nothing where the folder cannot be listed.
std::optional<uint64_t> cached_bytes(const std::string& folder);

class CachePart {
 public:
  // nullptr where it is not there yet. Error(corrupt_data) where it is something else.
  static std::unique_ptr<CachePart> open(const CacheIdentity& identity, uint32_t number);

  // The entries that have come since the last call; what is damaged is told and passed over. One thread at a time.
  void read_entries(const std::function<void(const CacheEntry&)>& take);

  // All of `bytes`, from `offset` on; Error(io / corrupt_data). Any thread.
  void read(uint64_t offset, std::span<std::byte> bytes) const;
  uint64_t data_bytes() const { return data_.size(); }
  std::string data_path() const { return data_.path(); }

 private:
  CachePart(const std::string& index, const std::string& data, uint32_t number);

  void read_rows(const std::function<void(const CacheEntry&)>& take);
  void note_damage(const std::string& why);

  const platform::SharedFile index_, data_;
  const uint32_t number_;
  uint64_t next_ = 0;  // row
  bool told_ = false;  // that some are damaged
};

// The right to write one part. Any thread, but for resize().
class CacheWriter {
 public:
  // The first part that nobody writes, and this user may. Throws Error(io / unsupported) that names the file.
  explicit CacheWriter(const CacheIdentity& identity);

  uint32_t part() const { return part_; }
  uint64_t end() const { return end_; }

  // Makes room for a sample, or takes it back. One thread at a time.
  void resize(uint64_t end);
  void write(uint64_t offset, std::span<const std::byte> bytes) { data_->write(offset, bytes); }
  void add(CacheEntry& entry);  // gives a sample's entry its place

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

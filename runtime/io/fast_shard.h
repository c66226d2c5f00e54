// Fast shards: samples stored as zstd frames with a seek table and an index, for random access
// (docs/formats.md).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/record_file.h"

namespace etr::io {

// Immutable after construction. Thread safe.
class FastShard {
 public:
  // Reads the index. Throws Error(corrupt_data) that names the file and the damage.
  explicit FastShard(const std::string& path, const ReadOptions& options = {});

  uint64_t size() const { return records_.size(); }
  uint64_t file_bytes() const { return file_.size(); }
  size_t held_bytes() const;  // in memory

  struct Field {
    std::string_view name;   // valid as long as the shard
    std::string_view value;  // bytes of a small field, stored in the index
    Block frame;             // otherwise, with `data` set: a zstd frame
  };
  struct Record {
    std::string_view key;
    std::vector<Field> fields;
  };
  // Reads the record's frames. Throws Error(io) if the file has been truncated.
  Record record(uint64_t number) const;

 private:
  struct At {
    uint32_t index_offset = 0, first_frame = 0;
  };

  [[noreturn]] void corrupt(const std::string& why) const;
  uint64_t read_seek_table();
  void unpack_index(uint64_t begin);
  void read_index();

  const std::string path_;
  const RecordFile file_;
  std::vector<uint64_t> frames_;  // start of each frame, then the end of the last
  std::vector<std::byte> index_;
  std::vector<std::string_view> names_;
  std::vector<At> records_;
};

// Compresses `bytes` into one zstd frame with a checksum.
std::vector<std::byte> zstd_frame(std::span<const std::byte> bytes, int level);

class FastShardWriter {
 public:
  struct Field {
    std::string name;
    std::span<const std::byte> bytes;
    // Nonzero: `bytes` are a zstd frame whose content has this size. 0: a small value.
    uint64_t frame_size = 0;
  };

  // Throws Error(io).
  explicit FastShardWriter(const std::string& path);
  ~FastShardWriter();  // without finish(), the partial file is removed
  FastShardWriter(const FastShardWriter&) = delete;
  FastShardWriter& operator=(const FastShardWriter&) = delete;

  void add(std::string_view key, std::span<const Field> fields);
  // Writes index and seek table, flushes the shard to the disk and renames it into place.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace etr::io

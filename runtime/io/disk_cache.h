// A folder of whole remote files, bounded in size, shared by processes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/platform_files.h"
#include "core/platform_lock.h"

namespace etr::io {

// Files are written under a name of their own and renamed when they are complete, so that no process sees a
// part of one. The least recently used go first. Removing one that is being read is harmless: the reader's
// mapping keeps it. Any thread.
class DiskCache {
 public:
  // Makes the directory; Error(io). `cancelled` is asked while another process makes room.
  DiskCache(std::string directory, uint64_t limit_bytes, std::function<bool()> cancelled = nullptr);

  // The file of this address and version (its entity tag), if it is there; it counts as used now.
  std::optional<std::string> find(const std::string& address, const std::string& version) const;

  // A file being written; removed unless it is kept.
  class Entry {
   public:
    Entry(const DiskCache& cache, const std::string& address, const std::string& version);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

    void write(std::span<const std::byte> bytes);  // Error(io)
    // Returns its path; makes room. Error(cancelled): it is kept, and no room was made.
    std::string keep();

   private:
    const DiskCache& cache_;
    const std::string path_, temporary_;
    std::optional<platform::OutputFile> file_;
  };

 private:
  std::string path_of(const std::string& address, const std::string& version) const;
  std::unique_ptr<platform::FileLock> take_turn() const;
  void make_room(const std::string& kept) const;
  void remove_oldest(const std::string& kept) const;

  const std::string directory_;
  const uint64_t limit_bytes_;
  const std::function<bool()> cancelled_;
};

}  // namespace etr::io

// A size-limited disk cache of whole remote files, shared between processes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/platform_lock.h"
#include "io/new_file.h"

namespace etr::io {

// Files are written under a temporary name and renamed when complete, so no process sees a partial
// file. The least recently used files are removed first. Removing a file that is being read is
// harmless, because the reader has it open. Thread safe.
class DiskCache {
 public:
  // Creates the directory; throws Error(io). `cancelled` is polled while another process makes
  // room.
  DiskCache(std::string directory, uint64_t limit_bytes, std::function<bool()> cancelled = nullptr);

  // Returns the path of the cached file with this address and version (entity tag), if there is
  // one, and marks it as used.
  std::optional<std::string> find(const std::string& address, const std::string& version) const;

  // A file being written. The destructor removes it unless it was kept.
  class Entry {
   public:
    Entry(const DiskCache& cache, const std::string& address, const std::string& version);

    void write(std::span<const std::byte> bytes) { file_.write(bytes); }  // Error(io)
    // Makes the file visible, makes room, and returns the path. Throws Error(cancelled) if
    // cancelled while waiting to make room; the file is kept all the same.
    std::string keep();

   private:
    const DiskCache& cache_;
    NewFile file_;
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

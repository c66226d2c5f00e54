// File locks between processes, kept in one place.
#pragma once

#include <memory>
#include <string>
#include <utility>

namespace etr::platform {

// The name of the lock file of a folder with a single writer.
constexpr const char* kFolderLock = ".echotrain.lock";

// A system lock on a file that stands for an exclusively used resource. It also excludes other
// users within this process. The system releases the lock when the process dies for any reason; a
// file left by a killed process is taken over. A child of fork() does not inherit its parent's
// locks and does not keep them from being released.
class FileLock {
 public:
  // Creates the file and tries to lock it, without waiting. Returns nullptr if it is locked;
  // `holder` then says by whom ("process 1234 on host"). Throws Error(not_found) if the folder is
  // missing, Error(io) if the file cannot be created. If the file system does not support locks,
  // throws Error(unsupported) if `required`; otherwise returns a lock and logs one warning per
  // folder.
  static std::unique_ptr<FileLock> take(const std::string& path, std::string& holder,
                                        bool required = false);
  ~FileLock();  // removes the file, except in a child of fork()
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  class All;

  explicit FileLock(std::string path) : path_(std::move(path)) {}
  static std::unique_ptr<FileLock> try_once(const std::string& path, std::string& holder,
                                            std::string& reason);

  const std::string path_;
  int file_ = -1;      // -1: not open, as in a child of fork()
  bool held_ = false;  // owns the file: the destructor removes it, where the system does not
};

}  // namespace etr::platform

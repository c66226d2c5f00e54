// Locks between processes: the operating system's calls for them, in one place.
#pragma once

#include <memory>
#include <string>
#include <utility>

namespace etr::platform {

constexpr const char* kFolderLock =
    ".echotrain.lock";  // the file in a folder that only one may write into

// The system's lock on a file that stands for something only one may use, within this process too. The system lets go of it
// when the process dies, however that happens; a file that a killed process left is taken over. A child of fork() does not
// have the locks of its parent, and does not keep them from being released.
class FileLock {
 public:
  // Makes the file. Does not wait: nullptr where another has the lock, with `holder` saying who ("process 1234 on host").
  // Error(not_found) where its folder is missing, Error(io) where it cannot be made. Where its file system has no locks, the
  // lock is given, with a warning in the log, one for each folder; `required`: that is Error(unsupported).
  static std::unique_ptr<FileLock> take(const std::string& path, std::string& holder,
                                        bool required = false);
  ~FileLock();  // removes the file; not in a child of fork()
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  class All;

  explicit FileLock(std::string path) : path_(std::move(path)) {}
  static std::unique_ptr<FileLock> try_once(const std::string& path, std::string& holder,
                                            std::string& reason);

  const std::string path_;
  int file_ = -1;      // -1: not open, as in a child of fork()
  bool held_ = false;  // the file is this lock's to remove
};

}  // namespace etr::platform

// Files that appear complete.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "core/platform_files.h"

namespace etr::io {

// A file that is written front to back under a temporary name, and gets its own name when it is
// complete and on the disk.
class NewFile {
 public:
  // `ending` makes the temporary name out of `path`. Error(io).
  NewFile(std::string path, const std::string& ending);
  ~NewFile();  // without keep(), removes what was written
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  const std::string& path() const { return path_; }
  void write(std::span<const std::byte> bytes) { file_->write(bytes); }  // Error(io)
  // Flushes the file to the disk and renames it, which replaces a file of that name. Error(io).
  void keep();

 private:
  const std::string path_;
  const std::filesystem::path temporary_;     // a path: removing it takes no memory
  std::optional<platform::OutputFile> file_;  // until it is kept
};

}  // namespace etr::io

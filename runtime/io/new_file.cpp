#include "io/new_file.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "core/error.h"

namespace etr::io {

namespace fs = std::filesystem;

NewFile::NewFile(std::string path, const std::string& ending)
    : path_(std::move(path)),
      temporary_(path_ + ending),
      file_(std::in_place, path_ + ending, platform::OutputFile::Mode::replace) {}

NewFile::~NewFile() {
  if (!file_) return;
  file_.reset();
  std::error_code ignored;
  fs::remove(temporary_, ignored);
}

void NewFile::keep() {
  const fs::path target = path_;  // before the file is closed, because it takes memory
  file_->sync();                  // a name without its bytes would be read as the file
  file_->close();
  file_.reset();
  std::error_code error;
  fs::rename(temporary_, target, error);
  if (error) {
    std::error_code ignored;
    fs::remove(temporary_, ignored);
    fail(Code::io, "cannot rename to '", path_, "': ", error.message());
  }
  platform::sync_directory_of(path_);
}

}  // namespace etr::io

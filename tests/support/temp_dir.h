// A test's own directory.
#pragma once

#include <filesystem>
#include <random>
#include <string>

namespace etr::test {

// Makes a new directory with a unique name, and removes it in the destructor.
class TempDir {
 public:
  TempDir() {
    std::random_device random;
    do {
      dir_ =
          std::filesystem::temp_directory_path() / ("echotrain-test-" + std::to_string(random()));
    } while (!std::filesystem::create_directory(dir_));  // somebody has that one
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(dir_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  // With slashes on every system, so that it can stand in JSON.
  std::string path(const std::string& name = "") const { return (dir_ / name).generic_string(); }

 private:
  std::filesystem::path dir_;
};

}  // namespace etr::test

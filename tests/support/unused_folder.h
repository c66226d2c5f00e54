// For tests that do not link the runtime.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace etr::test {

// A new folder for temporary files, by a name that no other process has.
inline std::filesystem::path unused_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "echotrain-XXXXXX").string();
  if (!::mkdtemp(name.data())) throw std::runtime_error("cannot make a folder '" + name + "'");
  return name;
}

}  // namespace etr::test

#include "sources/class_folders.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"

namespace etr::sources {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> sorted_entries(const fs::path& directory) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    out.push_back(it->path());
  if (error) fail(Code::io, "cannot list '", directory.string(), "': ", error.message());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

ClassFolders list_class_folders(const std::string& root) {
  ClassFolders out;
  for (const fs::path& folder : sorted_entries(root)) {
    if (!fs::is_directory(folder)) continue;
    const std::string name = folder.filename().string();
    for (const fs::path& file : sorted_entries(folder)) {
      const std::string extension = file.extension().string();
      if (!fs::is_regular_file(file) || extension.size() < 2) continue;
      out.files.push_back({name + "/" + file.filename().string(), extension.substr(1),
                           static_cast<int>(out.classes.size())});
    }
    out.classes.push_back(name);
  }
  if (out.files.empty())
    fail(Code::not_found, "'", root, "' has no files in class folders (root/CLASS/NAME.png)");
  return out;
}

}  // namespace etr::sources

#include "sources/class_folders.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"

namespace etr::sources {
namespace {

namespace fs = std::filesystem;

// The names in a directory of what `is` says yes to. The system tells of what kind an entry is together with its name: asking
// for each file by itself takes longer than the first images do.
std::vector<std::string> sorted_names(const fs::path& directory,
                                      bool (fs::directory_entry::*is)(std::error_code&) const) {
  std::vector<std::string> out;
  std::error_code error, unknown;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    if (((*it).*is)(unknown)) out.push_back(it->path().filename().string());
  if (error) fail(Code::io, "cannot list '", directory.string(), "': ", error.message());
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

ClassFolders list_class_folders(const std::string& root) {
  ClassFolders out;
  for (const std::string& name : sorted_names(root, &fs::directory_entry::is_directory)) {
    for (const std::string& file :
         sorted_names(fs::path(root) / name, &fs::directory_entry::is_regular_file)) {
      const size_t dot = file.rfind('.');
      if (dot == std::string::npos || dot == 0 || dot + 1 == file.size()) continue;
      out.files.push_back(
          {name + "/" + file, file.substr(dot + 1), static_cast<int>(out.classes.size())});
    }
    out.classes.push_back(name);
  }
  if (out.files.empty())
    fail(Code::not_found, "'", root, "' has no files in class folders (root/CLASS/NAME.png)");
  return out;
}

}  // namespace etr::sources

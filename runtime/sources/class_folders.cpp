#include "sources/class_folders.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/platform_files.h"

namespace etr::sources {
namespace {

namespace fs = std::filesystem;

struct Entry {
  std::string name;
  bool folder = false, file = false;
};

// What a directory holds, by name. The system tells of what kind an entry is together with its name: asking for each file by
// itself takes longer than the first images do.
std::vector<Entry> sorted_entries(const fs::path& directory) {
  std::vector<Entry> out;
  std::error_code error, unknown;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error))
    out.push_back(
        {it->path().filename().string(), it->is_directory(unknown), it->is_regular_file(unknown)});
  const bool missing = error == std::errc::no_such_file_or_directory;
  if (error)
    fail(missing ? Code::not_found : Code::io, "cannot list '", directory.string(),
         "': ", error.message(), missing ? platform::missing_hint(directory.string()) : "");
  std::sort(out.begin(), out.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return out;
}

// Why a file is no sample; "" where it is one.
std::string reason_against(const Entry& entry) {
  if (entry.name.starts_with('.')) return "hidden";
  if (entry.folder) return "a folder within a class folder";
  if (!entry.file) return "not a regular file";
  const size_t dot = entry.name.rfind('.');
  return dot == std::string::npos || dot + 1 == entry.name.size() ? "without an extension" : "";
}

void list_class(const std::string& root, const std::string& name, ClassFolders& out) {
  for (const Entry& entry : sorted_entries(fs::path(root) / name)) {
    const std::string path = name + "/" + entry.name;
    if (const std::string reason = reason_against(entry); !reason.empty())
      out.skipped.push_back({path, reason});
    else
      out.files.push_back({path, entry.name.substr(entry.name.rfind('.') + 1),
                           static_cast<int>(out.classes.size())});
  }
  out.classes.push_back(name);
}

}  // namespace

ClassFolders list_class_folders(const std::string& root) {
  ClassFolders out;
  for (const Entry& entry : sorted_entries(root))
    if (entry.folder && !entry.name.starts_with('.'))
      list_class(root, entry.name, out);
    else
      out.skipped.push_back(
          {entry.name, entry.folder ? "a hidden folder" : "not in a class folder"});
  if (out.files.empty())
    fail(Code::not_found, "'", root, "' has no files in class folders (root/CLASS/NAME.png)");
  return out;
}

}  // namespace etr::sources

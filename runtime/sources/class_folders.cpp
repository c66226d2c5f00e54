#include "sources/class_folders.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/platform_files.h"
#include "core/text.h"

namespace etr::sources {
namespace {

namespace fs = std::filesystem;

// A directory entry. A link also has the kind of its target, if that exists.
struct Entry {
  std::string name;
  bool folder = false, file = false, link = false;
};

// The entries of a directory, sorted by name. Uses the kinds that the system lists along with the
// names: querying each file takes longer than reading the first images.
std::vector<Entry> sorted_entries(const fs::path& directory) {
  std::vector<Entry> out;
  std::error_code error, unknown;
  for (auto& [name, listed] : platform::list_folder(directory, error)) {
    const bool link = listed == fs::file_type::symlink;
    const fs::file_type type = link ? fs::status(directory / name, unknown).type() : listed;
    out.push_back(
        {std::move(name), type == fs::file_type::directory, type == fs::file_type::regular, link});
  }
  const bool missing = error == std::errc::no_such_file_or_directory;
  if (error)
    fail(missing ? Code::not_found : Code::io, "cannot list '", directory.string(),
         "': ", error.message(), missing ? platform::missing_hint(directory.string()) : "");
  std::sort(out.begin(), out.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return out;
}

std::string extension_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : lower_case(name.substr(dot + 1));
}

// Says why an entry that is neither a file nor a folder is skipped.
std::string reason_against_other(const Entry& entry) {
  return entry.link ? "a link that leads nowhere" : "not a regular file";
}

bool is_hidden(const Entry& entry) { return entry.name.starts_with('.'); }

// Says why an entry is not a sample; "" if it is one.
std::string reason_against(const Entry& entry, std::span<const std::string> extensions) {
  if (is_hidden(entry)) return "hidden";
  if (entry.folder) return "a folder within a class folder";
  if (!entry.file) return reason_against_other(entry);
  const std::string extension = extension_of(entry.name);
  if (extension.empty()) return "without an extension";
  const bool counts = extensions.empty() || std::find(extensions.begin(), extensions.end(),
                                                      extension) != extensions.end();
  return counts ? "" : "not one of the extensions that are read";
}

void list_class(const std::string& root, const std::string& name,
                std::span<const std::string> extensions, ClassFolders& out) {
  const size_t before = out.files.size();
  for (const Entry& entry : sorted_entries(fs::path(root) / name)) {
    const std::string path = name + "/" + entry.name;
    if (const std::string reason = reason_against(entry, extensions); !reason.empty())
      out.skipped.push_back({path, reason, is_hidden(entry)});
    else
      out.files.push_back({path, extension_of(entry.name), static_cast<int>(out.classes.size())});
  }
  if (out.files.size() == before) out.skipped.push_back({name, "a class without a sample"});
  out.classes.push_back(name);
}

std::string reason_against_class(const Entry& entry) {
  if (is_hidden(entry)) return entry.folder ? "a hidden folder" : "hidden";
  return entry.file ? "not in a class folder" : reason_against_other(entry);
}

}  // namespace

ClassFolders list_class_folders(const std::string& root, std::span<const std::string> extensions) {
  ClassFolders out;
  for (const Entry& entry : sorted_entries(root))
    if (entry.folder && !is_hidden(entry))
      list_class(root, entry.name, extensions, out);
    else
      out.skipped.push_back({entry.name, reason_against_class(entry), is_hidden(entry)});
  if (!out.files.empty()) return out;
  std::string first;
  if (!out.skipped.empty()) first = cat("; '", out.skipped[0].name, "' is ", out.skipped[0].reason);
  fail(Code::not_found, "'", root, "' has no files in class folders (root/CLASS/NAME.png)", first);
}

}  // namespace etr::sources

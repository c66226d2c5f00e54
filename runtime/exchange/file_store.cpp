#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "core/error.h"
#include "core/nearest.h"
#include "core/platform_files.h"
#include "exchange/store.h"
#include "exchange/word.h"

namespace etr::exchange {

namespace {

namespace fs = std::filesystem;

// Does not create a missing parent: after a typing error, ranks would wait in different folders.
void check_parent(const fs::path& folder) {
  const fs::path whole = fs::absolute(folder).lexically_normal();
  const fs::path parent =
      whole.has_filename() ? whole.parent_path() : whole.parent_path().parent_path();
  std::error_code ignored;
  if (fs::is_directory(parent, ignored)) return;
  fs::path there = parent, missing;
  while (!fs::is_directory(there, ignored) && there != there.parent_path()) {
    missing = there.filename();
    there = there.parent_path();
  }
  std::vector<std::string> names;
  for (const auto& entry : platform::list_folder(there, ignored))
    if (fs::is_directory(there / entry.name, ignored)) names.push_back(entry.name);
  const std::string near = nearest(missing.string(), names);
  fail(Code::not_found, "the rendezvous 'file:", folder.string(),
       "' lies in a folder that does not exist; '", there.string(), "' does, and has no folder '",
       missing.string(), "'", near.empty() ? "" : cat(" (did you mean '", near, "'?)"),
       ": correct the path, or make that folder");
}

class FileStore : public Store {
 public:
  explicit FileStore(fs::path folder) : folder_(std::move(folder)) {
    check_parent(folder_);
    std::error_code error;
    fs::create_directory(folder_, error);
    if (!fs::is_directory(folder_))
      fail(Code::io, "the folder '", folder_.string(),
           "', where ranks are to find each other, cannot be made: ", error.message());
  }

  // Writes a file beside its place and renames it, so that others see all of it or nothing. It need
  // not be flushed to the disk.
  void set(const std::string& key, const std::string& value) override {
    const std::string path = place(key), beside = write_beside(path, value);
    std::error_code error;
    fs::rename(beside, path, error);
    if (error) cannot_be_written(path, error.message());
  }

  // Creating a hard link is atomic, on network file systems too.
  bool create(const std::string& key, const std::string& value) override {
    const std::string path = place(key), beside = write_beside(path, value);
    std::error_code error, ignored;
    fs::create_hard_link(beside, path, error);
    fs::remove(beside, ignored);
    if (error && error != std::errc::file_exists) cannot_be_written(path, error.message());
    return !error;
  }

  std::optional<std::string> get(const std::string& key) override {
    std::ifstream in(fs::path(place(key)), std::ios::binary);
    if (!in) return std::nullopt;
    return std::string(std::istreambuf_iterator<char>(in), {});
  }

  void remove(const std::string& key) override {
    std::error_code ignored;
    fs::remove(place(key), ignored);
  }

 private:
  [[noreturn]] static void cannot_be_written(const std::string& path, const std::string& why) {
    fail(Code::io, "'", path, "', by which ranks find each other, cannot be written: ", why);
  }

  // Writes a file whose name no other process uses, on this machine or another.
  std::string write_beside(const std::string& path, const std::string& value) const {
    std::string beside = cat(path, ".", own_word_);
    constexpr auto kNew = std::ios::binary | std::ios::trunc;
    std::ofstream out(fs::path(beside), kNew);
    std::error_code ignored;
    if (!out && errno == ENOENT && fs::create_directory(folder_, ignored))  // it was deleted
      out.open(fs::path(beside), kNew);
    out << value;
    out.close();
    if (!out) cannot_be_written(path, platform::errno_text(errno));
    return beside;
  }

  std::string place(const std::string& key) const {
    std::string name = key;
    std::replace(name.begin(), name.end(), '/', '_');
    return (folder_ / name).string();
  }

  const fs::path folder_;
  const std::string own_word_ = new_word();
};

}  // namespace

std::unique_ptr<Store> file_store(const std::string& folder) {
  return std::make_unique<FileStore>(folder);
}

}  // namespace etr::exchange

#include "checkpoint/store.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <span>
#include <tuple>

#include "checkpoint/manifest.h"
#include "core/crc32c.h"
#include "core/error.h"
#include "core/json.h"
#include "core/log.h"
#include "core/parse_json.h"
#include "core/platform.h"
#include "core/platform_files.h"
#include "core/platform_lock.h"

namespace etr::checkpoint {
namespace {

namespace fs = std::filesystem;

std::string name_of(uint64_t step) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%012llu", static_cast<unsigned long long>(step));
  return name;
}

// Matches the names that save() gives: "step-000000001200" and "step-000000001200-2".
bool is_checkpoint_name(const std::string& name) {
  constexpr const char* kDigits = "0123456789";
  if (!name.starts_with("step-")) return false;
  const size_t dash = name.find_first_not_of(kDigits, 5);
  if (dash == std::string::npos) return name.size() > 5;
  return dash > 5 && name[dash] == '-' && dash + 1 < name.size() &&
         name.find_first_not_of(kDigits, dash + 1) == std::string::npos;
}

// A folder that cannot be listed is an error. If it seemed empty, a new checkpoint would begin to
// count the generations anew, and older ones would seem newer.
std::vector<fs::path> folders(const std::string& directory, bool (*is)(const std::string& name)) {
  std::vector<fs::path> out;
  std::error_code error, unknown;
  for (const auto& entry : platform::list_folder(directory, error)) {
    const fs::path path = fs::path(directory) / entry.name;
    if (is(entry.name) && (fs::is_directory(path, unknown) || unknown)) out.push_back(path);
  }
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    fail(Code::io, "cannot list '", directory, "': ", error.message());
  std::sort(out.begin(), out.end());
  return out;
}

struct Listing {
  std::vector<Manifest> manifests;    // newest first
  std::vector<std::string> problems;  // why other folders are not checkpoints
  std::vector<Error> unreadable;      // those problems that may be over the next time

  uint64_t generation() const { return manifests.empty() ? 0 : manifests.front().generation; }
};

// Returns false if a running job has removed the folder meanwhile, which means that newer ones
// exist.
bool is_there(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder, error) || error;
}

Listing list(const std::string& directory) {
  Listing out;
  bool are_gone = false;
  for (const fs::path& folder : folders(directory, is_checkpoint_name)) try {
      out.manifests.push_back(read_manifest(folder.string()));
    } catch (const Error& error) {
      if (!is_there(folder)) {
        are_gone = true;
        continue;
      }
      out.problems.emplace_back(error.what());
      if (error.code() == Code::io) out.unreadable.push_back(error);
    }
  if (are_gone && out.manifests.empty()) return list(directory);
  std::sort(out.manifests.begin(), out.manifests.end(), [](const Manifest& a, const Manifest& b) {
    return std::tie(a.generation, a.step, a.folder) > std::tie(b.generation, b.step, b.folder);
  });
  return out;
}

// Renames the folder to that of an unfinished write first, so that an interrupted removal leaves
// neither an apparently complete nor a damaged checkpoint.
void remove(const Manifest& manifest) {
  const fs::path folder = manifest.folder, away = manifest.folder + ".tmp";
  std::error_code error;
  if (fs::is_symlink(folder, error)) {
    fs::remove(folder, error);
    return;
  }
  fs::rename(folder, away, error);
  if (!error) {
    for (const ManifestFile& file : manifest.files) fs::remove(away / file.name, error);
    fs::remove(away / kManifestName, error);
    if (fs::remove(away, error)) return;
    std::error_code ignored;
    fs::rename(away, folder, ignored);  // not empty: somebody added files
  }
  log_line(LogLevel::warning,
           cat("the old checkpoint '", manifest.folder, "' cannot be removed: ", error.message()));
}

// Removes what writes and removals that were interrupted have left.
void remove_unfinished(const std::string& directory) {
  const auto unfinished = [](const std::string& name) {
    return name.ends_with(".tmp") && is_checkpoint_name(name.substr(0, name.size() - 4));
  };
  std::error_code error;
  for (const fs::path& folder : folders(directory, unfinished)) fs::remove_all(folder, error);
}

fs::path free_name(const std::string& directory, uint64_t step) {
  const fs::path plain = fs::path(directory) / name_of(step);
  fs::path name = plain;
  std::error_code error;
  for (int i = 2;; ++i) {
    const fs::file_type type = fs::symlink_status(name, error).type();
    if (type == fs::file_type::not_found) return name;
    if (type == fs::file_type::none)
      fail(Code::io, "cannot look for '", name.string(), "': ", error.message());
    name = cat(plain.string(), "-", i);
  }
}

// Also above those of checkpoints that cannot be read just now, which may be the newest.
uint64_t next_generation(const Listing& there) {
  if (there.manifests.empty() && !there.unreadable.empty()) throw Error(there.unreadable.front());
  return there.generation() + 1 + there.unreadable.size();
}

[[noreturn]] void refuse(const fs::path& path, const char* what) {
  fail(Code::state, "'", path.string(), "' is ", what,
       ". Move it away, or let output.dir name another folder (on the command line: --set "
       "output.dir=FOLDER)");
}

}  // namespace

void put_text(Files& files, const std::string& name, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  files[name].assign(bytes.begin(), bytes.end());
}

Json json_of(const Files& files, const std::string& name, const std::string& origin) {
  const auto it = files.find(name);
  if (it == files.end()) fail(Code::corrupt_data, origin, " has no file '", name, "'");
  return parse_json({reinterpret_cast<const char*>(it->second.data()), it->second.size()},
                    cat(origin, ": '", name, "'"), {.code = Code::corrupt_data});
}

void Store::check_usable() const {
  std::error_code error;
  const bool nothing = fs::symlink_status(directory_, error).type() == fs::file_type::not_found;
  if (!nothing && !fs::is_directory(directory_, error))
    refuse(directory_, "not a folder; checkpoints are written into a folder");
}

void Store::check_clearable() const {
  const char* const link = "a symbolic link: only what a run has written is overwritten";
  std::error_code error;
  if (fs::is_symlink(directory_, error)) refuse(directory_, link);
  check_usable();
  for (const fs::path& folder : folders(directory_, is_checkpoint_name))
    if (fs::is_symlink(folder, error)) refuse(folder, link);
}

std::string Store::save(uint64_t step, const Files& files) const {
  const fs::path temporary = fs::path(directory_) / (name_of(step) + ".tmp");
  std::error_code error;
  platform::create_directories_synced(directory_);
  std::string holder;
  const auto lock =
      platform::FileLock::take((fs::path(directory_) / platform::kFolderLock).string(), holder);
  if (!lock)
    fail(Code::state, "another run or trainer is writing a checkpoint into '", directory_, "' (",
         holder, "): save again when it is done, or into another folder");
  remove_unfinished(directory_);
  fs::create_directories(temporary, error);
  if (error) fail(Code::io, "cannot create '", temporary.string(), "': ", error.message());
  const Listing there = list(directory_);
  std::vector<Manifest> old = there.manifests;
  Manifest manifest{temporary.string(), step, next_generation(there), {}};
  for (const auto& [name, bytes] : files) {
    platform::write_file_synced((temporary / name).string(), bytes);
    manifest.files.push_back({name, bytes.size(), crc32c(bytes)});
  }
  const std::string text = manifest_json(manifest).dump(1);
  platform::write_file_synced((temporary / kManifestName).string(), std::as_bytes(std::span(text)));
  platform::sync_directory(temporary.string());
  const fs::path target = free_name(directory_, step);
  fs::rename(temporary, target, error);
  if (error) fail(Code::io, "cannot rename to '", target.string(), "': ", error.message());
  platform::sync_directory(directory_);
  std::erase_if(old, [](const Manifest& m) { return !missing_of(m).empty(); });
  for (size_t i = static_cast<size_t>(keep_) - 1; i < old.size(); ++i) remove(old[i]);
  return target.string();
}

Loaded load_checkpoint(const std::string& path) {
  const Manifest manifest = read_manifest(path);
  if (const std::string missing = missing_of(manifest); !missing.empty())
    fail(Code::corrupt_data, missing);
  Loaded out{manifest.step, {}, path};
  for (const ManifestFile& entry : manifest.files) {
    const std::string file = (fs::path(path) / entry.name).string();
    const std::string text = platform::read_file(file);
    const auto bytes = std::as_bytes(std::span(text));
    if (crc32c(bytes) != entry.crc32c)
      fail(Code::corrupt_data, "'", file, "' does not match its checksum");
    out.files[entry.name].assign(bytes.begin(), bytes.end());
  }
  return out;
}

std::optional<Loaded> Store::load_latest() const {
  Listing all = list(directory_);
  std::vector<std::string> problems = all.problems;
  const auto warn = [](const std::string& problem) {
    log_line(LogLevel::warning, "checkpoint passed over: " + problem);
  };
  for (const std::string& problem : problems) warn(problem);
  while (true) {
    for (const Manifest& manifest : all.manifests) {
      try {
        return load_checkpoint(manifest.folder);
      } catch (const Error& error) {
        if (is_there(manifest.folder)) warn(problems.emplace_back(error.what()));
      }
    }
    Listing now = list(directory_);
    if (now.generation() == all.generation()) break;
    all = std::move(now);
  }
  if (problems.empty()) return std::nullopt;
  std::string text;
  for (const std::string& problem : problems) text += "\n  " + problem;
  fail(Code::corrupt_data, "every checkpoint in '", directory_, "' is damaged:", text);
}

std::optional<uint64_t> Store::newest_step() const {
  for (const Manifest& manifest : list(directory_).manifests)
    if (missing_of(manifest).empty()) return manifest.step;
  return std::nullopt;
}

bool Store::has(std::string_view file) const {
  const Listing all = list(directory_);
  return std::any_of(all.manifests.begin(), all.manifests.end(), [&](const Manifest& manifest) {
    return std::any_of(manifest.files.begin(), manifest.files.end(),
                       [&](const ManifestFile& each) { return each.name == file; });
  });
}

void Store::clear() const {
  const Listing all = list(directory_);
  for (const Manifest& manifest : all.manifests) remove(manifest);
  for (const std::string& problem : all.problems)
    log_line(LogLevel::warning,
             cat("what is no checkpoint stays in '", directory_, "': ", problem));
  remove_unfinished(directory_);
  std::error_code error;
  fs::remove(directory_, error);  // if it is empty now
}

}  // namespace etr::checkpoint

#include "io/disk_cache.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/log.h"
#include "core/platform.h"
#include "core/platform_files.h"
#include "core/sha256.h"

namespace etr::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".shard";
constexpr const char* kPart = ".part-";  // within the names of files being written
// A file with no other content than its modification time, the last use. That of the shard itself
// must not change: its readers take a new time for a new content.
constexpr const char* kUsed = ".used";
constexpr std::chrono::hours kAbandoned{1};  // since the last write

fs::path used_of(const fs::path& shard) { return shard.string() + kUsed; }

void mark_used(const fs::path& shard) {
  const fs::path mark = used_of(shard);
  std::error_code error;
  fs::last_write_time(mark, fs::file_time_type::clock::now(), error);
  if (error) std::ofstream{mark};
}

fs::file_time_type last_use(const fs::path& shard, std::error_code& error) {
  std::error_code unmarked;
  const auto marked = fs::last_write_time(used_of(shard), unmarked);
  return unmarked ? fs::last_write_time(shard, error) : marked;
}

std::string temporary_ending() {
  static std::atomic<uint64_t> number{0};
  return cat(kPart, platform::process_id(), "-", number++);
}

// Removes what a killed process was writing.
void remove_if_abandoned(const fs::path& part) {
  std::error_code error;
  const auto written = fs::last_write_time(part, error);
  if (!error && fs::file_time_type::clock::now() - written > kAbandoned) fs::remove(part, error);
}

}  // namespace

DiskCache::DiskCache(std::string directory, uint64_t limit_bytes, std::function<bool()> cancelled)
    : directory_(std::move(directory)),
      limit_bytes_(limit_bytes),
      cancelled_(std::move(cancelled)) {
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) fail(Code::io, "cannot make the cache '", directory_, "': ", error.message());
}

std::string DiskCache::path_of(const std::string& address, const std::string& version) const {
  return directory_ + "/" + to_hex(sha256(address + "\n" + version)).substr(0, 40) + kEnding;
}

std::optional<std::string> DiskCache::find(const std::string& address,
                                           const std::string& version) const {
  std::string path = path_of(address, version);
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  mark_used(path);
  return path;
}

DiskCache::Entry::Entry(const DiskCache& cache, const std::string& address,
                        const std::string& version)
    : cache_(cache), file_(cache.path_of(address, version), temporary_ending()) {}

std::string DiskCache::Entry::keep() {
  file_.keep();
  cache_.make_room(file_.path());
  return file_.path();
}

// Waits for the lock that serialises making room. Returns nullptr if it cannot be created; the log
// says why.
std::unique_ptr<platform::FileLock> DiskCache::take_turn() const try {
  // Polls, because a blocking lock could not be cancelled.
  constexpr std::chrono::milliseconds kPause{20};
  while (true) {
    std::string holder;
    if (auto lock = platform::FileLock::take(directory_ + "/lock", holder)) return lock;
    if (cancelled_ && cancelled_())
      fail(Code::cancelled, "waiting for ", holder, " to make room in '", directory_,
           "' was cancelled");
    std::this_thread::sleep_for(kPause);
  }
} catch (const Error& error) {
  if (error.code() == Code::cancelled) throw;
  log_line(LogLevel::warning,
           cat("no room is made in the cache '", directory_, "', which may grow beyond ",
               limit_bytes_, " bytes: ", error.what()));
  return nullptr;
}

// Serialised between processes, so that two do not both make room for the same file.
void DiskCache::make_room(const std::string& kept) const {
  if (const auto lock = take_turn()) remove_oldest(kept);
}

void DiskCache::remove_oldest(const std::string& kept) const {
  struct Found {
    fs::file_time_type used;
    uint64_t bytes;
    fs::path path;
  };
  std::vector<Found> others;
  uint64_t total = 0;
  std::error_code error, listing;
  for (const auto& entry : platform::list_folder(directory_, listing)) {
    const fs::path path = fs::path(directory_) / entry.name;
    if (entry.name.find(kPart) != std::string::npos) remove_if_abandoned(path);
    if (path.extension() != kEnding) continue;
    Found found{last_use(path, error), 0, path};
    if (!error) found.bytes = fs::file_size(path, error);
    if (error) continue;  // another process has removed it
    total += found.bytes;
    if (found.path != kept) others.push_back(std::move(found));
  }
  std::sort(others.begin(), others.end(),
            [](const Found& a, const Found& b) { return a.used < b.used; });
  // The new file stays even if it exceeds the limit alone, because it is about to be read.
  for (size_t i = 0; i < others.size() && total > limit_bytes_; ++i)
    if (fs::remove(others[i].path, error)) {
      total -= others[i].bytes;
      fs::remove(used_of(others[i].path), error);
    }
}

}  // namespace etr::io

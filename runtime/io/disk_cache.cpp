#include "io/disk_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/platform.h"
#include "core/sha256.h"

namespace etr::io {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEnding = ".shard";

}  // namespace

DiskCache::DiskCache(std::string directory, uint64_t limit_bytes)
    : directory_(std::move(directory)), limit_bytes_(limit_bytes) {
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
  // Its time of change says when it was used last.
  if (::utimensat(AT_FDCWD, path.c_str(), nullptr, 0) != 0) return std::nullopt;
  return path;
}

DiskCache::Entry::Entry(const DiskCache& cache, const std::string& address,
                        const std::string& version)
    : cache_(cache),
      path_(cache.path_of(address, version)),
      temporary_([&] {
        static std::atomic<uint64_t> number{0};
        return path_ + ".part-" + std::to_string(platform::process_id()) + "-" +
               std::to_string(number++);
      }()),
      file_(std::in_place, temporary_, platform::OutputFile::Mode::replace) {}

DiskCache::Entry::~Entry() {
  if (!file_) return;
  file_.reset();
  ::unlink(temporary_.c_str());
}

void DiskCache::Entry::write(std::span<const std::byte> bytes) { file_->write(bytes); }

std::string DiskCache::Entry::keep() {
  file_->close();
  file_.reset();
  if (::rename(temporary_.c_str(), path_.c_str()) != 0)
    fail(Code::io, "cannot rename to '", path_, "': ", platform::errno_text(errno));
  cache_.make_room();
  return path_;
}

// One process at a time, so that two do not both make room for the same file.
void DiskCache::make_room() const {
  const std::string lock_path = directory_ + "/lock";
  const int lock = ::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0) return;
  while (::flock(lock, LOCK_EX) != 0 && errno == EINTR) continue;
  struct Kept {
    fs::file_time_type used;
    uint64_t bytes;
    fs::path path;
  };
  std::vector<Kept> all;
  uint64_t total = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory_, error)) {
    if (entry.path().extension() != kEnding) continue;
    Kept kept{entry.last_write_time(error), entry.file_size(error), entry.path()};
    if (error) continue;  // another process has removed it
    total += kept.bytes;
    all.push_back(std::move(kept));
  }
  std::sort(all.begin(), all.end(), [](const Kept& a, const Kept& b) { return a.used < b.used; });
  // The newest stays, even where it alone is too large: somebody is about to read it.
  for (size_t i = 0; i + 1 < all.size() && total > limit_bytes_; ++i)
    if (fs::remove(all[i].path, error)) total -= all[i].bytes;
  ::close(lock);
}

}  // namespace etr::io

#include "core/platform_lock.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/log.h"
#include "core/platform.h"

namespace etr::platform {

// The open locks of this process. A flock() lock ends when its last descriptor is closed, so a
// child of fork() closes its copies. The mutex blocks fork() while a file is opened or closed, and
// is held for nothing else.
class FileLock::All {
 public:
  static All& get() {
    static auto* all = new All;  // never destroyed: locks may be static objects
    return *all;
  }

  // Opens the file without following links, because it will be written to and removed. Returns
  // errno, or 0.
  int open(FileLock& lock) {
    const std::scoped_lock no_fork(mutex_);
    locks_.push_back(&lock);  // first: after opening, nothing can throw
    lock.file_ =
        ::open(lock.path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    return lock.file_ < 0 ? errno : 0;
  }

  void close(FileLock& lock) noexcept {
    const std::scoped_lock no_fork(mutex_);
    std::erase(locks_, &lock);
    if (lock.file_ >= 0) ::close(std::exchange(lock.file_, -1));
  }

  // Returns whether this is the first call for the folder.
  bool is_new(const std::string& folder) {
    const std::scoped_lock no_fork(mutex_);
    return folders_without_locks_.insert(folder).second;
  }

 private:
  All() {
    ::pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); },
                     [] {
                       for (FileLock* lock : get().locks_)
                         if (lock->file_ >= 0) ::close(std::exchange(lock->file_, -1));
                       get().locks_.clear();
                       get().mutex_.unlock();
                     });
  }

  std::mutex mutex_;
  std::vector<FileLock*> locks_;
  std::set<std::string> folders_without_locks_;
};

namespace {

// `error`: errno, if opening failed.
void check_regular(int file, const std::string& path, int error) {
  if (file < 0)
    fail(error == ENOENT ? Code::not_found : Code::io, "cannot create '", path,
         "': ", errno_text(error));
  struct stat info {};
  if (::fstat(file, &info) != 0 || !S_ISREG(info.st_mode))
    fail(Code::io, "cannot lock '", path, "': it is not a regular file");
}

bool is_at(int file, const std::string& path) {
  struct stat open {};
  struct stat there {};
  return ::fstat(file, &open) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         open.st_dev == there.st_dev && open.st_ino == there.st_ino;
}

enum class Locked { yes, by_another, without_locks };

// `reason`: why locks are not supported.
Locked lock(int file, std::string& reason) {
  while (::flock(file, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno == EWOULDBLOCK) return Locked::by_another;
    reason = errno_text(errno);
    return Locked::without_locks;
  }
  return Locked::yes;
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "an unnamed host";
}

// The name that the holder wrote. The file is empty if the holder has not written it yet.
std::string holder_of(int file) {
  std::array<char, 300> text{};
  const ssize_t size = ::pread(file, text.data(), text.size(), 0);
  const std::string holder(text.data(), static_cast<size_t>(std::max<ssize_t>(size, 0)));
  const std::string here = process_name();
  if (holder.empty()) return "another process";
  return holder == here ? "this process" : holder;
}

void write_holder(int file) {
  const std::string text = process_name();
  if (::ftruncate(file, 0) == 0 && write_all(file, std::as_bytes(std::span(text)), 0)) return;
  const int error = errno;
  const bool emptied = ::ftruncate(file, 0) == 0;  // a partial name could be another process's
  log_line(LogLevel::debug, cat("a lock does not say ", emptied ? "" : "rightly ",
                                "who holds it: ", errno_text(error)));
}

}  // namespace

std::string process_name() { return cat("process ", process_id(), " on ", host_name()); }

std::unique_ptr<FileLock> FileLock::take(const std::string& path, std::string& holder,
                                         bool required) {
  std::string reason;
  auto lock = try_once(path, holder, reason);
  while (!lock && holder.empty()) lock = try_once(path, holder, reason);
  if (reason.empty()) return lock;
  if (required)
    fail(Code::unsupported, "cannot lock '", path, "': its file system has no locks (", reason,
         ")");
  const std::string folder = std::filesystem::path(path).parent_path().string();
  if (All::get().is_new(folder))
    log_line(LogLevel::warning, cat("the file system of '", folder, "' has no locks (", reason,
                                    "): nothing keeps others from using it too"));
  return lock;
}

// Returns nullptr with an empty `holder` if the previous holder removed the file before it could be
// locked here.
std::unique_ptr<FileLock> FileLock::try_once(const std::string& path, std::string& holder,
                                             std::string& reason) {
  All& all = All::get();  // constructed before a lock, whose destructor uses it
  std::unique_ptr<FileLock> out(new FileLock(path));
  const int error = all.open(*out);
  check_regular(out->file_, path, error);
  const Locked locked = lock(out->file_, reason);
  holder = locked == Locked::by_another ? holder_of(out->file_) : "";
  out->held_ =
      locked == Locked::without_locks || (locked == Locked::yes && is_at(out->file_, path));
  if (!out->held_) return nullptr;
  write_holder(out->file_);
  return out;
}

FileLock::~FileLock() {
  if (held_ && file_ >= 0 && is_at(file_, path_)) ::unlink(path_.c_str());
  All::get().close(*this);
}

}  // namespace etr::platform

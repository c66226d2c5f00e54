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

// The locks of this process whose files are open. A lock by flock() ends when its last descriptor is closed, so a child of
// fork() closes its copies: nothing forks while the mutex is held, which is while a file is opened or closed. Nothing else is
// done under it.
class FileLock::All {
 public:
  static All& get() {
    static auto* all = new All;  // for ever: locks may be static objects
    return *all;
  }

  // Without following a link: the file is written to, and removed. The system's error number, or 0.
  int open(FileLock& lock) {
    const std::scoped_lock no_fork(mutex_);
    locks_.push_back(&lock);  // first: once the file is open, nothing fails
    lock.file_ =
        ::open(lock.path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    return lock.file_ < 0 ? errno : 0;
  }

  void close(FileLock& lock) noexcept {
    const std::scoped_lock no_fork(mutex_);
    std::erase(locks_, &lock);
    if (lock.file_ >= 0) ::close(std::exchange(lock.file_, -1));
  }

  // Whether the folder is asked about for the first time.
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

// `error`: why it is not open.
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

// `reason`: why there are no locks.
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

// What the holder has written; it may be about to.
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
  const bool emptied = ::ftruncate(file, 0) == 0;  // half a name would be another's
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

// nullptr without a holder: whoever had the lock has removed the file before this one could be locked.
std::unique_ptr<FileLock> FileLock::try_once(const std::string& path, std::string& holder,
                                             std::string& reason) {
  All& all = All::get();  // made before a lock whose destructor needs it
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
